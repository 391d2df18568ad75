"""What strangers write into models is written down as terms in little time and memory, or not at all."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.terms import of_model, of_network
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.defined import is_kept
from trtconv.runtimes.proof.terms.term import Term, Wordless
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

X = ReadTensor(0, "x", "float32", (2, 6, 2, 2))


def model_of(body: str, opset: int = 17, **constants: Any) -> OnnxModel:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2,6,2,2] x) => (float y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(held), name) for name, held in constants.items())
    return OnnxModel(proto, Path("m.onnx"))


def terms_of(model: OnnxModel, **sources: Term) -> Mapping[str, Term | None]:
    given = sources or {"x": terms.tensor("x", "float32", X.shape or ())}
    return of_model.NodeTerms(model).of(range(len(model.proto.graph.node)), given)


def shows_itself(model: OnnxModel) -> bool:
    nodes = range(len(model.proto.graph.node))
    return is_kept(model, model, (nodes, nodes), "y", [X])


MUCH: dict[str, tuple[str, dict[str, Any]]] = {
    "sums": ("y = Add (a, b)", {"a": np.zeros((4096, 1)), "b": np.zeros((1, 4096))}),
    "choices": ("y = Where (c, a, b)", {"c": np.zeros((4096, 1), bool), "a": np.zeros((1, 4096)), "b": np.zeros(1)}),
    "remainders": ("y = Mod (a, b)", {"a": np.ones((4096, 1), np.int64), "b": np.ones((1, 4096), np.int64)}),
    "rows": ("y = Gather (a, i)", {"a": np.zeros((2, 2048)), "i": np.zeros(4096, np.int64)}),
    "a range": ("y = Range (a, b, s)", {"a": np.int32(-(2**31)), "b": np.int32(2**31 - 1), "s": np.int32(256)}),
    "zeros": (
        "y = ConvTranspose <strides = [400, 400], output_padding = [399, 399]> (x, k)",
        {"k": np.ones((6, 8, 1, 1), np.float32)},
    ),
    "copies": ("y = Expand (a, n)", {"a": np.zeros((1, 1)), "n": np.array([4096, 4096])}),
    "tiles": ("y = Tile (a, n)", {"a": np.zeros((4096, 1)), "n": np.array([1, 4096])}),
    "tiles of which none is left": ("y = Tile (a, n)", {"a": np.zeros((1, 1)), "n": np.array([1 << 24, 0])}),
    "one value": ("y = ConstantOfShape (n)", {"n": np.array([4096, 4096])}),
    "doubles": (
        """a = Concat <axis = 0> (w, w) b = Concat <axis = 0> (a, a) c = Concat <axis = 0> (b, b)
        y = Concat <axis = 0> (c, c)""",
        {"w": np.zeros((1, 1 << 19), np.float32)},
    ),
    "parts": (
        " ".join(f"p{at} = Slice (w, one, far)" for at in range(9)) + " y = Identity (p0)",
        {"w": np.zeros(1 << 21, np.float32), "one": np.array([1]), "far": np.array([1 << 40])},
    ),
    "turns": (
        " ".join(f"t{at} = Transpose (r{at}) r{at + 1} = Reshape (t{at}, s)" for at in range(9)) + " y = Identity (r9)",
        {"r0": np.zeros((1024, 2048), np.float32), "s": np.array([1024, 2048])},
    ),
}  # fmt: skip
"""Nodes that make much of few constants, or many copies of one."""


@pytest.mark.parametrize("name", MUCH)
def test_what_is_much_is_not_made(name: str) -> None:
    body, constants = MUCH[name]
    model = model_of(body, **constants)
    tracemalloc.start()
    with contextlib.suppress(Wordless):
        terms_of(model)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The constants themselves, and as they lie in the file.
    assert most < 3 * sum(np.asarray(held).nbytes for held in constants.values()) + (4 << 20)


def test_what_many_make_of_few_is_not_made() -> None:
    """Each makes no more than it may."""
    body = " ".join(f"e{at} = Expand (one, sizes)" for at in range(200))
    constants: dict[str, Any] = {"one": np.ones(1, np.float32), "sizes": np.array([1 << 16])}
    assert terms_of(model_of(f"{body[:24]} y = Identity (e0)", **constants))["y"] is not None
    with pytest.raises(Wordless):
        terms_of(model_of(f"{body} y = Identity (e0)", **constants))
    # What a model has itself is not made.
    body = " ".join(f"e{at} = Identity (w)" for at in range(99))
    assert terms_of(model_of(f"{body} y = Identity (e0)", w=np.zeros(1 << 17, np.uint8)))["y"] is not None


def test_what_many_layers_make_of_few_is_not_made() -> None:
    values = {"start": (0,), "shape": (1 << 16,), "stride": (0,), "mode": "FILL"}
    tensors = [
        ReadTensor(0, "c", "float32", (1,)),
        *(ReadTensor(n, f"e{n}", "float32", (1 << 16,)) for n in range(1, 99)),
    ]
    layers = tuple(ReadLayer(n, "", "SLICE", (0,), (n + 1,), values) for n in range(98))
    network, one = ReadNetwork(tuple(tensors), layers, (), ()), terms.constant(np.ones(1, np.float32))
    assert of_network.terms_of(network, range(9), {0: one})[9] is not None
    with pytest.raises(Wordless):
        of_network.terms_of(network, range(98), {0: one})


def test_what_occurs_in_many_places_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    term, others = terms.constant(np.zeros(9000, np.float32)), terms.constant(np.zeros(9000, np.float32))
    looks = list[Any]()

    def look(*arrays: Any) -> bool:
        looks.append(arrays)
        return True

    monkeypatch.setattr(terms, "same_bits", look)
    for _ in range(20):
        term, others = terms.joined("PROD", term, term), terms.joined("PROD", others, others)
    assert terms.same(term, others)
    assert len(looks) == 1


def test_what_is_deep_is_not_shown() -> None:
    body = " ".join(f"t{at + 1} = Neg (t{at})" for at in range(1, 2000))
    assert not shows_itself(model_of(f"t1 = Neg (x) {body} y = Neg (t2000)"))
    assert shows_itself(model_of("t1 = Neg (x) y = Neg (t1)"))


def test_what_cannot_be_read_is_not_shown(tmp_path: Path) -> None:
    model = model_of("y = Add (x, w)", w=np.zeros((2, 2), np.float32))
    assert shows_itself(model)
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    (weight,) = proto.graph.initializer
    onnx.external_data_helper.set_external_data(weight, "nowhere.bin")
    weight.ClearField("raw_data")
    assert not shows_itself(OnnxModel(proto, tmp_path / "m.onnx"))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_results_without_names_have_no_words(place: int) -> None:
    """They count: how many there are says how long each is."""
    model = model_of("a, y = Split <axis = 1> (x)")
    assert terms_of(model)["y"] is not None
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto.graph.node[0].output[:] = [*["a", "y"][:place], "", *["a", "y"][place:]]
    with pytest.raises(Wordless):
        terms_of(OnnxModel(proto, Path("m.onnx")))


def test_operators_of_old_opsets_have_no_words() -> None:
    """A BatchNormalization normalises by its batch then, where nothing is said."""
    body, numbers = "s = Identity (n) y = BatchNormalization (x, s, s, s, s)", np.ones(6, np.float32)
    assert terms_of(model_of(body, 7, n=numbers))["y"] is not None
    with pytest.raises(Wordless):
        terms_of(model_of(body, 6, n=numbers))


def test_operators_of_opsets_to_come_have_no_words() -> None:
    """They may mean something else than those that the onnx which is installed knows."""
    newest = onnx.defs.onnx_opset_version()
    assert terms_of(model_of("y = Relu (x)", newest))["y"] is not None
    with pytest.raises(Wordless, match=str(newest + 1)):
        terms_of(model_of("y = Relu (x)", newest + 1))


def test_numbers_of_single_places_have_no_words() -> None:
    body = "s = Identity (n) y = BatchNormalization <spatial = SPATIAL> (x, s, s, s, s)"
    source = terms.tensor("x", "float32", (2, -1, 2, 2))
    assert terms_of(model_of(body.replace("SPATIAL", "1"), 7, n=np.ones(6, np.float32)), x=source)["y"] is not None
    with pytest.raises(Wordless):
        terms_of(model_of(body.replace("SPATIAL", "0"), 7, n=np.ones(24, np.float32)), x=source)


@pytest.mark.parametrize(
    "node",
    [
        "ReduceMax <axes = [1], keepdims = FLAG> (x)",
        "AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1], count_include_pad = FLAG> (x)",
        "CumSum <exclusive = FLAG> (x, one)",
        "CumSum <reverse = FLAG> (x, one)",
        "Reshape <allowzero = FLAG> (x, sizes)",
        "Gemm <transA = FLAG> (w, w)",
        "IsInf <detect_negative = FLAG, detect_positive = 1> (x)",
    ],
)
def test_flags_are_0_or_1(node: str) -> None:
    """TensorRT takes 2 for a yes, ONNX Runtime for a no."""

    def term(flag: int) -> Term | None:
        constants: dict[str, Any] = {"one": np.array([1]), "sizes": np.array([4, -1]), "w": np.ones((2, 2), np.float32)}
        return terms_of(model_of(f"y = {node.replace('FLAG', str(flag))}", **constants))["y"]

    assert term(1) is not None
    for flag in (2, -1):
        with pytest.raises(Wordless):
            term(flag)


@pytest.mark.parametrize(("dtype", "known"), [("int32", True), ("bool", False), ("float32", False)])
def test_sizes_are_those_of_a_term_in_integers_alone(dtype: str, known: bool) -> None:
    """As booleans, all sizes are 1."""
    values = {"first_transpose": (0, 1), "reshape_dims": None, "zero_is_placeholder": False, "second_transpose": (0, 1)}
    tensors = [
        ReadTensor(0, "x", "float32", (-1, 4)),
        ReadTensor(1, "s", "int64", (2,)),
        ReadTensor(2, "d", dtype, (2,)),
    ]
    tensors += [ReadTensor(3, "e", "int64", (2,)), ReadTensor(4, "y", "float32", (-1, -1))]
    layers = (
        ReadLayer(0, "s", "SHAPE", (0,), (1,), {}),
        ReadLayer(1, "d", "CAST", (1,), (2,), {}),
        ReadLayer(2, "e", "CAST", (2,), (3,), {}),
        ReadLayer(3, "y", "SHUFFLE", (0, 3), (4,), values),
    )
    network = ReadNetwork(tuple(tensors), layers, (0,), (4,))
    x = terms.tensor("x", "float32", (-1, 4))
    if known:
        assert of_network.terms_of(network, range(4), {0: x})[4] is x
        return
    with pytest.raises(Wordless):
        of_network.terms_of(network, range(4), {0: x})


@pytest.mark.parametrize(
    ("size", "inferred", "known"), [(-1, -1, True), (4, -1, True), (4, 4, True), (-1, 4, False), (4, 5, False)]
)
def test_sizes_that_only_tensorrt_knows_are_not_taken_over(size: int, inferred: int, known: bool) -> None:
    """What comes after would have them on both sides, where nobody compares them."""
    tensors = ReadTensor(0, "x", "float32", (size,)), ReadTensor(1, "y", "float32", (inferred,))
    network = ReadNetwork(tensors, (ReadLayer(0, "y", "UNARY", (0,), (1,), {"op": "NEG"}),), (0,), (1,))
    with contextlib.nullcontext() if known else pytest.raises(Wordless):
        assert of_network.terms_of(network, [0], {0: terms.tensor("x", "float32", (size,))})[1] is not None


@pytest.mark.parametrize(
    ("nodes", "layers", "shown"),
    [
        ("y = Gather (x, i)", ("int64",), True),
        # As TensorRT-RTX's parser has it: what int32 does not hold is beyond the end.
        ("y = Gather (x, i)", ("int64", "int32"), True),
        ("j = Cast <to = 6> (i) k = Cast <to = 7> (j) y = Gather (x, k)", ("int64",), False),
        ("j = Cast <to = 7> (i) y = Gather (x, j)", ("int32",), True),
    ],
)
def test_indices_that_a_model_makes_narrow_are_not_those_that_it_was_given(
    nodes: str, layers: tuple[str, ...], shown: bool
) -> None:
    """2 ** 32 + 1 is 1 then."""
    tensors = [ReadTensor(n, f"i{n}", dtype, (3,)) for n, dtype in enumerate(layers)]
    last = len(tensors) - 1
    casts = [ReadLayer(n, "", "CAST", (n,), (n + 1,), {}) for n in range(last)]
    tensors += [ReadTensor(last + 1, "x", "float32", X.shape), ReadTensor(last + 2, "y", "float32", (3, 6, 2, 2))]
    values = {"axis": 0, "mode": "DEFAULT", "num_elementwise_dims": 0}
    gather = ReadLayer(last, "y", "GATHER", (last + 1, last), (last + 2,), values)
    network = ReadNetwork(tuple(tensors), (*casts, gather), (), ())
    x, i = terms.tensor("x", "float32", X.shape or ()), terms.tensor("i", layers[0], (3,))
    one = of_network.terms_of(network, range(last + 1), {0: i, last + 1: x})[last + 2]
    other = terms_of(model_of(nodes), x=x, i=i)["y"]
    assert one is not None and other is not None and terms.same(one, other) == shown


@pytest.mark.parametrize("at", range(4))
def test_nothing_is_near_what_infinite_parameters_come_to(at: int) -> None:
    """Infinite times zero is no number: (x - mean) * scale is not x * scale - mean * scale either."""
    x = terms.tensor("x", "float32", X.shape or ())
    shape = (1, 6, 1, 1)
    factor, summand = (terms.constant(np.full(shape, number, np.float32)) for number in (1, 0))
    layer = terms.joined("SUM", terms.joined("PROD", x, factor), summand)

    def is_shown(number: float) -> bool:
        parameters: list[Any] = [np.full(6, usual, np.float32) for usual in (1, 0, 0, 1 - 2**-10)]
        parameters[at][3] = number
        constants = dict(zip("sbmv", parameters, strict=True))
        model = model_of("y = BatchNormalization <epsilon = 0.0009765625> (x, s, b, m, v)", **constants)
        node = terms_of(model, x=x)["y"]
        return node is not None and terms.same(node, layer)

    assert is_shown((1, 0, 0, 1 - 2**-10)[at])
    assert not is_shown(np.inf)
