"""What is left out since nobody reads it, and what stays."""

from __future__ import annotations

import onnx
import pytest

from support.onnx_models import wrap
from trtconv.core.target import Target
from trtconv.passes.unread import LeaveOutUnread

RTX = Target("rtx", (1, 7))
HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x, bool b) => (float[2,3] y{more}) '


def left(body: str, more: str = "") -> tuple[list[str], list[str]]:
    """Returns the operators that are left, of inner graphs too, and what was said."""
    model = wrap(onnx.parser.parse_model(HEAD.format(more=more) + body))
    done = LeaveOutUnread().run(model, RTX)
    again = LeaveOutUnread().run(model, RTX)
    assert not again.edits
    onnx.checker.check_model(model.proto)
    return [op for scope in model.scopes for op in scope.columns.ops], [edit.what for edit in done.edits]


def test_all_that_leads_to_it_alone_goes_with_it() -> None:
    ops, said = left("{ a = Abs (x)  n = Neg (a)  p = NonZero (n)  t = Transpose (p)  y = Relu (a) }")
    assert ops == ["Abs", "Relu"]
    assert said == ["left out with all that nobody reads, nodes: 3"]


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("{ p = NonZero (x)  y = Relu (x) }", ", int64[2,k] p"),
        ("{ p = NonZero (x)  q = Transpose (p)  s = Size (q)  f = Cast <to = 1> (s)  y = Mul (x, f) }", ""),
        ("{ p = NonZero (x)  y = If (b) <then_branch = t () => (float[2,3] u) { f = Cast <to = 1> (p)"
         "  m = ReduceSum <keepdims = 0> (f)  u = Mul (x, m) },"
         " else_branch = e () => (float[2,3] v) { v = Abs (x) }> }", ""),
        # Every parser takes these, and its builder leaves them out.
        ("{ a = Abs (x)  y = Relu (x) }", ""),
    ],
)  # fmt: skip
def test_what_is_read_stays(body: str, more: str) -> None:
    before = onnx.parser.parse_model(HEAD.format(more=more) + body)
    ops, said = left(body, more)
    assert (ops, said) == ([op for scope in wrap(before).scopes for op in scope.columns.ops], [])


def test_inner_graphs_are_looked_at_too() -> None:
    ops, said = left(
        "{ n = Neg (x)  y = If (b) <then_branch = t () => (float[2,3] u) { p = NonZero (n)  u = Identity (x) },"
        " else_branch = e () => (float[2,3] v) { v = Abs (x) }> }"
    )
    # What the branch alone read of the graph around it goes too.
    assert (sorted(ops), len(said)) == (["Abs", "Identity", "If"], 1)
