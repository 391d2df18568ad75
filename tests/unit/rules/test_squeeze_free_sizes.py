"""A Squeeze without axes of an axis of free size."""

import pytest

from support.sizes import parse
from trtconv.core.target import Target
from trtconv.rules import CHECKS, run_rules

RTX = Target("rtx", (1, 7))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(float[n,1] x) => (y) { y = Squeeze (x) }", "axis 0 too"),
        ("(float[n,1,m] x) => (y) { y = Squeeze (x) }", "axis 0 and 2 too"),
        ("(float[2,1] x) => (y) { y = Squeeze (x) }", None),
        ("(float[n,1] x) => (y) <int64[1] a = {1}> { y = Squeeze (x, a) }", None),
    ],
)
def test_axes_of_free_size_are_named(text: str, said: str | None) -> None:
    messages = [each.message for each in run_rules(parse(f"g {text}"), RTX, CHECKS) if each.code == "TC620"]
    assert len(messages) == (said is not None)
    assert said is None or said in messages[0]


def test_axes_may_be_an_attribute() -> None:
    header = '<ir_version: 7, opset_import: ["": 11]>'
    model = parse("g (float[n,1] x) => (y) { y = Squeeze <axes = [1]> (x) }", header)
    assert not [each for each in run_rules(model, RTX, CHECKS) if each.code == "TC620"]
