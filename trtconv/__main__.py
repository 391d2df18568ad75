"""`python -m trtconv` is `trtconv`."""

import os
import sys

if __name__ == "__main__":
    # Python puts the working directory first, which may be a stranger's checkout: no module is to come from there,
    # unless trtconv itself does.
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    if sys.path[0] in ("", os.getcwd()) and os.path.realpath(os.getcwd()) != os.path.realpath(here):  # noqa: PTH109
        del sys.path[0]

    from trtconv.cli import run

    run()
