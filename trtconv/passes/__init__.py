"""The rewrites, in the order in which they run."""

from collections.abc import Collection
from typing import TYPE_CHECKING

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
from trtconv.passes.later import later, own_pass
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
from trtconv.passes.spelling.branches import TakeDecidedBranches
from trtconv.passes.spelling.functions import ExpandFunctions
from trtconv.passes.spelling.halves import ComputeInFloat
from trtconv.passes.spelling.infinite_constants import CastInfiniteConstants
from trtconv.passes.spelling.int8_constants import CastInt8Constants
from trtconv.passes.spelling.one_limit import PickByOneLimit
from trtconv.passes.spelling.wider import ComputeWider
from trtconv.passes.time_first import PutTimeFirst
from trtconv.passes.ungroup_deconv import UngroupDeconv
from trtconv.passes.unread import LeaveOutUnread
from trtconv.passes.weight_quantizers import WriteWeightQuantizers
from trtconv.passes.widen_weights import WidenWeights
from trtconv.passes.write_defaults import WriteDefaults

if TYPE_CHECKING:
    PASSES: tuple[Pass, ...]

_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)

_IN_ORDER: tuple[Pass, ...] = (
    InlineDeconvFunctions(),
    later(
        "expand-fused",
        "fused",
        "ExpandFused",
        "Attention BiasGelu DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv FusedGemm "
        "FusedMatMul Gelu LayerNormalization MatMulIntegerToFloat MatMulNBits MultiHeadAttention "
        "NhwcMaxPool QAttention QLinearConv QuickGelu RotaryEmbedding SimplifiedLayerNormalization "
        "SkipLayerNormalization SkipSimplifiedLayerNormalization",
    ),
    later(
        "expand-learned",
        "learned",
        "ExpandLearned",
        "ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer LinearRegressor Normalizer Scaler",
    ),
    ExpandFunctions(),
    TakeDecidedBranches(),
    later("reduce-bags", "bags", "ReduceBags", "ConcatFromSequence Loop"),
    later("complete-iterations", "iterations", "CompleteIterations", "Loop Scan"),
    later("unroll-loops", "unrolling", "UnrollLoops", "Loop"),
    later("unpack-sequences", "sequences", "UnpackSequences", "ConcatFromSequence SequenceAt SequenceLength"),
    LeaveOutUnread(),
    FixArguments(),
    later(
        "write-elementwise",
        "reduction_over_nothing",
        "WriteElementwise",
        _REDUCTIONS,
    ),
    later("reduce-all-axes", "reduction_over_nothing", "ReduceAllAxes", _REDUCTIONS),
    ReshapeSingleNumbers(),
    WriteSliceAxes(),
    WidenBounds(),
    WriteSelections(),
    later("assign-by-where", "masked", "AssignByWhere", "ScatterND"),
    later("list-places", "all_places", "ListPlaces", "NonZero"),
    later(
        "reduce-by-shape",
        "runtime_axes",
        "ReduceByShape",
        _REDUCTIONS,
    ),
    later("reshape-by-shape", "runtime_axes", "ReshapeByShape", "Squeeze Unsqueeze"),
    later("shift-bits", "bits", "ShiftBits", "BitShift"),
    later("combine-bits", "bits", "CombineBits", "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor"),
    later("float-mod", "float_mod", "FloatMod", "Mod"),
    later("shift-exponentials", "exponentials", "ShiftExponentials", "LogSoftmax ReduceLogSumExp"),
    ComputeInFloat(),
    later("centre-first", "mean_variance", "CentreFirst", "MeanVarianceNormalization"),
    later("join-axes", "fewer_axes", "JoinAxes", "InstanceNormalization Trilu"),
    later("double-one-row", "one_row", "DoubleOneRow", "MatMul"),
    later("convolve-products", "products", "ConvolveProducts", "Gemm MatMul"),
    later("resize-by-matrix", "resize", "ResizeByMatrix", "Resize"),
    later("resize-all-axes", "resize_axes", "ResizeAllAxes", "Resize"),
    later("regions-by-matrix", "regions", "RegionsByMatrix", "RoiAlign"),
    later("deform-by-samples", "regions", "DeformBySamples", "DeformConv"),
    later("sample-by-gather", "samples", "SampleByGather", "GridSample"),
    later("cumulative-product", "cumulative", "CumulativeProduct", "CumProd"),
    later("compare-positions", "one_hot", "ComparePositions", "EyeLike Hardmax OneHot"),
    later("compress-by-size", "one_hot", "CompressBySize", "Compress"),
    later(
        "count-from-start", "end_indices", "CountFromStart", "Gather GatherElements GatherND ScatterElements ScatterND"
    ),
    later("crop-before-wrap", "wrapped_pads", "CropBeforeWrap", "Pad"),
    later("pad-before-average", "rounded_pools", "PadBeforeAverage", "AveragePool"),
    later("pool-by-taps", "pooling", "PoolByTaps", "AveragePool LpPool MaxPool"),
    later("round-pools-at-run-time", "rounded_pools", "RoundPoolsAtRunTime", "AveragePool LpPool MaxPool"),
    later("scatter-by-position", "scatter", "ScatterByPosition", "ScatterElements ScatterND"),
    later("update-by-scatter", "caches", "UpdateByScatter", "TensorScatter"),
    later("state-channels", "free_channels", "StateChannels", "Conv ConvTranspose"),
    later("fourier-by-matrix", "fourier", "FourierByMatrix", "DFT STFT"),
    later("unfold-columns", "unpooling", "UnfoldColumns", "Col2Im"),
    later("unpool-by-scatter", "unpooling", "UnpoolByScatter", "MaxUnpool"),
    later("range-by-size", "ranges", "RangeBySize", "Range"),
    later("take-from-shape", "shapes", "TakeFromShape", "Shape"),
    later("scalar-range", "shapes", "ScalarRange", "Range"),
    later("normalize-by-batch", "training", "NormalizeByBatch", "BatchNormalization"),
    later("drop-nothing", "training", "DropNothing", "Dropout"),
    later("determinant-by-minors", "determinant", "DeterminantByMinors", "Det"),
    WriteDefaults(),
    TakeMagnitudesFirst(),
    OrderChannels(),
    UncrossClipLimits(),
    PutTimeFirst(),
    CropPoolWindows(),
    later("sum-without-ones", "einsum", "SumWithoutOnes", "Einsum"),
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
    later("quantize-in-arithmetic", "quantize", "QuantizeInArithmetic", "DequantizeLinear QuantizeLinear"),
    later("multiply-in-float", "integer_products", "MultiplyInFloat", "ConvInteger MatMulInteger"),
    later("add-second-axis", "second_axis", "AddSecondAxis", "ArgMax ArgMin Hardmax MatMul Softmax"),
    later("sum-integer-products", "integer_products", "SumIntegerProducts", "MatMul"),
    ComputeWider(),
    later("pick-above-zero", "integer_signs", "PickAboveZero", "Relu"),
    later("subtract-remainders", "remainders", "SubtractRemainders", "Mod"),
    later("compare-for-sign", "integer_signs", "CompareForSign", "Sign"),
    later("multiply-for-power", "integer_signs", "MultiplyForPower", "Pow"),
    later("gather-infinities", "infinities", "GatherInfinities", "Equal Greater GreaterOrEqual Less LessOrEqual Where"),
    later("reduce-max-by-min", "infinities", "ReduceMaxByMin", "ReduceMax"),
    later("choose-at-run-time", "settled_masks", "ChooseAtRunTime", "Where"),
    CastInt8Constants(),
    CastInfiniteConstants(),
    LowerOpset(),
    # Passes too leave inputs out by empty names.
    SettleEmptyNames(),
)


def __getattr__(name: str) -> tuple[Pass, ...]:
    if name != "PASSES":
        raise AttributeError(name)
    # With all modules, for whoever looks at all passes.
    passes = tuple(map(own_pass, _IN_ORDER))
    globals()[name] = passes
    return passes


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
    passes = (pass_ for pass_ in _IN_ORDER if not pass_.on_request or (requantize and pass_.flag == "requantize"))
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
