"""The order of the stages: what `trtconv.build`, `check` and `rewrite` call, each loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtconv.pipeline.building import build
    from trtconv.pipeline.checking import check
    from trtconv.pipeline.rewriting import rewrite

__all__ = ["build", "check", "rewrite"]


def __getattr__(name: str) -> Any:
    if name == "build":
        from trtconv.pipeline.building import build as asked
    elif name == "check":
        from trtconv.pipeline.checking import check as asked  # type: ignore[assignment]
    elif name == "rewrite":
        from trtconv.pipeline.rewriting import rewrite as asked  # type: ignore[assignment]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return asked
