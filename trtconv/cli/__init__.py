"""The command line: a click group whose commands load when they are called, and one error boundary."""

from __future__ import annotations

TYPE_CHECKING = False  # What typing.TYPE_CHECKING is; nothing may be imported before `run` holds signals.
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main", "run"]


def main(args: Sequence[str] | None = None, *, isolated: bool = False) -> int:
    """Runs the command line; see `trtconv.cli.process.boundary.main`."""
    from trtconv.cli.process import boundary

    return boundary.main(args, isolated=isolated)


def run() -> NoReturn:
    """Is the console entry; see `trtconv.cli.process.boundary.run`."""
    from trtconv.cli.process import signals

    signals.hold()
    import gc

    # While modules load there is nothing to collect; `boundary.run` says how often afterwards.
    gc.disable()
    from trtconv.cli.process import boundary

    boundary.run()
