"""The rewrites, in the order in which they run."""

from trtconv.passes.base import Pass, PassResult, run_passes, select
from trtconv.passes.dilate_kernel import DilateDeconvKernel
from trtconv.passes.explicit_deconv import MakeDeconvExplicit
from trtconv.passes.inline_functions import InlineDeconvFunctions
from trtconv.passes.restore_sizes import RestorePixelShuffle, RestoreReshapeTarget, RestoreResizeScales

PASSES: tuple[Pass, ...] = (
    InlineDeconvFunctions(),
    MakeDeconvExplicit(),
    DilateDeconvKernel(),
    RestorePixelShuffle(),
    RestoreReshapeTarget(),
    RestoreResizeScales(),
)

__all__ = ["PASSES", "Pass", "PassResult", "run_passes", "select"]
