"""Models through TensorRT-RTX's real parser and builder: what the passes leave, and what the audit says of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import trtconv
from support.onnx_models import PLACES, RTX, WEIGHTS, Layer, make, parse, rewritten, wrap
from support.strategies import layers
from trtconv.core.findings import Finding, Severity
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.preparation import Preparation
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt import ParsedNetwork
from trtconv.runtimes.tensorrt.audit import audit

pytest.importorskip("tensorrt_rtx")


def parsed(model: OnnxModel) -> ParsedNetwork:
    model.name_nodes("ConvTranspose")
    network = tensorrt.load(RTX).parse(model.serialize(), model.path)
    assert not isinstance(network, tuple), network
    return network


def findings(model: OnnxModel) -> tuple[Finding, ...]:
    return audit(model, parsed(model))


def read_right(layer: Layer) -> bool:
    """Whether TensorRT's own parser gives a node its ONNX meaning, by what is known of it (8.6 source, RTX 1.7 run)."""
    extra = layer.output_padding or (0,) * layer.rank
    pads = layer.pads or (0,) * 2 * layer.rank
    if layer.output_shape is not None:
        return False
    if layer.auto_pad != "NOTSET":
        return not any(extra)
    beyond = any(e > p for e, p in zip(extra, pads[layer.rank :], strict=True))
    return not beyond or layer.bias in ("none", "initializer", "constant", "empty")


def issue_3352(static: bool = False) -> onnx.ModelProto:
    """ConvTranspose2d(256, 128, 3, stride=2, output_padding=1), as pytorch/TensorRT issue 3352 has it."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [256, 128, 3, 3], bytes(4 * 256 * 128 * 9), raw=True)
    bias = helper.make_tensor("b", TensorProto.FLOAT, [128], bytes(4 * 128), raw=True)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], name="up", strides=[2, 2], output_padding=[1, 1])
    sizes: list[int | str] = [32, 32] if static else ["height", "width"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 256, *sizes])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 128, None, None])
    graph = helper.make_graph([node], "g", [x], [y], [weight, bias])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_issue_3352_is_one_deconvolution(static: bool) -> None:
    proto = issue_3352(static)
    before = parsed(wrap(proto)).layer_types
    assert len(before) > 1
    model, _ = rewritten(proto)
    network = parsed(model)
    assert [kind for kind in network.layer_types if kind != "CONSTANT"] == ["DECONVOLUTION"]
    assert network.deconvolutions[0].has_bias
    assert audit(model, network) == ()


@pytest.mark.parametrize(
    ("attributes", "sizes"),
    [
        ('strides = [2,2], auto_pad = "SAME_UPPER", output_padding = [1,1]', "8,8"),
        ('strides = [2,2], auto_pad = "VALID", output_padding = [1,1]', "8,8"),
        ('strides = [2,2], auto_pad = "SAME_UPPER", output_padding = [1,1]', "h,w"),
        ("strides = [2,2], output_shape = [20,20]", "10,10"),
        ('strides = [2,2], output_shape = [21,20], auto_pad = "SAME_LOWER"', "10,10"),
    ],
)
def test_what_the_parser_misreads_is_found(attributes: str, sizes: str) -> None:
    model = wrap(parse(_one(attributes, sizes)))
    found = findings(model)
    assert found
    assert {f.code for f in found} == {"TC402"}
    assert found[0].location.node


@pytest.mark.parametrize(
    "attributes",
    [
        "strides = [2,2]",
        "strides = [2,2], pads = [1,1,1,1], output_padding = [1,1]",
        "strides = [2,2], output_padding = [1,1]",
        'strides = [2,2], auto_pad = "SAME_UPPER"',
        'strides = [2,2], auto_pad = "SAME_LOWER"',
        'strides = [2,2], auto_pad = "VALID"',
        "dilations = [2,3]",
    ],
)
@pytest.mark.parametrize("sizes", ["8,8", "h,w"])
def test_what_the_parser_reads_right_passes(attributes: str, sizes: str) -> None:
    assert findings(wrap(parse(_one(attributes, sizes)))) == ()


def _one(attributes: str, sizes: str) -> str:
    return f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,{sizes}] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {{1,2,3,4,5,6,7,8,9}}>
        {{ y = ConvTranspose <{attributes}> (x, w) }}"""


def test_a_bias_that_the_fill_misses_is_found() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x, float[1] b) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w, b) }"""
    )
    assert [f.code for f in findings(wrap(proto))] == ["TC402"]
    assert findings(rewritten(proto)[0]) == ()


@given(layers(opset=17))
@settings(max_examples=150)
def test_no_false_alarm_on_what_the_parser_reads_right(layer: Layer) -> None:
    assume(read_right(layer))
    proto, _ = make(layer)
    assert findings(wrap(proto)) == ()


@given(layers(opset=17), st.sampled_from(WEIGHTS), st.sampled_from(PLACES))
@settings(max_examples=150)
def test_rewritten_models_always_pass(layer: Layer, weight: str, place: str) -> None:
    proto, _ = make(dataclasses.replace(layer, weight=weight, place=place, spelled=True))
    model, result = rewritten(proto)
    assume(not result.skipped)
    assert findings(model) == ()


def branches(condition: str) -> str:
    return f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,1,5,5] x{condition}
        {{ y = If (c) <
            then_branch = t () => (float[1,1,p,q] a)
                {{ a = ConvTranspose <strides=[2,2], output_padding=[1,1]> (x, v) }},
            else_branch = e () => (float[1,1,p,q] b) {{ b = ConvTranspose <strides=[2,2]> (x, v) }}> }}"""


@pytest.mark.parametrize(
    "condition",
    [
        ", bool c) => (float[1,1,p,q] y) <float[1,1,3,3] v = {1,2,3,4,5,6,7,8,9}>",
        ") => (float[1,1,p,q] y) <float[1,1,3,3] v = {1,2,3,4,5,6,7,8,9}, bool c = {1}>",
    ],
    ids=["at run time", "constant"],
)
def test_both_branches_are_audited_or_not_there(condition: str) -> None:
    assert findings(rewritten(parse(branches(condition)))[0]) == ()


FUNCTION = """<ir_version: 8, opset_import: ["": 17, "local": 1]> g (float[1,1,5,5] x) => (float[1,1,p,q] y)
    <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}> { y = local.Up (x, w) }
    <domain: "local", opset_import: ["": %d]>
    Up (a, k) => (r) { r = ConvTranspose <strides=[2,2], output_padding=[1,1], auto_pad="SAME_UPPER"> (a, k) }"""


@pytest.mark.parametrize(
    ("opset", "rewrite", "exit_code"), [(17, True, 0), (17, False, 1), (13, True, 1), (13, False, 1)]
)
def test_functions_do_not_hide_a_misread_node(tmp_path: Path, opset: int, rewrite: bool, exit_code: int) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parse(FUNCTION % opset), path)
    report = trtconv.build(trtconv.BuildRequest(path, target=trtconv.Target("rtx"), rewrite=rewrite))
    assert report.exit_code == exit_code
    # The rules see into functions that can be inlined; of others the audit alone tells.
    failing = {f.code for f in report.findings if f.severity is Severity.ERROR}
    assert failing == ({"TC102" if opset == 17 else "TC402"} if exit_code else set())
    assert path.with_suffix(".engine").exists() != bool(exit_code)


@pytest.mark.parametrize("name", ["", "up", "up[0]", "up[0].x", "a | b", "m[0] [1]", "ü", "up]"])
def test_layers_are_found_by_any_name(name: str) -> None:
    proto = parse(_one("strides=[2,2], output_padding=[1,1]", "8,8"))
    proto.graph.node[0].name = name
    assert findings(wrap(proto)) == ()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("weight", ["initializer", "computed", "input"])
@pytest.mark.parametrize(
    "changes",
    [
        {"output_padding": (1, 1)},
        {"dilations": (2, 2)},
        {"output_shape": (12, 9)},
        {"auto_pad": "SAME_UPPER", "output_padding": (1, 1)},
        {"pads": (-1, 0, 0, -1)},
    ],
    ids=str,
)
def test_what_the_passes_leave_builds(tmp_path: Path, changes: dict[str, object], weight: str, dtype: str) -> None:
    base = Layer(sizes=(5, 5), kernel=(3, 3), strides=(2, 2), bias="initializer", weight=weight, dtype=dtype)
    proto, _ = make(dataclasses.replace(base, dynamic=True, **changes))  # type: ignore[arg-type]
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    dims = {name: trtconv.Range(2, 4, 8) for name in ("n", "d0", "d1")}
    if "output_shape" in changes:
        dims |= {name: trtconv.Range(4, 5, 5) for name in ("d0", "d1")}
    report = trtconv.build(trtconv.BuildRequest(path, dims=dims, target=trtconv.Target("rtx")))
    assert report.exit_code == 0, report.findings
    assert report.edits


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("[1,2,8,8]", ""),
        ("[n,2,8,8]", ""),
        ("[]", ""),
        ("[1,2,8,9]", "declared as [1, 2, 8, 9], and the network computes [1, 2, 8, 8]"),
        ("[n,3,8]", "declared as [?, 3, 8], and the network computes [1, 2, 8, 8]"),
    ],
)
def test_a_declared_output_that_is_not_computed_is_told(tmp_path: Path, declared: str, said: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[1,2,8,8] x) => (float{declared} y) {{ y = Relu (x) }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    report = trtconv.check(trtconv.CheckRequest(tmp_path / "m.onnx", target=RTX))
    told = [f.message for f in report.findings if f.code == "TC409" and f.severity is Severity.WARNING]
    assert bool(told) == bool(said)
    assert all(said in message for message in told)
    built = trtconv.build(trtconv.BuildRequest(tmp_path / "m.onnx", target=RTX, fail_on=Severity.WARNING))
    assert built.exit_code == (1 if said else 0)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_rounding_of_a_cast_that_adds_up_is_no_misreading(tmp_path: Path, precision: str) -> None:
    """Each layer computes what its node of the cast means; how far that is from the file, TC513 says."""
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,8,16,16] x) => (float[1,8,16,16] y)
        <float c = {500}> { a = Add (x, c)  b = Sub (a, c)  s = Sigmoid (b)  y = Mul (s, b) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    request = trtconv.BuildRequest(tmp_path / "m.onnx", target=trtconv.Target("rtx"), precision=precision, force=True)
    report = trtconv.build(request)
    assert report.proof is not None
    assert report.proof.agrees is True
    assert [finding.code for finding in report.findings] == ["TC513"]


def test_a_cast_is_proven_against_the_model_as_it_was_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cast that breaks the model would agree with itself."""
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <float[2,2,1,1] w = {1, 2, 3, 4}> { a = Conv (x, w)  y = Relu (a) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    cast = Preparation.cast

    def breaks(self: Preparation, *args: object, **options: object) -> object:
        applied = cast(self, *args, **options)  # type: ignore[arg-type]
        node = next(each for each in self.model.proto.graph.node if each.op_type == "Relu")
        node.op_type = "Abs"
        self.model.touch()
        return applied

    request = trtconv.BuildRequest(tmp_path / "m.onnx", target=trtconv.Target("rtx"), precision="fp16", force=True)
    assert trtconv.build(request).exit_code == 0
    monkeypatch.setattr(Preparation, "cast", breaks)
    report = trtconv.build(request)
    assert report.exit_code == 1
    assert "TC402" in {finding.code for finding in report.findings}
