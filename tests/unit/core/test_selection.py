from __future__ import annotations

import pytest

from trtconv.core.errors import InputError
from trtconv.core.findings import Finding, Severity
from trtconv.core.selection import Selection

FINDINGS = tuple(Finding(code, name, "m", Severity.ERROR) for code, name in (("TC101", "a-b"), ("TC301", "c-d")))


@pytest.mark.parametrize(
    ("selection", "kept", "ignored"),
    [
        (Selection(), ["TC101", "TC301"], []),
        (Selection(("TC1",)), ["TC101"], []),
        (Selection(("c-d",)), ["TC301"], []),
        (Selection((), {"TC3": "why"}), ["TC101"], ["TC301"]),
        (Selection(("TC",), {"TC101": ""}), ["TC301"], ["TC101"]),
        (Selection(("TC4",)), [], []),
    ],
)
def test_divides(selection: Selection, kept: list[str], ignored: list[str]) -> None:
    found, left_out = selection.divide(FINDINGS)
    assert [f.code for f in found] == kept
    assert [each.finding.code for each in left_out] == ignored
    assert all(each.reason in ("", "why") for each in left_out)


@pytest.mark.parametrize("asked", ["", "101", "TC1001", "tc101", "T", "*"])
def test_refuses_what_is_no_code(asked: str) -> None:
    with pytest.raises(InputError, match="not a rule code"):
        Selection((asked,))


def test_refuses_what_means_no_rule() -> None:
    rules = {finding.code: finding.name for finding in FINDINGS}
    Selection(("TC1", "TC301", "a-b", "TC"), {"TC3": "", "c-d": ""}).require(rules)
    for asked in ("TC999", "TC31", "b-a"):
        with pytest.raises(InputError, match="no rule is selected"):
            Selection(("TC1", asked)).require(rules)
        with pytest.raises(InputError, match="no rule is ignored"):
            Selection((), {"TC1": "", asked: "of another version"}).require(rules)


def test_proposes_the_rule_that_may_be_meant() -> None:
    with pytest.raises(InputError) as refusal:
        Selection((), {"TC310": ""}).require({"TC101": "a-b", "TC301": "c-d"})
    assert "TC301" in refusal.value.hint
