"""`python -m trtconv` is `trtconv`."""

import os
import sys


def _leave_working_directory() -> None:
    """Takes the working directory, which Python puts first, from where modules are looked for.

    It may be a stranger's checkout: no module is to come from there, unless trtconv itself does.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    try:
        working_directory = os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        _start_without_working_directory()
        return
    if sys.path[0] in ("", working_directory) and os.path.realpath(working_directory) != os.path.realpath(here):
        del sys.path[0]


def _start_without_working_directory() -> None:
    if sys.path[0] == "":
        del sys.path[0]
    # Where the directory is gone, these raise SystemError in place of AttributeError (python/cpython#130932).
    if sys.version_info >= (3, 13) and sys.version_info < (3, 13, 3) and not sys.flags.safe_path:
        os.execv(sys.executable, [sys.executable, "-P", *sys.orig_argv[1:]])


if __name__ == "__main__":
    _leave_working_directory()

    from trtconv.cli import run

    run()
