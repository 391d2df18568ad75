"""What each command is asked, as plain values."""

from trtconv.core.errors import say_in_python
from trtconv.core.python_words import in_python

say_in_python(in_python)
