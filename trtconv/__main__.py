"""`python -m trtconv` is `trtconv`."""

from trtconv.cli import run

if __name__ == "__main__":
    run()
