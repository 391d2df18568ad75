"""The rewrites, in the order in which they run."""

from collections.abc import Collection

from trtconv.passes.asymmetric import ComputeAsymmetricInFloat, RequantizeSymmetric
from trtconv.passes.base import BrokenContract, Pass, PassResult, run_passes, select
from trtconv.passes.cast_first import CastBytesFirst
from trtconv.passes.channel_scales import MoveChannelScales
from trtconv.passes.clip_limits import UncrossClipLimits
from trtconv.passes.constant_forms import SettleConstants
from trtconv.passes.crop_windows import CropPoolWindows
from trtconv.passes.dilate_kernel import DilateDeconvKernel
from trtconv.passes.einsum_letters import LowerEinsumLetters
from trtconv.passes.empty_names import SettleEmptyNames
from trtconv.passes.explicit_deconv import Chooser, MakeDeconvExplicit, chooser_of
from trtconv.passes.fold_batch_norm import FoldBatchNorm
from trtconv.passes.fold_integer_bias import FoldIntegerBias
from trtconv.passes.fold_quantized_clip import FoldQuantizedClip
from trtconv.passes.fold_quantized_norm import FoldQuantizedNorm
from trtconv.passes.fold_weight_quantizers import FoldWeightQuantizers
from trtconv.passes.inline_functions import InlineDeconvFunctions
from trtconv.passes.integer_operators import ExpandIntegerOperators
from trtconv.passes.kernel_shape import WriteKernelShape
from trtconv.passes.lower_opset import LowerOpset
from trtconv.passes.magnitudes_first import TakeMagnitudesFirst
from trtconv.passes.match_skip import MatchSkipSize
from trtconv.passes.normalize_quantizers import NormalizeQuantizers
from trtconv.passes.order_channels import OrderChannels
from trtconv.passes.overlap_add import OverlapAdd
from trtconv.passes.part_skips import PartSkipScales
from trtconv.passes.pool_in_float import PoolInFloat
from trtconv.passes.pool_pads import WritePoolPads
from trtconv.passes.quantized_constants import DequantizeConstants
from trtconv.passes.restore_sizes import RestorePixelShuffle, RestoreReshapeTarget, RestoreResizeScales
from trtconv.passes.shift_uint8 import ShiftUint8
from trtconv.passes.spelling.arguments import (
    FixArguments,
    ReshapeSingleNumbers,
    WidenBounds,
    WriteSelections,
    WriteSliceAxes,
)
from trtconv.passes.spelling.bags import ReduceBags
from trtconv.passes.spelling.bits import CombineBits, ShiftBits
from trtconv.passes.spelling.branches import TakeDecidedBranches
from trtconv.passes.spelling.caches import UpdateByScatter
from trtconv.passes.spelling.cumulative import CumulativeProduct
from trtconv.passes.spelling.determinant import DeterminantByMinors
from trtconv.passes.spelling.einsum import SumWithoutOnes
from trtconv.passes.spelling.end_indices import CountFromStart
from trtconv.passes.spelling.exponentials import ShiftExponentials
from trtconv.passes.spelling.fewer_axes import JoinAxes
from trtconv.passes.spelling.float_mod import FloatMod
from trtconv.passes.spelling.fourier import FourierByMatrix
from trtconv.passes.spelling.functions import ExpandFunctions
from trtconv.passes.spelling.fused import ExpandFused
from trtconv.passes.spelling.halves import ComputeInFloat
from trtconv.passes.spelling.infinite_constants import CastInfiniteConstants
from trtconv.passes.spelling.int8_constants import CastInt8Constants
from trtconv.passes.spelling.integer_products import MultiplyInFloat, SumIntegerProducts
from trtconv.passes.spelling.integer_signs import CompareForSign, MultiplyForPower, PickAboveZero
from trtconv.passes.spelling.iterations import CompleteIterations
from trtconv.passes.spelling.learned import ExpandLearned
from trtconv.passes.spelling.masked import AssignByWhere
from trtconv.passes.spelling.mean_variance import CentreFirst
from trtconv.passes.spelling.one_hot import ComparePositions, CompressBySize
from trtconv.passes.spelling.one_limit import PickByOneLimit
from trtconv.passes.spelling.one_row import DoubleOneRow
from trtconv.passes.spelling.pooling import PoolByTaps
from trtconv.passes.spelling.products import ConvolveProducts
from trtconv.passes.spelling.quantize import QuantizeInArithmetic
from trtconv.passes.spelling.ranges import RangeBySize
from trtconv.passes.spelling.reduction_over_nothing import WriteElementwise
from trtconv.passes.spelling.regions import DeformBySamples, RegionsByMatrix
from trtconv.passes.spelling.remainders import SubtractRemainders
from trtconv.passes.spelling.resize import ResizeByMatrix
from trtconv.passes.spelling.resize_axes import ResizeAllAxes
from trtconv.passes.spelling.rounded_pools import PadBeforeAverage, RoundPoolsAtRunTime
from trtconv.passes.spelling.runtime_axes import ReduceByShape, ReshapeByShape
from trtconv.passes.spelling.samples import SampleByGather
from trtconv.passes.spelling.scatter import ScatterByPosition
from trtconv.passes.spelling.second_axis import AddSecondAxis
from trtconv.passes.spelling.sequences import UnpackSequences
from trtconv.passes.spelling.shapes import ScalarRange, TakeFromShape
from trtconv.passes.spelling.training import DropNothing, NormalizeByBatch
from trtconv.passes.spelling.unpooling import UnfoldColumns, UnpoolByScatter
from trtconv.passes.spelling.unrolling import UnrollLoops
from trtconv.passes.spelling.wider import ComputeWider
from trtconv.passes.spelling.wrapped_pads import CropBeforeWrap
from trtconv.passes.time_first import PutTimeFirst
from trtconv.passes.ungroup_deconv import UngroupDeconv
from trtconv.passes.unread import LeaveOutUnread
from trtconv.passes.weight_quantizers import WriteWeightQuantizers
from trtconv.passes.widen_weights import WidenWeights
from trtconv.passes.write_defaults import WriteDefaults

PASSES: tuple[Pass, ...] = (
    InlineDeconvFunctions(),
    ExpandFused(),
    ExpandLearned(),
    ExpandFunctions(),
    TakeDecidedBranches(),
    ReduceBags(),
    CompleteIterations(),
    UnrollLoops(),
    UnpackSequences(),
    LeaveOutUnread(),
    FixArguments(),
    WriteElementwise(),
    ReshapeSingleNumbers(),
    WriteSliceAxes(),
    WidenBounds(),
    WriteSelections(),
    AssignByWhere(),
    ReduceByShape(),
    ReshapeByShape(),
    ShiftBits(),
    CombineBits(),
    FloatMod(),
    ShiftExponentials(),
    ComputeInFloat(),
    CentreFirst(),
    JoinAxes(),
    DoubleOneRow(),
    ConvolveProducts(),
    ResizeByMatrix(),
    ResizeAllAxes(),
    RegionsByMatrix(),
    DeformBySamples(),
    SampleByGather(),
    CumulativeProduct(),
    ComparePositions(),
    CompressBySize(),
    CountFromStart(),
    CropBeforeWrap(),
    PadBeforeAverage(),
    PoolByTaps(),
    RoundPoolsAtRunTime(),
    ScatterByPosition(),
    UpdateByScatter(),
    FourierByMatrix(),
    UnfoldColumns(),
    UnpoolByScatter(),
    RangeBySize(),
    TakeFromShape(),
    ScalarRange(),
    NormalizeByBatch(),
    DropNothing(),
    DeterminantByMinors(),
    WriteDefaults(),
    TakeMagnitudesFirst(),
    OrderChannels(),
    UncrossClipLimits(),
    PutTimeFirst(),
    CropPoolWindows(),
    SumWithoutOnes(),
    LowerEinsumLetters(),
    WritePoolPads(),
    CastBytesFirst(),
    FoldBatchNorm(),
    ExpandIntegerOperators(),
    SettleConstants(),
    NormalizeQuantizers(),
    FoldQuantizedClip(),
    PickByOneLimit(),
    WidenWeights(),
    FoldIntegerBias(),
    ShiftUint8(),
    RequantizeSymmetric(),
    ComputeAsymmetricInFloat(),
    DequantizeConstants(),
    PoolInFloat(),
    FoldWeightQuantizers(),
    FoldQuantizedNorm(),
    MoveChannelScales(),
    PartSkipScales(),
    WriteWeightQuantizers(),
    WriteKernelShape(),
    UngroupDeconv(),
    MatchSkipSize(),
    MakeDeconvExplicit(),
    DilateDeconvKernel(),
    OverlapAdd(),
    RestorePixelShuffle(),
    RestoreReshapeTarget(),
    RestoreResizeScales(),
    QuantizeInArithmetic(),
    MultiplyInFloat(),
    AddSecondAxis(),
    SumIntegerProducts(),
    ComputeWider(),
    PickAboveZero(),
    SubtractRemainders(),
    CompareForSign(),
    MultiplyForPower(),
    CastInt8Constants(),
    CastInfiniteConstants(),
    LowerOpset(),
    # Passes too leave inputs out by empty names.
    SettleEmptyNames(),
)

_IN_HALF = ("fp16", "bf16", "int8", "auto")


def passes_for(
    precision: str, *, requantize: bool = False, choose: Chooser | None = None, typed_nodes: Collection[str] = ()
) -> tuple[Pass, ...]:
    """Returns the passes that run for an engine.

    Args:
        precision: One of `core.requests.common.PRECISIONS`; with int8, layers that are not quantised run in float16.
        requantize: Whether asymmetric tensors are requantised symmetrically, which changes numbers.
        choose: Chooses the form of each transposed convolution that has several; None: the usual one.
        typed_nodes: Names of nodes that have types of their own, and keep their names.
    """
    half = precision in _IN_HALF
    variants = {
        ExpandFunctions: ExpandFunctions(in_half=half),
        MakeDeconvExplicit: MakeDeconvExplicit(in_half=half, choose=choose),
        OverlapAdd: OverlapAdd(in_half=half, typed_nodes=typed_nodes),
    }
    passes = (pass_ for pass_ in PASSES if not pass_.on_request or (requantize and pass_.flag == "requantize"))
    return tuple(variants.get(type(pass_), pass_) for pass_ in passes)


__all__ = [
    "PASSES",
    "BrokenContract",
    "Chooser",
    "Pass",
    "PassResult",
    "chooser_of",
    "passes_for",
    "run_passes",
    "select",
]
