"""Passes whose modules are imported late: what is said of each without its module is what the module says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.onnx_models import RTX, parse, wrap
from trtconv import passes
from trtconv.passes import PASSES, passes_for, run_passes
from trtconv.passes.later import later, own_pass
from trtconv.passes.spelling.base import Spelling

LATE = [each for each in passes_for("as-is") if own_pass(each) is not each]


def test_many_are_late() -> None:
    assert len(LATE) > 40
    assert [own_pass(each).name for each in passes_for("as-is")] == [
        each.name for each in PASSES if not each.on_request
    ]


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.name)
def test_what_is_known_of_a_late_pass(late: passes.Pass) -> None:
    own = own_pass(late)
    assert isinstance(own, Spelling)
    assert (late.name, late.ops, late.on_request) == (own.name, own.ops, own.on_request)  # type: ignore[attr-defined]
    assert (late.fixes, late.safety, late.frees_sizes, late.page) == (own.fixes, own.safety, own.frees_sizes, own.page)


def test_a_model_loads_the_passes_of_its_operators() -> None:
    code = """
import sys
from pathlib import Path
import onnx
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import passes_for, run_passes
text = "<ir_version: 8, opset_import: ['': 17]> g (float[n,3] x, int64[n,3] i) => (float[n,3] y) { y = %s }"
model = OnnxModel(onnx.parser.parse_model(text.replace("'", '"')), Path("m.onnx"))
run_passes(model, passes_for("as-is"), Target("rtx", (1, 7)))
names = ("bags", "cumulative", "fused", "masked", "samples")
print(*(name for name in names if f"trtconv.passes.spelling.{name}" in sys.modules))
"""

    def names(node: str) -> str:
        done = subprocess.run([sys.executable, "-c", code % node], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert names("Abs (x)") == ""
    assert names("ScatterND (x, i, x)") == "masked"


def test_a_late_pass_does_as_its_own() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (int32[4] x) => (int32[4] y) { y = Relu (x) }'
    late = later("pick-above-zero", "integer_signs", "PickAboveZero", "Relu")
    one, two = wrap(parse(text)), wrap(parse(text))
    assert run_passes(one, [late], RTX) == run_passes(two, [own_pass(late)], RTX)
    assert one.serialize() == two.serialize()
    assert run_passes(one, [late], RTX).edits == ()


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError):
        passes.OTHERS  # noqa: B018
