"""Poison in every place of a model, a configuration and a command line: no format of any command shows it raw."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from harness import POISON, Worker, judge
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or importlib.util.find_spec("tensorrt_rtx") is None,
    reason="needs Linux and tensorrt-rtx",
)

POISONS = {
    "line": f"a\n::error file=a::{POISON}\n{POISON} ok",
    "separators": f"a\u2028{POISON}\u0085{POISON}\x0b{POISON}\x1c{POISON}\r{POISON}",
    "command": f"::error file=a,line=1::{POISON}",
    "controls": "a\x1b[31m\x07\x08\x9b31m\x7f\u202e\u200b\ufeff",
    "azure": f"##vso[task.setvariable]{POISON} ##[error]{POISON}",
    "long": "A" * 50_000,
}
FORMATS = ("text", "json", "sarif", "junit", "github")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as process:
        yield process


def poisoned(poison: str) -> onnx.ModelProto:
    """A model that passes, rules and the parser have much to say about, each name of it poison."""

    def named(what: str) -> str:
        return f"{poison}{what}" if poison.startswith(("::", "##")) else f"{what}{poison}"

    x = helper.make_tensor_value_info(named("x"), TensorProto.FLOAT, [1, 2, named("h"), named("w")])
    y = helper.make_tensor_value_info(named("y"), TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(np.ones((2, 2, 3, 3), np.float32), named("k"))]
    up = helper.make_node("ConvTranspose", [named("x"), named("k")], [named("a")], named("up"), doc_string=poison)
    up.attribute.extend([helper.make_attribute("strides", [2, 2]), helper.make_attribute("output_padding", [1, 1])])
    up.attribute.append(helper.make_attribute("auto_pad", "SAME_UPPER"))
    up.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=f'File "{poison}.py", line 3, in f')
    odd = helper.make_node(named("op"), [named("a")], [named("b")], named("odd"), domain=named("domain"))
    cut = helper.make_node("Concat", [named("b"), named("x")], [named("c")], named("cat"), axis=1)
    wide = helper.make_node(
        "ConvTranspose", [named("c"), named("k")], [named("y")], named("wide"), dilations=[2, 2], strides=[2, 2]
    )
    graph = helper.make_graph([up, odd, cut, wide], named("g"), [x], [y], weights, doc_string=poison)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(named("domain"), 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=poison, doc_string=poison)
    model.metadata_props.add(key=poison, value=poison)
    return model


def parsable(poison: str) -> onnx.ModelProto:
    """The same without what no parser knows, so that engines are built."""
    model = poisoned(poison)
    nodes = [node for node in model.graph.node if node.op_type == "ConvTranspose"][:1]
    nodes[0].output[0] = model.graph.output[0].name
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def lines(name: str, dim: str) -> Iterator[tuple[str, ...]]:
    bounds = ("--dim", f"{dim}=8")
    for form in FORMATS:
        yield ("check", name, "--target", "rtx", "--format", form)
        yield ("check", name, *bounds, "--target", "tensorrt-8.6", "--format", form, "--verbose")
    for form in ("text", "json"):
        yield ("sizes", name, *bounds, "--format", form)
        yield ("explain", name, "--format", form)
        yield ("explain", name, "0", "--format", form)
        yield ("explain", name, dim, "--format", form)
        yield ("inspect", name, "--format", form)
        yield ("build", name, *bounds, "--target", "rtx", "-o", "e.engine", "--format", form, "--force")
        yield ("check", name, "--select", dim, "--format", form)
        yield ("check", dim, "--format", form)
    yield ("rewrite", name, "-o", "r.onnx", "--target", "rtx")
    yield (dim,)
    yield ("check", f"--{dim}", name)
    yield ("build", name, "-o", f"{dim[:100]}/e.engine")


@pytest.mark.parametrize("make", [poisoned, parsable], ids=lambda make: make.__name__)
@pytest.mark.parametrize("kind", POISONS)
def test_no_format_shows_poison(kind: str, make: object, tmp_path: Path, worker: Worker) -> None:
    assert callable(make)
    poison = POISONS[kind]
    (tmp_path / "m.onnx").write_bytes(make(poison).SerializeToString())
    faults = []
    for command in lines("m.onnx", poison.replace("\x00", "")):
        answer = worker.answer(command, tmp_path)
        assert answer is not None
        faults += judge(kind, command, answer)
    assert not faults, "\n".join(map(str, faults[:6]))


@pytest.mark.parametrize("kind", [kind for kind in POISONS if kind != "long"])
def test_no_format_shows_the_poison_of_a_file_name(kind: str, tmp_path: Path, worker: Worker) -> None:
    name = f"{POISONS[kind].replace('/', '_')[:80]}.onnx"
    (tmp_path / name).write_bytes(parsable("").SerializeToString())
    faults = []
    for command in lines(name, "h"):
        answer = worker.answer(command, tmp_path)
        assert answer is not None
        faults += judge(kind, command, answer)
    assert not faults, "\n".join(map(str, faults[:6]))


@pytest.mark.parametrize("kind", POISONS)
def test_no_format_shows_the_poison_of_a_configuration(kind: str, tmp_path: Path, worker: Worker) -> None:
    import json

    poison = json.dumps(POISONS[kind]).replace("\\ud", "\\\\ud")
    (tmp_path / "m.onnx").write_bytes(parsable("").SerializeToString())
    (tmp_path / ".git").mkdir()
    faults = []
    for text in (
        f"{poison} = 1",
        f"models = [{poison}]",
        f"[[model]]\npath = {poison}",
        f"targets = [{poison}]",
        f"dims = {{ {poison} = {poison} }}",
    ):
        (tmp_path / "trtconv.toml").write_text(text, encoding="utf-8")
        for form in FORMATS:
            answer = worker.answer(("check", "--format", form), tmp_path)
            assert answer is not None
            faults += judge(text, ("check", "--format", form), answer)
    assert not faults, "\n".join(map(str, faults[:6]))
