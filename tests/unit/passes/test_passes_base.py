"""The runner: what it demands of a pass, and that a broken pass is found out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from support.onnx_models import RTX, parse, wrap
from support.paths import ROOT
from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, BrokenContract, Pass, PassResult, run_passes, select

TEXT = """<ir_version: 8, opset_import: ["": 17], metadata_props: ["k": "v"]>
    g (float[1,1,8,8] x) => (float[1,1,8,8] y) <float[1] w = {1}> { [add] h = Add (x, w) [last] y = Relu (h) }"""


class Scripted(Pass):
    """Does as it is told."""

    name = "scripted"
    fixes = ()

    def __init__(self, act: Callable[[OnnxModel], object], edits: int = 1) -> None:
        self.act = act
        self.result = PassResult(tuple(Edit(self.name, "last", "done") for _ in range(edits)))

    def run(self, model: Any, target: Any) -> PassResult:
        self.act(model)
        model.touch()
        return self.result if self.result.edits else PassResult(skipped=(Skip(self.name, "last", "refused"),))


def once(change: Callable[[OnnxModel], object]) -> Scripted:
    """A pass that changes the model in its first run, and reports no edit after that."""
    made = Scripted(lambda model: None)
    results = iter([made.result])

    def act(model: OnnxModel) -> None:
        made.result = next(results, PassResult())
        if made.result.edits:
            change(model)

    made.act = act
    return made


def set_op(op: str) -> Callable[[OnnxModel], None]:
    def change(model: OnnxModel) -> None:
        model.proto.graph.node[-1].op_type = op

    return change


def rename(model: OnnxModel) -> None:
    model.proto.graph.node[-1].output[0] = model.proto.graph.output[0].name = "z"


def test_a_sound_pass_passes() -> None:
    model = wrap(parse(TEXT))
    assert len(run_passes(model, [once(set_op("Neg"))], RTX).edits) == 1
    assert model.proto.graph.node[-1].op_type == "Neg"


def test_a_pass_that_refuses_reports_why() -> None:
    assert run_passes(wrap(parse(TEXT)), [Scripted(lambda model: None, 0)], RTX).skipped[0].reason == "refused"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Scripted(set_op("Neg"), edits=0), "reports no edit"),
        (Scripted(lambda model: None, edits=2), "reports edits and changed nothing"),
        (once(rename), "inputs, outputs or metadata"),
        (
            once(lambda m: (set_op("Neg")(m), m.proto.graph.input[0].type.tensor_type.shape.dim.add())),
            "inputs, outputs",
        ),
        (once(lambda m: (set_op("Neg")(m), m.proto.graph.output.add(name="h"))), "inputs, outputs or metadata"),
        (once(lambda m: (set_op("Neg")(m), m.proto.metadata_props.pop())), "inputs, outputs or metadata"),
        (once(set_op("NoSuchOperator")), "invalid model"),
        (once(lambda m: m.proto.graph.node.pop(0)), "invalid model: .*'h'.*Relu.*: scripted"),
        (
            Scripted(lambda m: set_op("Neg" if m.proto.graph.node[-1].op_type == "Relu" else "Relu")(m)),
            "not idempotent",
        ),
    ],
    ids=["silent", "idle", "output", "input", "extra", "metadata", "operator", "dangling", "restless"],
)
def test_a_broken_pass_is_found_out(bad: Pass, words: str) -> None:
    with pytest.raises(BrokenContract, match=words):
        run_passes(wrap(parse(TEXT)), [bad], RTX)


def test_a_model_that_was_invalid_before_is_not_held_against_the_passes() -> None:
    proto = parse(TEXT)
    proto.graph.node[0].op_type = "NoSuchOperator"
    assert run_passes(wrap(proto), [once(set_op("Neg"))], RTX).edits


def test_passes_are_chosen_by_name_in_their_own_order() -> None:
    names = [each.name for each in PASSES]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"name of several passes: {twice}; take one that docs/passes/README.md has not"
    assert [p.name for p in select(PASSES, ["dilate-deconv-kernel", "make-deconv-explicit"], [])] == [
        "make-deconv-explicit",
        "dilate-deconv-kernel",
    ]
    assert "dilate-deconv-kernel" not in {p.name for p in select(PASSES, [], ["dilate-deconv-kernel"])}
    with pytest.raises(InputError, match="no pass 'nope'"):
        select(PASSES, ["nope"], [])


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
def test_every_pass_says_what_it_does(each: Pass) -> None:
    assert each.summary.endswith(".")
    assert each.safety in ("exact", "within tolerance") or each.on_request
    assert all(code.startswith("TC") for code in each.fixes)


def test_a_broken_pass_is_found_out_where_python_skips_assertions() -> None:
    code = """
from pathlib import Path
import onnx.parser
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import BrokenContract, Pass, PassResult, run_passes

class Silent(Pass):
    name = "silent"
    def run(self, model, target):
        model.proto.graph.node[0].op_type = "Neg"
        model.touch()
        return PassResult()

text = '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Relu (x) }'
try:
    run_passes(OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")), [Silent()], Target("rtx", (1, 7)))
except BrokenContract as broken:
    print(broken)
"""
    ended = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "silent" in ended.stdout
