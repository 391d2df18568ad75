"""What passes made of a model, held to the file piece by piece, whatever they say that they did."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from support.float_nets import net
from support.in_process import InProcess
from support.onnx_models import RTX
from trtconv.core.process import Process
from trtconv.graph.model import OnnxModel
from trtconv.passes import passes_for, run_passes
from trtconv.runtimes.proof import version
from trtconv.runtimes.proof.rewritten import Claim, Differences, compared_pieces
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork, ReadTensor

EXACT = Claim(True, 5e-2)
NET = """<ir_version: 8, opset_import: ["": 17]> g (float[n,4,h,w] x) => (float[n,2,p,q] y) {
    [first] a = Conv <pads = [1,1,1,1]> (x, w_6_4_3_3, b_6)  r = Relu (a)
    [up] u = ConvTranspose <strides = [2,2], output_padding = [1,1]> (r, w_6_3_3_3, b_3)
    [last] v = Conv (u, w_2_3_1_1)  y = Sigmoid (v) }"""


@pytest.fixture(scope="module")
def runner() -> Iterator[Process]:
    with InProcess() as process:
        yield process


def both() -> tuple[OnnxModel, OnnxModel]:
    """Returns a model, and what the passes make of it."""
    file = OnnxModel(net(NET), Path("m.onnx"))
    given = file.copy()
    assert run_passes(given, passes_for("as-is"), RTX).edits
    return file, given


def changed_node(given: OnnxModel, name: str) -> onnx.NodeProto:
    return next(node for node in given.proto.graph.node if node.name == name)


def test_what_the_passes_make_is_what_the_file_means(runner: Process) -> None:
    found = compared_pieces(Differences(*both()), EXACT, runner)
    assert found.changed is None
    assert found.matches == 1
    assert not found.missing


def test_an_output_of_another_type_is_missing(runner: Process) -> None:
    """It is no tensor that both make, and so is compared nowhere."""
    file, given = both()
    node = helper.make_node("Cast", ["v"], ["y"], to=onnx.TensorProto.FLOAT16)
    changed_node(given, "last").output[0] = "v"
    del given.proto.graph.node[-1]
    given.proto.graph.node.append(node)
    given.proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    differences = Differences(file, OnnxModel(given.proto, given.path))
    assert not differences.is_defined()
    for found in (differences.without_a_run, compared_pieces(differences, EXACT, runner)):
        assert found.missing == {"y": "in the file it is of another type, shape or origin"}


@pytest.mark.parametrize(
    ("file", "given"),
    [
        ("=> (float[2] y) { y = Relu (x) }", "=> (float16[2] y) { y = Relu (x) }"),
        ("=> (float[2] y) <float[2] k = {1, 2}> { y = Identity (k) }", "=> (float[2] y) { y = Relu (x) }"),
    ],
)
def test_an_output_that_is_stated_otherwise_or_made_of_something_else_is_missing(file: str, given: str) -> None:
    models = (
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) {t}') for t in (file, given)
    )
    differences = Differences(*(OnnxModel(model, Path("m.onnx")) for model in models))
    assert not differences.is_defined()
    assert list(differences.without_a_run.missing) == ["y"]


@pytest.mark.parametrize(
    ("shape", "dtype", "factor", "defined"),
    [
        ((-1, 6, -1, -1), "float32", 1.0, True),
        ((-1, 6, -1, -1), "float32", 1.001, False),
        ((-1, 6, -1, -1), "float16", 1.0, False),
        (None, "float32", 1.0, False),
    ],
)
def test_what_is_the_same_by_definition_is_not_run(
    shape: tuple[int, ...] | None, dtype: str, factor: float, defined: bool
) -> None:
    file, given = both()
    made = next(each for each in given.proto.graph.initializer if each.name not in file.main.initializers)
    made.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(made) * np.float32(factor), made.name))
    given = OnnxModel(given.proto, given.path)
    network = ReadNetwork((ReadTensor(0, "r", dtype, shape),), (), (), ())
    differences = Differences(file, given, network)
    assert (differences.targets, differences.defined) == ((set(), 1) if defined else ({"u"}, 0))
    if defined:
        found = compared_pieces(differences, EXACT, Process("nowhere:never"))
        assert (found.matches, found.changed, found.missing) == (1, None, {})
    # What the network has not, has no sizes.
    assert Differences(file, given, ReadNetwork((), (), (), ())).targets == {"u"}


def test_a_kernel_that_a_pass_made_must_be_exact(runner: Process) -> None:
    file, given = both()
    made = next(each for each in given.proto.graph.initializer if each.name not in file.main.initializers)
    made.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(made) * np.float32(1.001), made.name))
    found = compared_pieces(Differences(file, OnnxModel(given.proto, given.path)), EXACT, runner)
    assert found.changed is not None
    assert found.changed.tensor == "u"
    assert 1e-4 < found.changed.error < 1e-2


@pytest.mark.parametrize(("node", "tensor"), [("first", "a"), ("last", "v")])
def test_a_node_that_no_pass_speaks_of_is_compared_too(node: str, tensor: str, runner: Process) -> None:
    file, given = both()
    changed_node(given, node).attribute.append(helper.make_attribute("dilations", [1, 1]))
    assert compared_pieces(Differences(file, OnnxModel(given.proto, given.path)), EXACT, runner).changed is None
    changed_node(given, node).input[1] = "other"
    kernel = next(t for t in file.proto.graph.initializer if t.name == changed_node(file, node).input[1])
    other = np.random.default_rng(5).standard_normal(tuple(kernel.dims)).astype(np.float32)
    given.proto.graph.initializer.append(numpy_helper.from_array(other, "other"))
    found = compared_pieces(Differences(file, OnnxModel(given.proto, given.path)), EXACT, runner)
    assert found.changed is not None
    assert found.changed.tensor == tensor


STEEP = """<ir_version: 8, opset_import: ["": 17]> g (float[2048,256] x, float[256,64] w) => (float[2048,64] y)
    <float k = {FACTOR}> { NODES y = Softmax (s) }"""


@pytest.mark.parametrize(("factor", "is_changed"), [(17.3, False), (17.31, True)])
def test_what_rounding_makes_of_sums_is_no_change(factor: float, is_changed: bool, runner: Process) -> None:
    """Where two of the sums that a softmax is of are nearly alike, it is off by 1e-4 for another order of products."""
    texts = (
        STEEP.replace("NODES", "p = MatMul (x, w)  s = Mul (p, k)").replace("FACTOR", "17.3"),
        STEEP.replace("NODES", "q = Mul (x, k)  s = MatMul (q, w)").replace("FACTOR", str(factor)),
    )
    file, given = (OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")) for text in texts)
    differences = Differences(file, given)
    assert differences.targets == {"s"}
    differences.targets = {"y"}
    differences.both -= {"s"}
    found = compared_pieces(differences, EXACT, runner)
    assert (found.changed is not None, found.missing) == (is_changed, {})


QUANTIZED = """<ir_version: 8, opset_import: ["": 17]> g (float[n,6,h,w] x) => (float[n,6,h,w] y)
    <float s = {0.02}, uint8 z = {128}, int8 zi = {0}> {
    c = QuantizeLinear (x, s, ZERO)  d = DequantizeLinear (c, s, ZERO)  y = Relu (d) }"""


@pytest.mark.parametrize("dtype", ["bool", "float", "float16", "int64", "uint8"])
def test_inputs_of_no_axes_are_fed(dtype: str, runner: Process) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({dtype} x) => ({dtype} y) {{ NODES }}'
    file, given = (
        OnnxModel(onnx.parser.parse_model(text.replace("NODES", nodes)), Path("m.onnx"))
        for nodes in ("y = Identity (x)", "c = Identity (x)  y = Identity (c)")
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed, found.matches, found.missing) == (None, 1, {})


def test_codes_may_come_to_mean_something_else(runner: Process) -> None:
    file = OnnxModel(net(QUANTIZED.replace("ZERO", "z")), Path("m.onnx"))
    given = OnnxModel(net(QUANTIZED.replace("ZERO", "zi")), Path("m.onnx"))
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert found.changed is None
    assert found.matches == 1
    scaled = net(
        QUANTIZED.replace("ZERO", "zi").replace("(c, s,", "(c, t,").replace("float s", "float t = {0.03}, float s")
    )
    found = compared_pieces(Differences(file, OnnxModel(scaled, Path("m.onnx"))), EXACT, runner)
    assert found.changed is not None


@pytest.mark.parametrize(("factor", "changed"), [(2, None), (0, "y")])
def test_what_reads_other_codes_is_compared_through_them(factor: int, changed: str | None, runner: Process) -> None:
    """Where it comes to the same in the end, other integers in between are no matter."""
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[n,64] x) => (float[n,64] y) <int32 k = {{{factor}}}> {{
        CODES  b = Cast <to = 9> (c)  y = Cast <to = 1> (b) }}"""
    file, given = (
        OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text.replace("CODES", codes))), Path("m"))
        for codes in ("c = Cast <to = 6> (x)", "p = Cast <to = 6> (x)  c = Mul (p, k)")
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed and found.changed.tensor) == changed
    assert found.matches == (changed is None) and not found.missing


def test_what_is_not_run_is_missing_and_all_else_is_compared(runner: Process) -> None:
    text = """<ir_version: 3, opset_import: ["": 17]> g (float[n,4] x) => (float[n,4] y, float[n,4] z)
        <float minus = {-1}> { NODES }"""
    file, given = (
        OnnxModel(onnx.parser.parse_model(text.replace("NODES", nodes)), Path("m"))
        for nodes in ("y = Neg (x)  z = Neg (x)", "y = Unheard (x)  z = Mul (x, minus)")
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed, found.matches, [*found.missing]) == (None, 1, ["y"])
    assert "Unheard" in found.missing["y"]


def test_codes_are_any_that_their_type_has(runner: Process) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (uint8[n,64] x) => (float[n,64] y)
        <uint8 most = {100}, float s = {0.5}> {
        NODES }"""
    file, given = (
        OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text.replace("NODES", nodes))), Path("m"))
        for nodes in (
            "y = DequantizeLinear (x, s)",
            "m = Clip (x, , most)  y = DequantizeLinear (m, s)",
        )
    )
    assert compared_pieces(Differences(file, given), EXACT, runner).changed is not None


def test_what_reads_sizes_that_are_not_known_is_missing_and_all_else_is_compared(runner: Process) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,4] y, float[n,4] z, int64[2,m] q)
        <float zero = {0}, float minus = {-1}, int64[2] axes = {0, 1}> { q = NonZero (x)  NODES }"""
    file, given = (
        OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text.replace("NODES", nodes))), Path("m"))
        for nodes in (
            "y = Relu (x)  z = Neg (x)",
            """r = Relu (x)  f = Cast <to = 1> (q)  s = ReduceSum <keepdims = 0> (f, axes)  t = Mul (s, zero)
            y = Add (r, t)  z = Mul (x, minus)""",
        )
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed, found.matches, [*found.missing]) == (None, 1, ["y"])
    assert "sizes" in found.missing["y"]


CONSTANT = """<ir_version: 8, opset_import: ["": OPSET]> g (float[n,4] x) => (float[p,q] y)
    <HELD k = {1, 2}, float[2] l = {3, 4}, float two = {2}, float[2] half = {0.5, 0.5}> {
    q = NonZero (x)  f = Cast <to = 1> (q)  TURN  WEIGHT  y = NODE }"""
USUAL = {
    "OPSET": "17",
    "HELD": "float[2]",
    "TURN": "t = Transpose (f)",
    "WEIGHT": "w = Mul (l, two)",
    "NODE": "Sum (t, w, k)",
}
ADDED = {"WEIGHT": "w = Add (l, l)"}


@pytest.mark.parametrize(
    ("one", "other", "matches", "missing"),
    [
        ({}, ADDED, 1, []),
        # Other numbers are no alarm: what reads them may make the same of them.
        ({}, {"WEIGHT": "w = Mul (l, half)"}, 0, ["w"]),
        ({}, {**ADDED, "NODE": "Sum (w, t, k)"}, 0, ["y"]),
        ({}, {**ADDED, "OPSET": "18"}, 0, ["y"]),
        ({}, {**ADDED, "HELD": "float[1,2]"}, 0, ["y"]),
        ({}, {**ADDED, "TURN": "u = Transpose (f)  t = Mul (u, two)"}, 1, ["t"]),
        ({}, {"WEIGHT": "w = Mul (t, two)"}, 0, ["y"]),
        ({}, {"WEIGHT": "", "HELD": "float[2] w = {6, 8}, float[2]"}, 0, ["y"]),
        ({"NODE": "Sum (t, two, k)", "WEIGHT": ""}, {"NODE": "Sum (t, w, k)"}, 0, ["y"]),
        (
            {"WEIGHT": "w = Cast <to = 6> (two)", "NODE": "Gather (t, w)"},
            {"WEIGHT": "w = Cast <to = 7> (two)", "NODE": "Gather (t, w)"},
            *(0, ["y"]),
        ),
    ],
)
def test_of_a_node_of_unknown_sizes_the_constants_are_compared(
    one: dict[str, str], other: dict[str, str], matches: int, missing: list[str], runner: Process
) -> None:
    file, given = (
        OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(filled(CONSTANT, part))), Path("m"))
        for part in ({**USUAL, **one}, {**USUAL, **other})
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed, found.matches, sorted(found.missing)) == (None, matches, missing)


def filled(text: str, parts: dict[str, str]) -> str:
    for key, part in parts.items():
        text = text.replace(key, part)
    return text


def test_sizes_that_passes_wrote_down_are_known(runner: Process) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,p] y)
        <bool[4] mask = {1, 0, 1, 1}, int64[1] flat = {-1}, int64[1,3] at = {0, 2, 3}, float two = {2}>
        { PLACES  i = Reshape (q, flat)  a = Gather <axis = 1> (x, i)  NODE }"""
    changes = {"PLACES": "q = NonZero (mask)", "NODE": "y = Add (a, a)"}, {"PLACES": "q = Identity (at)"}
    file, given = (
        OnnxModel(onnx.parser.parse_model(filled(text, {**part, "NODE": node})), Path("m"))
        for part, node in zip(changes, ("y = Add (a, a)", "y = Mul (a, two)"), strict=True)
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed, found.matches, found.missing) == (None, 2, {})


@pytest.mark.parametrize(("factor", "changed"), [("two", None), ("three", "y")])
def test_sizes_that_are_computed_are_known(factor: str, changed: str | None, runner: Process) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,p] y)
        <int64 zero = {0}, int64 one = {1}, float two = {2}, float three = {3}>
        { s = Shape (x)  l = Gather (s, zero)  r = Range (zero, l, one)  a = Gather <axis = 0> (x, r)  y = NODE }"""
    file, given = (
        OnnxModel(onnx.parser.parse_model(text.replace("NODE", node)), Path("m"))
        for node in ("Add (a, a)", f"Mul (a, {factor})")
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert ((found.changed and found.changed.tensor), found.missing) == (changed, {})


@pytest.mark.parametrize("steps", [5, 9])
def test_other_codes_through_many_nodes_are_missing(steps: int, runner: Process) -> None:
    """As many as are not followed: nobody has looked at what reads the last of them."""
    adds = " ".join(f"c{number + 1} = Add (c{number}, one)" for number in range(steps))
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[n,64] x) => (float[n,64] y) <int32 one = {{1}}>
        {{ CODES  {adds}  y = Cast <to = 1> (c{steps}) }}"""
    file, given = (
        OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text.replace("CODES", codes))), Path("m"))
        for codes in ("c0 = Cast <to = 6> (x)", "p = Cast <to = 6> (x)  c0 = Add (p, one)")
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed and found.changed.tensor, [*found.missing]) == (("y", []) if steps < 8 else (None, ["c8"]))


def test_the_same_model_needs_no_run() -> None:
    file, _ = both()
    renamed = file.copy()
    for number, node in enumerate(renamed.proto.graph.node):
        node.name = f"node{number}"
    assert (
        compared_pieces(
            Differences(file, OnnxModel(renamed.proto, renamed.path)), EXACT, Process("nowhere:never")
        ).matches
        == 0
    )


@pytest.mark.parametrize("same", [True, False])
def test_axes_that_follow_from_a_shape_further_on(same: bool, runner: Process) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[3,4] x, int64[1] axes) => (float[3] y)
    { s = ReduceSum <keepdims = 0> (x, axes)  y = Abs (s) }"""
    file = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    given = file.copy()
    assert run_passes(given, passes_for("as-is"), RTX).edits
    (made,) = (node for node in given.proto.graph.node if node.op_type == "ReduceSum")
    fixed = next(tensor for tensor in given.proto.graph.initializer if tensor.name == made.input[1])
    assert numpy_helper.to_array(fixed).tolist() == [1]
    if not same:
        made.op_type = "ReduceMax"
    found = compared_pieces(Differences(file, OnnxModel(given.proto, Path("m.onnx"))), EXACT, runner)
    assert (found.changed is None) == same


@pytest.mark.parametrize(
    ("above", "threshold", "same"),
    [("Greater", "value_float = 2.0", True), ("GreaterOrEqual", "value_float = 2.0", False)],
)
def test_numbers_at_which_a_result_jumps_are_met(above: str, threshold: str, same: bool, runner: Process) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[64] x) => (float[64] y) '
    file = onnx.parser.parse_model(head + "{ r = Round (x)  y = ThresholdedRelu <alpha = 2.0> (r) }")
    text = (
        f"{{ r = Round (x)  c = Constant <{threshold}> ()  b = {above} (r, c)  k = Cast <to = 1> (b)  y = Mul (r, k) }}"
    )
    given = OnnxModel(onnx.parser.parse_model(head + text), Path("m.onnx"))
    found = compared_pieces(Differences(OnnxModel(file, Path("m.onnx")), given), EXACT, runner)
    assert (found.changed is None) is same
    assert found.matches == same


@pytest.mark.parametrize("below", ["Less", "LessOrEqual"])
def test_results_may_jump_at_the_negative_of_a_number_too(below: str, runner: Process) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[64] x) => (float[64] y) '
    file = onnx.parser.parse_model(head + "{ y = Shrink <lambd = 2.0, bias = 0.0> (x) }")
    text = f"""{{ c = Constant <value_float = 2.0> ()  d = Neg (c)  p = Greater (x, c)  q = {below} (x, d)
        o = Or (p, q)  k = Cast <to = 1> (o)  y = Mul (x, k) }}"""
    given = OnnxModel(onnx.parser.parse_model(head + text), Path("m.onnx"))
    found = compared_pieces(Differences(OnnxModel(file, Path("m.onnx")), given), EXACT, runner)
    assert (found.changed is None) == (below == "Less")


@pytest.mark.parametrize(
    ("first", "same"), [("q = Identity (x)", True), ("q = Round (x)", False)], ids=["the same", "rounded"]
)
def test_what_decides_a_shape_is_tried_and_all_else_is_fed_as_ever(first: str, same: bool, runner: Process) -> None:
    """Only the sizes that are stated make the shape that is; what rounds is seen on numbers that are no sizes."""
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[24] x, int64[2] n) => (float[4,6] y) '
    bodies = "{ r = Reshape (x, n)  y = Abs (r) }", f"{{ {first}  r = Reshape (q, n)  y = Abs (r) }}"
    file, given = (OnnxModel(onnx.parser.parse_model(head + body), Path("m.onnx")) for body in bodies)
    file.proto.graph.value_info.append(helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [4, 6]))
    file.touch()
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert not found.missing and (found.changed is None) is same and found.matches == same


FOLDED = """<ir_version: 8, opset_import: ["": OPSET]> g (float[2,3] x) => (float[2,3] y)
    <float[2,3] zeros = {0, 0, 0, 0, 0, 0}, int64[2] own = {2, 3}, int64[2] other = {3, 2}> { NODES }"""
SHAPED = "s = Shape (x) y = Reshape (x, s)"


@pytest.mark.parametrize(
    ("before", "after", "defined"),
    [
        # The node behind is as it was.
        ("a = Relu (x) y = Add (a, x)", "a = Identity (zeros) y = Add (a, x)", False),
        ("a = Identity (zeros) y = Add (a, x)", "a = Relu (x) y = Add (a, x)", False),
        ("a = Relu (x) b = Add (a, x) y = Neg (b)", "a = Relu (x) b = Add (a, x) y = Neg (b)", True),
        # A result itself.
        ("y = Relu (x)", "y = Identity (zeros)", False),
        (SHAPED, "s = Identity (own) y = Reshape (x, s)", True),
        (SHAPED, "s = Identity (other) y = Reshape (x, s)", False),
    ],
)
def test_what_became_a_constant_is_defined_only_where_it_is_one(before: str, after: str, defined: bool) -> None:
    assert differences(before, after).is_defined() == defined


@pytest.mark.parametrize(("nodes", "defined"), [("y = Softmax <axis = 0> (x)", False), ("y = Relu (x)", True)])
def test_the_same_node_of_another_opset_is_another(nodes: str, defined: bool) -> None:
    assert differences(nodes, nodes).is_defined()
    assert differences(nodes, nodes, "13").is_defined() == defined


def differences(before: str, after: str, opset: str = "12") -> Differences:
    """Returns the differences of two models of a 2 by 3 matrix, the second of its own opset."""
    texts = (
        FOLDED.replace("NODES", nodes).replace("OPSET", version) for nodes, version in ((before, "12"), (after, opset))
    )
    file, given = (OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")) for text in texts)
    tensors = tuple(ReadTensor(number, name, "float32", (2, 3)) for number, name in enumerate("xy"))
    return Differences(file, given, ReadNetwork(tensors, (), (0,), (1,)))


@pytest.mark.parametrize("ends", ["(float16[2,3] x) => (float16[2,3] y)", "(float[3,2] x) => (float[3,2] y)"])
def test_the_same_nodes_of_other_inputs_are_others(ends: str) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }'
    file, given = (
        OnnxModel(onnx.parser.parse_model(text.replace("(float[2,3] x) => (float[2,3] y)", new)), Path("m.onnx"))
        for new in ("(float[2,3] x) => (float[2,3] y)", ends)
    )
    assert Differences(file, file).is_defined()
    assert not Differences(file, given).is_defined()


@pytest.mark.parametrize("held", ["float[3,1] w = {1, 1, 1}", "double[1,3] w = {1, 1, 1}"])
def test_the_same_bits_in_another_shape_are_another_constant(held: str) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[3,3] x) => (float[3,3] y)
    <float[1,3] w = {1, 1, 1}> { a = Mul (x, x) y = Add (a, w) }"""
    file, given = (
        OnnxModel(onnx.parser.parse_model(text.replace("float[1,3] w = {1, 1, 1}", new)), Path("m.onnx"))
        for new in ("float[1,3] w = {1, 1, 1}", held)
    )
    assert Differences(file, file).is_defined()
    differences = Differences(file, given)
    assert differences.targets == {"y"} and not differences.is_defined()


HELD = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[a,b] y)
    <LISTED FIXED float[3] z = {1, 2, 3}> { MADE  m = OTHER  g = GATHER  y = Sum (g, m) }"""
HELD_BY_A_NODE = {
    "LISTED": "",
    "FIXED": "float[3] l = {1, 2, 3},",
    "MADE": "k = Constant <value = int64[1] {1}> ()",
    "OTHER": "Neg (l)",
    "GATHER": "Gather (x, k)",
}


@pytest.mark.parametrize(
    ("change", "targets"),
    [
        ({}, set()),
        ({"LISTED": "int64[1] k = {0},"}, {"g"}),
        ({"LISTED": "int64[1,1] k = {1},"}, {"g"}),
        ({"LISTED": "uint64[1] k = {1},"}, {"g"}),
        ({"GATHER": "Gather <axis = 1> (x, k)"}, {"g"}),
        ({"OTHER": "Exp (l)", "GATHER": "Sum (x, k)"}, {"g", "y"}),
        ({"LISTED": "int64[1] k = {1}, float[3] m = {-1, -2, -3},", "m = OTHER": ""}, {"y"}),
        ({"OTHER": "Neg (x)"}, {"y"}),
        ({"FIXED": "", "MADE": "l = Identity (x)"}, {"y"}),
    ],
)
def test_a_constant_is_the_same_whether_a_node_holds_it_or_an_initializer(
    change: dict[str, str], targets: set[str]
) -> None:
    kept = {**change, **HELD_BY_A_NODE, "MADE": "", "LISTED": "int64[1] k = {1},", **change}
    file, given = (OnnxModel(onnx.parser.parse_model(filled(HELD, part)), Path("m")) for part in (HELD_BY_A_NODE, kept))
    for sides in ((file, given), (given, file)):
        assert Differences(*sides).targets == targets


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("at", [0, 7, 40])
def test_what_is_made_of_constants_is_told_apart_however_far_behind(at: int, order: int) -> None:
    """In whatever order the nodes stand."""
    steps = [f"c{n + 1} = Neg (c{n})" for n in range(41)]
    nodes = "c0 = Identity (zeros) {} a = Add (x, c41) b = Mul (a, c41) y = Sub (b, c3)"
    before = nodes.format(" ".join(steps[::order]))
    steps[at] = steps[at].replace("Neg", "Exp")
    after = differences(before, nodes.format(" ".join(steps[::order])))
    assert not differences(before, before).targets
    assert after.targets == {"a", "b", *(["y"] if at < 3 else [])}


def test_nodes_that_many_read_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[bytes]()
    original = hashlib.sha256

    def look(data: bytes) -> Any:
        looks.append(data)
        return original(data)

    monkeypatch.setattr(version, "hashlib", SimpleNamespace(sha256=look))
    chain = " ".join(f"c{n + 1} = Neg (c{n})" for n in range(30))
    readers = " ".join(f"a{n + 1} = Add (a{n}, c30)" for n in range(30))
    nodes = f"c0 = Identity (zeros) {chain} a0 = Add (x, c30) {readers} y = Neg (a30)"
    assert not differences(nodes, nodes).targets
    # Two models, and two looks at each node: at itself, and at what it reads.
    assert len(looks) <= 2 * 2 * (31 + 32)


def test_the_same_node_of_another_function_is_another() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[2,3] x) => (float[2,3] y) { y = own.f (x) }
    <domain: "own", opset_import: ["": 17]> f (a) => (b) { b = Relu (a) }"""
    file, given = (
        OnnxModel(onnx.parser.parse_model(text.replace("Relu", op)), Path("m.onnx")) for op in ("Relu", "Abs")
    )
    assert Differences(file, file).is_defined()
    assert not Differences(file, given).is_defined()


@pytest.mark.parametrize(("sizes", "changed"), [("2, 6, 4", None), ("2, 4, 6", "y"), ("2, 3, 8", "y")])
def test_sizes_are_those_of_what_they_are_taken_of(sizes: str, changed: str | None, runner: Process) -> None:
    """Both make `n`; with another number in its place the file's node would make another shape, or none."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,4,6] x) => (float[2,p,q] y)
        <int64 zero = {0}, int64[1] axis = {0}, int64[1] rest = {-1}, int64[1] three = {3}, int64[3] sizes = {SIZES}> {
        a = Relu (x)  s = Shape (a)  n = Gather (s, zero)  k = Unsqueeze (n, axis)  f = Mul (k, three)
        c = Concat <axis = 0> (k, f, rest)  y = Reshape (a, READ) }"""
    file, given = (
        OnnxModel(onnx.parser.parse_model(text.replace("READ", read).replace("SIZES", sizes)), Path("m"))
        for read in ("c", "sizes")
    )
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert ((found.changed and found.changed.tensor), found.missing) == (changed, {})


@pytest.mark.parametrize(("one", "changed"), [("one", None), ("zero", "y")])
def test_other_sizes_are_found_through_what_is_made_of_them(one: str, changed: str | None, runner: Process) -> None:
    """What a pass changes at `m` shows at y alone, whose node and those between are as they were."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2,4,6] x) => (float[p,q,r] y)
        <int64 zero = {0}, int64[1] axis = {0}, int64 one = {1}> {
        a = ReduceMax <keepdims = 1> (x)  s = Shape (x)  n = Gather (s, zero)  m = Add (n, READ)
        k = Unsqueeze (m, axis)  c = Concat <axis = 0> (k, k, k)  y = Expand (a, c) }"""
    file, given = (OnnxModel(onnx.parser.parse_model(text.replace("READ", read)), Path("m")) for read in ("one", one))
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed and found.changed.tensor) == changed


@pytest.mark.parametrize(("mask", "is_same"), [(-3.4028234663852886e38, True), (-8.0, False)])
def test_inputs_are_not_set_to_numbers_whose_products_overflow(mask: float, is_same: bool, runner: Process) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[64] x, bool[64] m) => (float[64] y)
    <float four = {4}, float quarter = {0.25}, float low = {LOW}, float z = {0}>
    { a = Mul (x, four)  b = Mul (a, quarter)  y = Where (m, b, low) }"""
    file, given = (OnnxModel(net(text.replace("LOW", str(mask))), Path("m.onnx")) for _ in range(2))
    del given.proto.graph.node[:2]
    given.proto.graph.node[0].input[1] = "x"
    if not is_same:
        equal = helper.make_node("Equal", ["x", "low"], ["e"])
        other = helper.make_node("Where", ["e", "z", "x"], ["b"])
        given.proto.graph.node[0].input[1] = "b"
        last = given.proto.graph.node.pop()
        given.proto.graph.node.extend([equal, other, last])
    found = compared_pieces(Differences(file, OnnxModel(given.proto, given.path)), EXACT, runner)
    assert (found.changed is None) == is_same


def test_one_result_of_an_operator_may_be_made_of_another(runner: Process) -> None:
    """A piece is not fed what an operator of the file computes beside what the piece is for."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[n,8] x, float[n,8] s) => (float[n,8] y)
    <float[8] g = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {1, 1, 1, 1, 1, 1, 1, 1}, float[n,8] z, float[n,8] t> {
        z, m, v, t = com.microsoft.SkipLayerNormalization <epsilon = 0.25> (x, s, g, b)
        a = Sin (t)  y = Add (a, z)
    }"""
    proto = net(text)
    proto.graph.node[0].output[1:3] = ["", ""]
    file = OnnxModel(proto, Path("m.onnx"))
    given = file.copy()
    assert run_passes(given, passes_for("as-is"), RTX).edits
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed, found.missing) == (None, {})
    assert found.matches >= 2


@pytest.mark.parametrize(
    ("end", "before", "after", "is_excused"),
    [
        (
            "float",
            "c = Cast <to = 1> (x)  y = Mul (c, k)",
            "e = Cast <to = 1> (x)  t = Mul (e, k)  y = Mul (t, f)",
            False,
        ),
        ("float16", "y = Mul (x, x)", "t = Mul (x, x)  e = Cast <to = 10> (f)  y = Mul (t, e)", True),
    ],
)
def test_what_a_file_only_casts_from_a_half_type_does_not_round_so(
    end: str, before: str, after: str, is_excused: bool, runner: Process
) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float16[2,3] x) => ({end}[2,3] y)
        <float[1] k = {{8.0}}, float[1] f = {{1.001}}> {{ NODES }}"""
    file, given = (
        OnnxModel(onnx.parser.parse_model(text.replace("NODES", nodes)), Path("m.onnx")) for nodes in (before, after)
    )
    tensors = tuple(ReadTensor(number, name, "float16", (2, 3)) for number, name in enumerate("xy"))
    differences = Differences(file, given, ReadNetwork(tensors, (), (0,), (1,)))
    assert (compared_pieces(differences, Claim(True, 0.0), runner).changed is None) is is_excused


def test_indices_into_a_table_whose_sizes_are_computed_are_rows_of_it(runner: Process) -> None:
    """The passes compare them with numbers, as is done with masks."""
    text = """<ir_version: 8, opset_import: ["": 18]>
        g (float[1,4] x, int64[5] at, float[5] u) => (float[n] y) <float zero = {0}>
        { s = Shape <end = 1> (x)  z = Expand (zero, s)  y = ScatterElements <reduction = "max"> (z, at, u) }"""
    file = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    given = file.copy()
    assert run_passes(given, passes_for("as-is"), RTX).edits
    found = compared_pieces(Differences(file, given), EXACT, runner)
    assert (found.changed, found.matches, found.missing) == (None, 1, {})
