"""The order of the stages: what `trtconv.build`, `check` and `rewrite` call. Each loads when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtconv.pipeline.building import build
    from trtconv.pipeline.checking import check
    from trtconv.pipeline.rewriting import rewrite

__all__ = ["build", "check", "rewrite"]


def __getattr__(name: str) -> object:
    if name == "build":
        from trtconv.pipeline.building import build

        return build
    if name == "check":
        from trtconv.pipeline.checking import check

        return check
    if name == "rewrite":
        from trtconv.pipeline.rewriting import rewrite

        return rewrite
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
