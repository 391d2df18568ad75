"""The command line: a click group whose commands load when they are called, and one error boundary."""

from trtconv.cli.process.boundary import main, run

__all__ = ["main", "run"]
