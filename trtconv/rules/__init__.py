"""The checks of a model, in the order of their codes, and the pages of every code that trtconv gives out."""

from collections.abc import Iterable

from trtconv.findings import Finding
from trtconv.model import OnnxModel
from trtconv.plan import Target
from trtconv.rules.auto_pad_with_output_padding import AutoPadWithOutputPadding
from trtconv.rules.baked_sizes import BakedPixelShuffle, BakedReshape, BakedResize
from trtconv.rules.base import ModelView, Page, Rule
from trtconv.rules.bfloat16_deconv import Bfloat16Deconv
from trtconv.rules.bias_missed_by_fill import BiasMissedByFill
from trtconv.rules.input_without_shape import InputWithoutShape
from trtconv.rules.malformed_deconv import MalformedDeconv
from trtconv.rules.negative_pads import NegativePads
from trtconv.rules.opset_too_new import OpsetTooNew
from trtconv.rules.output_padding_exceeds_pads import OutputPaddingExceedsPads
from trtconv.rules.output_padding_too_large import OutputPaddingTooLarge
from trtconv.rules.output_shape_misread import OutputShapeMisread
from trtconv.rules.sizes import SIZE_CHECKS, DataDependentShape
from trtconv.rules.strided_dilated_deconv import StridedDilatedDeconv
from trtconv.rules.verdicts import (
    BuilderRefused,
    NetworkDiffers,
    ParserRefused,
    ProfileInconsistent,
    ShapeTensorInput,
)

CHECKS: tuple[Rule, ...] = (
    OpsetTooNew(),
    InputWithoutShape(),
    OutputPaddingExceedsPads(),
    AutoPadWithOutputPadding(),
    OutputShapeMisread(),
    StridedDilatedDeconv(),
    OutputPaddingTooLarge(),
    NegativePads(),
    BiasMissedByFill(),
    MalformedDeconv(),
    Bfloat16Deconv(),
    DataDependentShape(),
    BakedPixelShuffle(),
    BakedResize(),
    BakedReshape(),
)

RULES: tuple[Page, ...] = (
    *CHECKS,
    *SIZE_CHECKS,
    ShapeTensorInput(),
    ParserRefused(),
    NetworkDiffers(),
    BuilderRefused(),
    ProfileInconsistent(),
)


def run_rules(model: OnnxModel, target: Target, rules: Iterable[Rule] = CHECKS) -> tuple[Finding, ...]:
    """Returns everything that the rules find, in the order of their codes."""
    view = ModelView(model)
    return tuple(finding for rule in rules for finding in rule.check(view, target))


__all__ = ["CHECKS", "RULES", "Page", "Rule", "run_rules"]
