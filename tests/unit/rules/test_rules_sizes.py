"""The examples on the pages of the size rules do what they say."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import onnx.parser
import pytest

from trtconv.core.bounds import make_profile
from trtconv.core.dim_flags import parse_dims
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, run_passes
from trtconv.rules import CHECKS, run_rules
from trtconv.rules.sizes import SIZE_CHECKS, ProfileRule
from trtconv.shapes.view import SizesView

RTX = Target("rtx", (1, 7))
BAKED = [rule for rule in CHECKS if rule.code.startswith("TC2")]


def _section(page: str, title: str) -> str:
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", page + "\n", re.MULTILINE)
    assert found, f"no section {title}"
    return textwrap.dedent(found[1])


def _model(text: str) -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))


@pytest.mark.parametrize("rule", SIZE_CHECKS, ids=lambda rule: rule.code)
@pytest.mark.parametrize("title", ["Before", "After"])
def test_profile_rules(rule: ProfileRule, title: str) -> None:
    model = _model(_section(rule.page, title))
    dims = [item for item in _section(rule.page, "Dims").split() if f"{item.partition('=')[0]}" in str(model.inputs)]
    view = SizesView(model, [make_profile(model.inputs, parse_dims(dims))])
    found = {finding.code for each in SIZE_CHECKS for finding in each.check(view)}
    assert found == ({rule.code} if title == "Before" else set())


@pytest.mark.parametrize("rule", BAKED, ids=lambda rule: rule.code)
def test_model_rules(rule: object) -> None:
    page, code = rule.page, rule.code  # type: ignore[attr-defined]
    before = [f.code for f in run_rules(_model(_section(page, "Before")), RTX)]
    after = [f.code for f in run_rules(_model(_section(page, "After")), RTX)]
    assert code in before
    assert code not in after


@pytest.mark.parametrize("code", ["TC211", "TC212", "TC213"])
def test_passes_mend_what_the_rules_find(code: str) -> None:
    rule = next(rule for rule in CHECKS if rule.code == code)
    model = _model(_section(rule.page, "Before"))
    done = run_passes(model, PASSES, RTX)
    assert {edit.pass_name for edit in done.edits} == {each.name for each in PASSES if code in each.fixes}
    assert run_rules(model, RTX) == ()
