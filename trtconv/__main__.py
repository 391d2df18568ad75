"""`python -m trtconv` is `trtconv`."""

from trtconv.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
