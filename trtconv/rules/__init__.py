"""The checks of a model, in the order of their codes, and the pages of every code that trtconv gives out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trtconv.core.codes import CodeFamily
from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.rules.advisories import KnownWrongVersion
from trtconv.rules.asymmetric_zero_point import AsymmetricZeroPoint
from trtconv.rules.attention_valid_lengths import AttentionValidLengths
from trtconv.rules.attention_window import AttentionWindow
from trtconv.rules.auto_pad_with_output_padding import AutoPadWithOutputPadding
from trtconv.rules.axis_not_written import AxisNotWritten
from trtconv.rules.baked_sizes import BakedPixelShuffle, BakedReshape, BakedResize
from trtconv.rules.base import ModelView, Page, Rule
from trtconv.rules.bfloat16_deconv import Bfloat16Deconv
from trtconv.rules.bias_missed_by_fill import BiasMissedByFill
from trtconv.rules.branch_ranks import BranchRanks
from trtconv.rules.byte_input_moved import ByteInputMoved
from trtconv.rules.clip_limits_crossed import ClipLimitsCrossed
from trtconv.rules.data_dependent_shape import DataDependentShape
from trtconv.rules.deconv_not_int8 import DeconvNotInt8
from trtconv.rules.foreign_operator import ForeignOperator
from trtconv.rules.global_lp_pool import GlobalLpPoolOddPower
from trtconv.rules.input_channel_scales import InputChannelScales
from trtconv.rules.input_without_shape import InputWithoutShape
from trtconv.rules.integer_bias import IntegerBias
from trtconv.rules.integer_operator import IntegerOperator
from trtconv.rules.kernel_shape_missing import KernelShapeMissing
from trtconv.rules.malformed_deconv import MalformedDeconv
from trtconv.rules.negative_pads import NegativePads
from trtconv.rules.newer_meaning import NewerMeaning
from trtconv.rules.nms_limit_missing import NmsLimitMissing
from trtconv.rules.opset_too_new import OpsetTooNew
from trtconv.rules.output_is_input import OutputIsInput
from trtconv.rules.output_padding_exceeds_pads import OutputPaddingExceedsPads
from trtconv.rules.output_padding_too_large import OutputPaddingTooLarge
from trtconv.rules.output_shape_misread import OutputShapeMisread
from trtconv.rules.output_type import OutputType
from trtconv.rules.pool_beyond_input import PoolBeyondInput
from trtconv.rules.quantized_type import QuantizedType
from trtconv.rules.recurrent_layout import RecurrentLayout
from trtconv.rules.reduction_axes_input import ReductionAxesInput
from trtconv.rules.reduction_noop import ReductionNoop
from trtconv.rules.resize_for_nn import ResizeForNearest
from trtconv.rules.resize_fractional_length import ResizeFractionalLength
from trtconv.rules.resize_scales_at_run_time import ResizeScalesAtRunTime
from trtconv.rules.scale_length import ScaleLength
from trtconv.rules.scale_not_constant import ScaleNotConstant
from trtconv.rules.scale_value import ScaleValue
from trtconv.rules.scatter_reduction import ScatterReduction
from trtconv.rules.shared_skip_scale import SharedSkipScale
from trtconv.rules.sizes import SIZE_CHECKS
from trtconv.rules.space_to_depth_mode import SpaceToDepthMode
from trtconv.rules.squeeze_free_sizes import SqueezeFreeSizes
from trtconv.rules.strided_dilated_deconv import StridedDilatedDeconv
from trtconv.rules.trilu_without_upper import TriluWithoutUpper
from trtconv.rules.uint8_around_128 import Uint8Around128
from trtconv.rules.unknown_attribute import UnknownAttribute
from trtconv.rules.verdicts import (
    BuilderRefused,
    CastInaccurate,
    CastNotFinite,
    CastNotVerified,
    GpuLimit,
    GpuMemoryShort,
    NetworkDiffers,
    OptionMissing,
    OutputMisdeclared,
    OverBudget,
    ParsedOtherwise,
    ParserRefused,
    PluginOffered,
    ProfileInconsistent,
    ProofIncomplete,
    ShapeTensorInput,
    TacticOther,
    TimingCacheUnused,
    UpgradeRegression,
)
from trtconv.rules.zero_point_at_run_time import ZeroPointAtRunTime
from trtconv.rules.zero_point_missing import ZeroPointMissing
from trtconv.rules.zero_point_shape import ZeroPointShape
from trtconv.rules.zero_point_type import ZeroPointType

if TYPE_CHECKING:
    from trtconv.shapes.view import SizesView

CHECKS: tuple[Rule, ...] = (
    OpsetTooNew(),
    InputWithoutShape(),
    OutputIsInput(),
    UnknownAttribute(),
    ForeignOperator(),
    OutputType(),
    OutputPaddingExceedsPads(),
    AutoPadWithOutputPadding(),
    OutputShapeMisread(),
    StridedDilatedDeconv(),
    OutputPaddingTooLarge(),
    NegativePads(),
    BiasMissedByFill(),
    MalformedDeconv(),
    Bfloat16Deconv(),
    KernelShapeMissing(),
    DataDependentShape(),
    BakedPixelShuffle(),
    BakedResize(),
    BakedReshape(),
    InputChannelScales(),
    ScaleLength(),
    ScaleValue(),
    ScaleNotConstant(),
    AxisNotWritten(),
    ZeroPointMissing(),
    Uint8Around128(),
    AsymmetricZeroPoint(),
    IntegerBias(),
    IntegerOperator(),
    DeconvNotInt8(),
    ZeroPointShape(),
    ZeroPointType(),
    SharedSkipScale(),
    QuantizedType(),
    TriluWithoutUpper(),
    AttentionWindow(),
    AttentionValidLengths(),
    GlobalLpPoolOddPower(),
    ReductionNoop(),
    SpaceToDepthMode(),
    ResizeForNearest(),
    ResizeScalesAtRunTime(),
    NmsLimitMissing(),
    ClipLimitsCrossed(),
    RecurrentLayout(),
    PoolBeyondInput(),
    ReductionAxesInput(),
    ByteInputMoved(),
    ZeroPointAtRunTime(),
    KnownWrongVersion(),
    NewerMeaning(),
    ResizeFractionalLength(),
    BranchRanks(),
    SqueezeFreeSizes(),
    ScatterReduction(),
)

_VERDICTS = (
    ShapeTensorInput(),
    GpuMemoryShort(),
    ParserRefused(),
    NetworkDiffers(),
    BuilderRefused(),
    ProfileInconsistent(),
    OptionMissing(),
    GpuLimit(),
    TacticOther(),
    PluginOffered(),
    TimingCacheUnused(),
    OverBudget(),
    OutputMisdeclared(),
    ProofIncomplete(),
    UpgradeRegression(),
    ParsedOtherwise(),
    CastNotVerified(),
    CastNotFinite(),
    CastInaccurate(),
)
RULES: tuple[Page, ...] = tuple(sorted((*CHECKS, *SIZE_CHECKS, *_VERDICTS), key=lambda rule: rule.code))


STANDING = frozenset(rule.code for rule in CHECKS if CodeFamily.of(rule.code) is CodeFamily.QUANTIZATION)
"""Codes that `check` keeps at full severity although `build` mends them: quantisation spelled so is misread or refused
by every other tool, and some of the mends change numbers, so it belongs mended in the file itself."""


def run_rules(model: OnnxModel, target: Target, rules: Iterable[Rule] = CHECKS) -> tuple[Finding, ...]:
    """Returns everything that the rules find, in the order of their codes."""
    view = ModelView(model)
    return tuple(finding for rule in rules for finding in rule.check(view, target))


def run_size_rules(view: SizesView) -> tuple[Finding, ...]:
    """Returns everything that is wrong with the profiles of a model."""
    return tuple(finding for rule in SIZE_CHECKS for finding in rule.check(view))


__all__ = ["CHECKS", "RULES", "STANDING", "Page", "Rule", "run_rules"]
