"""Lists that do not fit a node are refused: all that ONNX Runtime does not load for them, and none that it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import AttributeProto, helper

from trtconv.core.errors import InputError
from trtconv.graph.list_checker import LISTED
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.reference import runs

WEIGHT = "float[2,2,3,3] w = {" + ",".join("1" * 36) + "}"
BYTES = "uint8[2,2,3,3] w = {" + ",".join("1" * 36) + "}"
LINEAR = f"float s = {{1}}, uint8 z = {{0}}, {BYTES}"
KERNEL = {"kernel_shape": [3, 3]}
WINDOW = {"kernel_shape": 3, "strides": 1, "dilations": 1, "pads": 0}
KINDS = {"Conv-17": ("x, w", WEIGHT, {}), "ConvInteger-17": ("x, w", BYTES, {}), "LpPool-18": ("x", "", KERNEL)}
KINDS |= {"QLinearConv-17": ("x, s, z, w, s, z, s, z", LINEAR, {}), "DeformConv-19": ("x, w, o", WEIGHT, {})}
KINDS |= {"MaxPool-17": ("x", "", KERNEL), "AveragePool-19": ("x", "", KERNEL)}
AXES = ("Squeeze-11", "ReduceSum-11", "ReduceMean-13", "ReduceL1-13", "MeanVarianceNormalization-13", "Unsqueeze-11")
LISTS_OF_ANYTHING = {"Constant", "RandomNormal", "RandomUniform", "StringNormalizer", "TfIdfVectorizer", "Reshape"}
ELSEWHERE = {"ConvTranspose", "Scan"}
"""What is wrong with a ConvTranspose is TC108; what a Scan's lists mean hangs on a number beside them."""


def model(kind: str, inputs: str, weights: str, lists: dict[str, list[float]], outputs: int = 1) -> onnx.ModelProto:
    """Returns a model of one node over an input of [1, 2, 8, 8]."""
    op, _, opset = kind.partition("-")
    dtype = "uint8" if weights.startswith(("uint8", "float s")) else "float"
    ends = ", ".join(f"{dtype}[] y{i}" for i in range(outputs))
    ends = ends if op != "ConvInteger" else "int32[] y0"
    extra = ", float[1,18,6,6] o" if op == "DeformConv" else ""
    names = ", ".join(f"y{i}" for i in range(outputs))
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g ({dtype}[1,2,8,8] x{extra}) => ({ends})'
        f"{f' <{weights}>' if weights else ''} {{ {names} = {op} ({inputs}) }}"
    )
    for name, values in lists.items():
        kind_of = AttributeProto.FLOATS if any(isinstance(v, float) for v in values) else AttributeProto.INTS
        proto.graph.node[0].attribute.append(helper.make_attribute(name, values, attr_type=kind_of))
    return proto


def cases() -> Iterator[tuple[str, str, str, dict[str, list[float]], int]]:
    """Yields nodes with lists of all lengths that could be meant: operator, inputs, weights, lists, outputs."""
    for kind, (inputs, weights, base) in KINDS.items():
        for name, value in WINDOW.items():
            if name == "pads" and kind.startswith("DeformConv"):
                continue
            for length in range(9 if name == "pads" else 6):
                yield kind, inputs, weights, {**base, name: [value] * length}, 1
    for length in range(7):
        yield "Transpose-17", "x", "", {"perm": list(range(length))}, 1
        yield "Upsample-7", "x", "", {"scales": [2.0] * length}, 1
        yield "Slice-9", "x", "", {"starts": [0, 0], "ends": [3, 3], "axes": list(range(length))}, 1
        yield "Slice-9", "x", "", {"starts": [0, 0], "ends": [3] * length}, 1
        yield "Split-11", "x", "", {"split": [1] * length}, 1
    for length in range(10):
        yield "Pad-10", "x", "", {"pads": [0] * length}, 1
    for kind in AXES:
        for axes in ([0], [-1], [1], [3], [4], [-4], [-5], [5], [6], [0, 0]):
            yield kind, "x", "", {"axes": axes}, 1
    for perm in ([0, 1, 2], [3, 2, 1, 0], [0, 0, 1, 2], [0, 1, 2, 4], [-1, 0, 1, 2]):
        yield "Transpose-17", "x", "", {"perm": perm}, 1


def taken(proto: onnx.ModelProto, path: Path) -> bool:
    path.write_bytes(proto.SerializeToString())
    try:
        OnnxModel.load(path)
    except InputError as error:
        assert proto.graph.node[0].op_type in error.message
        assert any(repr(attribute.name) in error.message for attribute in proto.graph.node[0].attribute)
        return False
    return True


def run(proto: onnx.ModelProto) -> bool | None:
    """Whether ONNX Runtime runs a model; None where it does not even load it for want of an operator."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
        feeds = {
            each.name: np.ones(each.shape, np.uint8 if "uint8" in each.type else np.float32)
            for each in session.get_inputs()
        }
        session.run(None, feeds)
    except Exception as error:
        return None if "NOT_IMPLEMENTED" in str(error) else False
    return True


def test_what_onnx_runtime_refuses_is_refused_and_nothing_that_it_runs(tmp_path: Path) -> None:
    counts = {True: 0, False: 0}
    wrong = []
    for case in cases():
        proto = model(*case)
        does = run(proto)
        if does is not None:
            counts[does] += 1
            if taken(proto, tmp_path / "m.onnx") != does:
                wrong.append((case[0], case[3], does))
    assert not wrong
    assert min(counts.values()) > 50


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_activations_are_as_many_as_gates(tmp_path: Path, kind: str, direction: str) -> None:
    gates, ways = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind], 2 if direction == "bidirectional" else 1
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 14]> g (float[1,1,2] x,'
        f" float[{ways},{gates},2] w, float[{ways},{gates},1] r)"
        f" => (float[] y) {{ y = {kind} <hidden_size = 1> (x, w, r) }}"
    )
    node = proto.graph.node[0]
    node.attribute.append(helper.make_attribute("direction", direction))
    node.attribute.append(helper.make_attribute("activations", ["Tanh"]))
    found = {}
    for length in range(1, 8):
        node.attribute[-1].strings[:] = [b"Tanh"] * length
        found[length] = (taken(proto, tmp_path / "m.onnx"), run(proto))
    assert {length for length, (ours, _) in found.items() if ours} == {ways * {"RNN": 1, "GRU": 2, "LSTM": 3}[kind]}
    assert not any(ours and not theirs for ours, theirs in found.values()), found


def test_every_operator_with_such_lists_is_looked_at() -> None:
    schemas = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""]
    having = {
        schema.name
        for schema in schemas
        if any(a.type.value in (6, 7, 8) and name != "consumed_inputs" for name, a in schema.attributes.items())
    }
    assert having - LISTS_OF_ANYTHING - ELSEWHERE <= LISTED


def test_what_is_meant_by_nobody_is_not_run_by_the_reference() -> None:
    for kind, lists in (
        ("Squeeze-13", {"axes": [0]}),
        ("Conv-17", {"strides": []}),
        ("Conv-17", {"dilations": [1] * 7}),
    ):
        proto = model(kind, *(KINDS[kind][:2] if kind in KINDS else ("x", "")), lists)
        assert isinstance(runs(OnnxModel(proto, Path("m.onnx")), ()), str)
