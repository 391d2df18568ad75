"""What each command is asked, as plain values."""

from trtconv.core.errors import say_in_python


def _in_python(hint: str) -> str:
    # Loaded where a hint is said: it reads the requests of this package.
    from trtconv.core.python_words import in_python

    return in_python(hint)


say_in_python(_in_python)
