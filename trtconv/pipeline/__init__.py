"""The order of the stages: what `trtconv.build`, `check` and `rewrite` call."""

from trtconv.pipeline.building import build
from trtconv.pipeline.checking import check
from trtconv.pipeline.rewriting import rewrite

__all__ = ["build", "check", "rewrite"]
