"""Failing models made small, with the real parser and builder of TensorRT-RTX."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from trtconv.cli.group import cli
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.process import Cause
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.reduce import ReduceRequest
from trtconv.core.target import Target
from trtconv.graph.extract import Cutter
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.reduce import reduce

RTX = Target("rtx")
SIZES = {"h": Range(8, 16, 32)}


def value(name: str, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def chain(length: int, bad_at: int, op: str = "NonZero") -> onnx.ModelProto:
    """Convolutions and activations in a row, with a skip, and one node in the middle that TensorRT refuses."""
    nodes, weights, tensor = [], [], "x"
    for step in range(length):
        kernel = np.full((2, 2, 3, 3), 0.1, np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{step}"))
        nodes.append(helper.make_node("Conv", [tensor, f"w{step}"], [f"c{step}"], f"conv{step}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{step}"], [f"r{step}"], f"relu{step}"))
        tensor = f"r{step}"
        if step == bad_at:
            nodes.append(helper.make_node(op, [tensor], [f"n{step}"], "bad"))
    outputs = [value(tensor, None), onnx.ValueInfoProto(name=f"n{bad_at}")]
    graph = helper.make_graph(nodes, "g", [value("x", [1, 2, "h", "w"])], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(folder: Path, proto: onnx.ModelProto, external: bool = False) -> Path:
    path = folder / "whole.onnx"
    onnx.save_model(proto, path, save_as_external_data=external, location="whole.data", size_threshold=0)
    return path


def run(command: str) -> int:
    return CliRunner().invoke(cli, shlex.split(command)[1:]).exit_code


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("dims", [{}, {**SIZES, "w": Range(16, 16, 16)}], ids=["fixed", "dynamic"])
def test_the_refused_node_is_all_that_is_left(tmp_path: Path, external: bool, dims: dict[str, Range]) -> None:
    proto = chain(12, 7)
    if not dims:
        proto.graph.input[0].CopyFrom(value("x", [1, 2, 8, 8]))
    path = saved(tmp_path, proto, external)
    before = sorted(tmp_path.iterdir())
    report = reduce(ReduceRequest(path, tmp_path / "part.onnx", dims, target=RTX))
    assert (report.nodes_before, report.nodes, report.minimal, report.exit_code) == (25, 1, True, 0)
    assert (report.failure.code, report.failure.op, report.failure.node) == ("TC401", "NonZero", "bad")
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "part.onnx"])
    part = OnnxModel.load(tmp_path / "part.onnx")
    assert [node.name for node in part.proto.graph.node] == ["bad"]
    assert part.inputs[0].dims == ((1, 2, "h", 16) if dims else (1, 2, 8, 8))
    assert run(report.command) == 1
    assert not (tmp_path / "part.engine").exists()


def test_a_failure_that_takes_several_nodes_keeps_them(tmp_path: Path) -> None:
    """Sizes that do not fit where two branches meet again: the node alone, given what it gets, fails too."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,h,8] x) => (float[1,2,p,q] y)
        <float[4] s = {1, 1, 2, 1}> {
          a = Relu (x) [pool] b = MaxPool <kernel_shape = [2,1], strides = [2,1]> (a) [up] c = Resize (b, , s)
          d = Neg (c) e = Sigmoid (a) [join] f = Concat <axis = 1> (d, e) y = Abs (f) }"""
    path = tmp_path / "whole.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    report = reduce(ReduceRequest(path, tmp_path / "part.onnx", {"h": Range(8, 9, 16)}, target=RTX))
    assert report.failure.code in ("TC201", "TC404")
    assert report.nodes < report.nodes_before == 7
    assert report.minimal
    assert run(report.command) == 1


def test_a_misread_node_is_found_without_the_rewrites(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node(
            "ConvTranspose", ["a", "w"], ["b"], "up", auto_pad="SAME_UPPER", strides=[2, 2], output_padding=[1, 1]
        ),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", [1, 1, 8, 8])], [value("y", None)], [weight])
    path = saved(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    report = reduce(ReduceRequest(path, tmp_path / "part.onnx", target=RTX, rewrite=False))
    assert (report.failure.op, report.nodes) == ("ConvTranspose", 1)
    assert "--no-rewrite" in report.command
    assert run(report.command) == 1
    with pytest.raises(InputError, match="does not fail"):
        reduce(ReduceRequest(path, tmp_path / "other.onnx", target=RTX))
    assert not (tmp_path / "other.onnx").exists()


def test_tensors_without_a_known_shape_keep_their_type(tmp_path: Path) -> None:
    """The parser refuses outputs without a type, so that every part with one would fail, and for another reason."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x, int64[r] s) => (float[p,q,t] y) {
        a = Relu (x)
        b = Reshape (a, s)
        c = Neg (b)
        y = Abs (c) }"""
    model = OnnxModel(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    part = Cutter(model, [make_profile(model.inputs, {"r": Range(3, 3, 3)})]).cut([0, 1])
    assert part is not None
    (made,) = part.graph.output
    assert (made.name, made.type.tensor_type.elem_type) == ("b", TensorProto.FLOAT)
    assert not made.type.tensor_type.HasField("shape")


def test_captured_tensors_become_inputs(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,2] x, bool c) => (float[2,2] y) {
        a = Relu (x)
        [if] b = If (c) <then_branch = t () => (float[2,2] p) { p = NonZeroish (a) },
                         else_branch = e () => (float[2,2] q) { q = Neg (a) }>
        y = Abs (b) }"""
    model = OnnxModel(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    part = Cutter(model, [make_profile(model.inputs, {})]).cut([1])
    assert part is not None
    assert [v.name for v in part.graph.input] == ["a", "c"]
    assert [v.name for v in part.graph.output] == ["b"]


def test_constants_go_along_and_the_same_sizes_have_one_name(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,4,h,w] x) => (float[1,4,p,q] y) {
        a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
        s = Constant <value = float[4] {1, 1, 2, 2}> ()
        b = Resize (a, , s)
        y = Add (b, x) }"""
    model = OnnxModel(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    cutter = Cutter(model, [make_profile(model.inputs, {"h": Range(8, 16, 32), "w": Range(4, 4, 8)})])
    resize, add = cutter.cut([2]), cutter.cut([3])
    assert resize is not None
    assert add is not None
    assert [tensor.name for tensor in resize.graph.initializer] == ["s"]
    (taken,) = OnnxModel(resize, model.path).inputs
    (bounds,) = cutter.bounds(resize)
    assert [bounds[str(dim)] for dim in taken.dims[2:]] == [Range(4, 8, 16), Range(2, 2, 4)]
    assert {spec.name: spec.dims for spec in OnnxModel(add, model.path).inputs} == {
        "b": (1, 4, "h", "w"),
        "x": (1, 4, "h", "w"),
    }


class Scripted:
    """A worker that ends as it is told where a node is in the model."""

    def __init__(self, cause: Cause, node: str) -> None:
        self.cause, self.node, self.limits = cause, node, set[float]()

    def run(self, request: BuildRequest, limit_s: float) -> FailedRun | BuildReport:
        self.limits.add(limit_s)
        if any(node.name == self.node for node in onnx.load(request.model).graph.node):
            return FailedRun(str(request.model), "rtx", "BuildFailed", "it ended", "", 1, lost=self.cause)
        return BuildReport({}, None, {})  # type: ignore[arg-type]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("cause", "code"), [("crash", "crash"), ("time", "timeout"), ("memory", "memory")])
def test_crashes_and_hangs_are_reduced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: Cause, code: str
) -> None:
    worker = Scripted(cause, "relu3")
    monkeypatch.setattr("trtconv.pipeline.trials.Worker", lambda: worker)
    path = saved(tmp_path, chain(8, 5, "Abs"))
    dims = {**SIZES, "w": Range(16, 16, 16)}
    report = reduce(ReduceRequest(path, tmp_path / "part.onnx", dims, target=RTX, timeout=7))
    assert (report.failure.code, report.nodes) == (code, 1)
    assert [node.name for node in onnx.load(tmp_path / "part.onnx").graph.node] == ["relu3"]
    assert worker.limits == {7}
    few = reduce(ReduceRequest(path, tmp_path / "few.onnx", dims, target=RTX, trials=2))
    assert (few.minimal, few.exit_code, few.trials) == (False, 1, 2)


def test_what_cannot_be_made_smaller_is_written_whole(tmp_path: Path) -> None:
    """The input has no shape, so it could not be an input of a part."""
    proto = chain(0, 0)
    proto.graph.node.append(helper.make_node("NonZero", ["x"], ["y"], "bad"))
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    del proto.graph.output[:]
    proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    path = saved(tmp_path, proto)
    report = reduce(ReduceRequest(path, tmp_path / "part.onnx", target=RTX))
    assert (report.nodes_before, report.nodes, report.minimal) == (1, 1, True)
    assert onnx.load(tmp_path / "part.onnx").graph == proto.graph
    assert run(report.command) == 1


def test_what_cannot_be_tried_is_said(tmp_path: Path) -> None:
    path = saved(tmp_path, chain(2, 1))
    with pytest.raises(InputError, match=r"bounds"):
        reduce(ReduceRequest(path, tmp_path / "part.onnx", {"h": Range(8, 8, 8)}, target=RTX))
    with pytest.raises(InputError, match="is the model itself"):
        reduce(ReduceRequest(path, path, target=RTX))
    with pytest.raises(EnvironmentMissing):
        bounds = {"h": Range(8, 8, 8), "w": Range(8, 8, 8)}
        reduce(ReduceRequest(path, tmp_path / "part.onnx", bounds, target=Target("tensorrt", (7, 1))))
    assert [entry.name for entry in tmp_path.iterdir()] == ["whole.onnx"]


def test_the_command_tells_it_in_text_and_json(tmp_path: Path) -> None:
    path = saved(tmp_path, chain(3, 1))
    flags = ["reduce", str(path), "--dim", "h=8", "--dim", "w=8:8:16", "--target", "rtx", "-q"]
    text = CliRunner().invoke(cli, flags)
    assert text.exit_code == 0, text.output
    assert 'TC401 parser-refused NonZero "bad"' in text.stdout
    assert "1 of 7 nodes fail the same way" in text.stdout
    assert run(text.stdout.splitlines()[-1]) == 1
    assert (tmp_path / "whole.reduced.onnx").exists()
    document = json.loads(CliRunner().invoke(cli, [*flags, "--format", "json"]).stdout)
    assert document["nodes"] == {"before": 7, "after": 1}
    assert document["failure"]["code"] == "TC401"
    assert document["command"] == text.stdout.splitlines()[-1]
