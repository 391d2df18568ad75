"""Every rule's page: complete, in docs/rules/, and with examples that do as they say."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from support.registries import not_entered, stale_pages
from trtconv import rules
from trtconv.cli.formats.pages import sections
from trtconv.core.codes import CodeFamily
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.rules import CHECKS, RULES, Rule
from trtconv.rules.base import ModelView

PAGE = """a page is the docstring of the rule (docs/extending.md): a sentence, and below these headings
    What it checks:
    Why TensorRT cares:
    Versions:
    Before:             a model in ONNX's text format in which the rule finds something
    After:              one in which it finds nothing
    Fix:
    Source:"""
EXAMPLES = [(rule, text) for rule in CHECKS for title, text in sections(rule.page) if title.split()[0] == "Before"]

TARGETS = {
    "8.6": Target("tensorrt", (8, 6)),
    "9.0": Target("tensorrt", (9, 0)),
    "10.0": Target("tensorrt", (10, 0)),
    "10.15": Target("tensorrt", (10, 15)),
    "11.0": Target("tensorrt", (11, 0)),
    "rtx": Target("rtx", (1, 7)),
}
OF_SOME = {
    "TC001": "8.6",
    "TC005": "8.6 9.0 10.0 10.15 11.0",
    "TC104": "rtx",
    "TC110": "8.6",
    "TC305": "8.6 9.0 10.0",
    "TC314": "8.6",
    "TC613": "8.6",
    "TC616": "10.0 10.15 11.0",
    "TC617": "8.6",
}
"""Rules to the targets that they find something in the example for; all others do for every one."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_page_is_complete(rule: Rule) -> None:
    titles = [title.split()[0] for title, _ in sections(rule.page)]
    assert rule.summary.endswith("."), f"the first line of {rule.code} is no sentence; {PAGE}"
    for title in ("What", "Why", "Versions", "Fix", "Source", *(("Before", "After") if rule in CHECKS else ())):
        assert title in titles, f"{rule.code} has no {title!r}; {PAGE}"


@pytest.mark.parametrize("code", ["TC701", "TC901"])
def test_a_code_of_no_family_says_where_families_are_made(code: str) -> None:
    with pytest.raises(ValueError, match=r"CodeFamily of trtconv/core/codes\.py"):
        CodeFamily.of(code)


def test_every_rule_is_in_the_registry() -> None:
    """A rule that is written and not entered would never run."""
    missing = not_entered(rules, Rule, "code", CHECKS)
    assert not missing, f"enter into CHECKS of trtconv/rules/__init__.py: {', '.join(missing)}"


def test_docs_are_up_to_date() -> None:
    stale = stale_pages("rules")
    assert not stale, f"run `make docs`, which writes {', '.join(stale)}"


@pytest.mark.parametrize(("rule", "text"), EXAMPLES, ids=[rule.code for rule, _ in EXAMPLES])
def test_a_rule_warns_of_the_targets_that_it_is_about(rule: Rule, text: str) -> None:
    model = OnnxModel(onnx.parser.parse_model(text), Path("example.onnx"))
    warns = [
        name for name, target in TARGETS.items() if rule.code in {f.code for f in rule.check(ModelView(model), target)}
    ]
    told = OF_SOME.get(rule.code, " ".join(TARGETS)).split()
    assert warns == told, f"{rule.code} finds it for {warns}; if that is meant, say so in OF_SOME of this file"
