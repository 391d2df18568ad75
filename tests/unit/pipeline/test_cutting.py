"""A model that is cut computes what it computed, whatever is refused and wherever it stands."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from support.partition_nets import BOUNDS, NETS, Net, value
from support.session import Array, run
from trtconv.core import codes
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range, Shape, ShapeProfile
from trtconv.core.errors import InputError
from trtconv.core.findings import Location
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.cut_shapes import Run
from trtconv.graph.divisible import Divisible
from trtconv.graph.lacking_types import readers_of_lacking_types
from trtconv.graph.model import OnnxModel
from trtconv.graph.partition import Links, NodeGroup, crossings, cut
from trtconv.pipeline.cutting import Cutting
from trtconv.pipeline.refusals import at_nodes, matching, nodes_of_computed_sizes, refused_nodes, selections
from trtconv.runtimes import observed


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Random graphs of float matrices: arithmetic, products, shapes that are computed, and branches with bodies."""
    net = Net(draw(st.integers(0, 99)))
    tensors = ["a", "b"]
    net.hold("flag", draw(st.booleans()), np.bool_)
    net.weights.append(helper.make_tensor("fill", TensorProto.FLOAT, [1], [0.5]))
    for number in range(draw(st.integers(1, 14))):
        op = draw(st.sampled_from(["Add", "Mul", "Tanh", "MatMul", "Sum", "Filled", "If"]))
        x, y = draw(st.sampled_from(tensors)), draw(st.sampled_from(tensors))
        name = f"t{number}"
        if op == "MatMul":
            net.matmul(x, (4, 4), name)
        elif op == "Tanh":
            net.add(op, [x], name)
        elif op == "Filled":
            shape = net.add("Shape", [x], f"{name}_shape")
            filled = net.add("ConstantOfShape", [shape], f"{name}_filled", value=net.weights[1])
            net.add("Add", [filled, y], name)
        elif op == "If":
            net.nodes.append(_choice(name, x, y))
        else:
            net.add(op, [x, y], name)
        tensors.append(name)
    outputs = draw(st.lists(st.sampled_from(tensors[2:]), min_size=1, unique=True))
    if tensors[-1] not in outputs:
        outputs.append(tensors[-1])
    size = draw(st.sampled_from([3, "rows"]))
    return net.model(
        [value(name, TensorProto.FLOAT, [size, 4]) for name in ("a", "b")],
        [value(name, TensorProto.FLOAT, [size, 4]) for name in outputs],
    )


def _choice(name: str, x: str, y: str) -> onnx.NodeProto:
    """An If whose branches take tensors from around it."""
    made = value(f"{name}_inner", TensorProto.FLOAT, [])
    made.type.tensor_type.ClearField("shape")
    branches = [
        helper.make_graph([helper.make_node(op, [x, y], [f"{name}_inner"])], op, [], [made]) for op in ("Add", "Sub")
    ]
    return helper.make_node("If", ["flag"], [name], name=name, then_branch=branches[0], else_branch=branches[1])


@st.composite
def dags(draw: st.DrawFn) -> dict[int, Links]:
    nodes = {}
    for index in range(draw(st.integers(1, 25))):
        before = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        nodes[index] = Links(frozenset({"x", *(f"t{each}" for each in before)}), (f"t{index}",))
    return nodes


@given(dags(), st.sets(st.integers(0, 24)), st.integers(1, 5))
def test_every_node_runs_once_and_after_what_it_reads(nodes: dict[int, Links], refused: set[int], least: int) -> None:
    parts = cut(nodes, refused & nodes.keys(), lambda held: len(held) >= least)
    assert sorted(index for part in parts for index in part.nodes) == sorted(nodes)
    ready = {"x"}
    for part in parts:
        own = {name for index in part.nodes for name in nodes[index].makes}
        assert all(nodes[index].reads <= ready | own for index in part.nodes)
        ready |= own
        if part.is_engine and refused & nodes.keys():
            assert not refused & set(part.nodes)
            assert len(part.nodes) >= least
    assert all(before.is_engine != after.is_engine for before, after in itertools.pairwise(parts))


def changes(nodes: dict[int, Links], refused: set[int]) -> int:
    """Returns how often the longest path goes from what is refused to what is not, or back."""
    makers = {name: index for index, links in nodes.items() for name in links.makes}
    most: dict[int, int] = {}
    for index, links in nodes.items():
        before = [makers[name] for name in links.reads if name in makers]
        most[index] = max((most[each] + ((each in refused) != (index in refused)) for each in before), default=0)
    return max(most.values())


@given(dags(), st.sets(st.integers(0, 24)))
def test_parts_are_few_and_no_node_had_better_be_in_another(nodes: dict[int, Links], refused: set[int]) -> None:
    refused &= nodes.keys()
    parts = cut(nodes, refused, lambda _: True)
    assert len(parts) <= changes(nodes, refused) + 2
    home = {index: number for number, part in enumerate(parts) for index in part.nodes}
    makers = {name: index for index, links in nodes.items() for name in links.makes}
    for index, links in nodes.items():
        first = max((home[makers[name]] for name in links.reads if name in makers), default=0)
        behind = (home[other] for other, each in nodes.items() if not each.reads.isdisjoint(links.makes))
        last = min(behind, default=len(parts) - 1)
        for number in range(first, last + 1):
            if parts[number].is_engine == (index not in refused):
                held = [[each for each in part.nodes if each != index] for part in parts]
                held[number].append(index)
                moved = [NodeGroup(part.is_engine, tuple(sorted(own))) for part, own in zip(parts, held, strict=True)]
                assert crossings(nodes, moved) >= crossings(nodes, parts)


@given(dags(), st.lists(st.integers(0, 3), min_size=25, max_size=25))
def test_what_crosses_is_counted_once_for_each_part_that_reads_it(nodes: dict[int, Links], homes: list[int]) -> None:
    parts = [NodeGroup(True, tuple(index for index in nodes if homes[index] == number)) for number in range(4)]
    pairs = {
        (name, homes[reader])
        for maker, made in nodes.items()
        for name in made.makes
        for reader, links in nodes.items()
        if name in links.reads and homes[reader] != homes[maker]
    }
    assert crossings(nodes, parts) == len(pairs)


def test_what_nothing_refuses_is_one_part() -> None:
    nodes = {0: Links(frozenset({"x"}), ("a",)), 1: Links(frozenset({"a"}), ("b",))}
    (part,) = cut(nodes, (), lambda _: False)
    assert part.is_engine
    assert part.nodes == (0, 1)


def test_a_node_stands_where_least_crosses() -> None:
    # 3 makes a small tensor of two large ones: they need not cross.
    nodes = {
        0: Links(frozenset({"x"}), ("a",)),
        1: Links(frozenset({"x"}), ("b",)),
        2: Links(frozenset({"a"}), ("refused",)),
        3: Links(frozenset({"a", "b"}), ("c",)),
        4: Links(frozenset({"c", "refused"}), ("y",)),
    }
    parts = cut(nodes, {2}, lambda _: True)
    assert [part.nodes for part in parts] == [(0, 1, 3), (2,), (4,)]
    assert crossings(nodes, parts) == 3


def test_what_waits_for_nothing_runs_later_where_that_saves_a_part() -> None:
    nodes = {
        0: Links(frozenset({"x"}), ("early",)),
        1: Links(frozenset({"x"}), ("a",)),
        2: Links(frozenset({"a", "early"}), ("y",)),
    }
    assert [part.nodes for part in cut(nodes, {0, 2}, lambda _: True)] == [(1,), (0, 2)]


def joined(whole: OnnxModel, cutting: Cutting, feeds: Mapping[str, Array]) -> list[Array]:
    """Runs the parts, one after the other, with nothing but what the cut says that crosses."""
    tensors = dict(feeds)
    for part in cutting.slices:
        model = cutting.model_of(part).proto
        onnx.checker.check_model(model)
        given = {each.name: tensors[each.name] for each in part.inputs}
        made = run(model, given)
        assert [value.name for value in model.graph.output] == [each.name for each in part.outputs]
        tensors.update(zip((each.name for each in part.outputs), made, strict=True))
    return [tensors[name] for name in whole.outputs]


def watching(model: OnnxModel) -> Run:
    """Returns what runs a model, in this process."""

    def look(names: Sequence[str], points: Sequence[Mapping[str, Shape]]) -> list[observed.Seen]:
        task = (model.serialize(), str(model.path), list(names), [dict(each) for each in points])
        rows: list[Any] = []
        observed.serve(task, rows.append)
        return [{name: (code, tuple(shape)) for name, (code, shape) in row["seen"].items()} for row in rows]

    return look


def profiles_of(model: OnnxModel, bounds: Mapping[str, str]) -> list[ShapeProfile]:
    return [make_profile(model.inputs, {name: Range.parse(text) for name, text in bounds.items()})]


@given(graphs(), st.data())
def test_a_cut_model_computes_what_it_did(proto: onnx.ModelProto, data: st.DataObject) -> None:
    model = OnnxModel(proto, Path("g.onnx"))
    refused = data.draw(st.sets(st.integers(0, len(proto.graph.node) - 1)))
    is_dynamic = any(isinstance(size, str) for size in model.inputs[0].dims)
    cutting = Cutting(
        model,
        dict.fromkeys(refused, "as the test has it"),
        profiles_of(model, {"rows": "1:3:5"} if is_dynamic else {}),
        {},
        watching(model),
        data.draw(st.sampled_from((None, lambda: Divisible(OnnxModel(proto, Path("g.onnx")), ())))),
    )
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal((3, 4)).astype(np.float32) for name in ("a", "b")}
    for expected, got in zip(run(proto, feeds), joined(model, cutting, feeds), strict=True):
        np.testing.assert_array_equal(expected, got)
    for part in cutting.slices:
        if part.is_engine and refused:
            assert refused.isdisjoint(cutting.origin(part))


@pytest.mark.parametrize("name", NETS)
def test_a_network_is_cut_where_it_must_be(name: str) -> None:
    model = OnnxModel(NETS[name](), Path("net.onnx"))
    ops = {"detector": "NonMaxSuppression", "packer": "NonZero", "matcher": "CDist"}
    refused = matching(model, [f"type:{ops[name]}"])
    cutting = Cutting(
        model,
        dict.fromkeys(refused, "as the test has it"),
        profiles_of(model, BOUNDS[name]),
        {},
        watching(model),
    )
    kinds = [part.is_engine for part in cutting.slices]
    assert kinds == {"detector": [True, False], "packer": [True, False], "matcher": [True, False, True]}[name]
    random = np.random.default_rng(1)
    for size in range(10):
        feeds = {
            "detector": {"images": (1, 3, 32 + 16 * (size % 4), 48)},
            "packer": {"embeddings": (2, 4 + size, 32), "mask": (2, 4 + size)},
            "matcher": {"x": (1, 3, 8 + size, 9)},
        }[name]
        arrays = {key: random.standard_normal(shape).astype(np.float32) for key, shape in feeds.items()}
        if "mask" in arrays:
            arrays["mask"] = arrays["mask"] > 0
        for expected, got in zip(run(model.proto, arrays), joined(model, cutting, arrays), strict=True):
            np.testing.assert_array_equal(expected, got)


FILE = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,2,8,8] x) => (float[1,2,16,16] y) <float[2,2,3,3] w = {WEIGHTS}>
    {
        c1 = Neg (x)  c2 = Abs (c1)  c3 = Sin (c2)  c4 = Cos (c3)  c5 = Tanh (c4)  c6 = Sigmoid (c5)
        a = Relu (c6)  b = Exp (a)
        u = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]> (b, w)
        y = Neg (u)
    }
""".replace("WEIGHTS", ", ".join(map(str, range(36))))


def parts_of(file: str, rewritten: str, refused: Sequence[str]) -> list[onnx.ModelProto]:
    """Returns the parts of a model of which passes made another."""
    given = OnnxModel(onnx.parser.parse_model(file), Path("g.onnx"))
    model = OnnxModel(onnx.parser.parse_model(rewritten), Path("g.onnx"))
    reasons = dict.fromkeys(matching(model, [f"type:{op}" for op in refused]), "as the test has it")
    cutting = Cutting(model, reasons, profiles_of(model, {}), {}, watching(model), lambda: Divisible(given, ()))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 2, 8, 8)).astype(np.float32)}
    for expected, got in zip(run(given.proto, feeds), joined(given, cutting, feeds), strict=True):
        np.testing.assert_allclose(expected, got, rtol=1e-6)
    return [cutting.model_of(part).proto for part in cutting.slices if not part.is_engine]


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_what_is_left_has_the_nodes_of_the_file() -> None:
    rewritten = FILE.replace("pads = [1, 1, 1, 1], output_padding = [1, 1]", "pads = [1, 1, 0, 0]")
    (left,) = parts_of(FILE, rewritten, ["Exp", "ConvTranspose"])
    assert ops(left) == ["Exp", "ConvTranspose", "Neg"]
    assert "output_padding" in {attribute.name for attribute in left.graph.node[1].attribute}


@pytest.mark.parametrize(
    ("rewritten", "left"),
    [
        # What crosses is none of the file's tensors, or one of another type.
        (FILE.replace("b = Exp (a)", "q = Neg (a)  r = Exp (q)  b = Reciprocal (r)"), ["Exp", "Reciprocal"]),
        (
            FILE.replace("a = Relu (c6)  b", "z = Relu (c6)  a = Cast <to = 11> (z)  e").replace(
                "u =", "b = Cast <to = 1> (e)  u ="
            ),
            ["Exp", "Cast"],
        ),
    ],
)
def test_what_the_file_does_not_make_of_what_crosses_is_left_as_it_was_rewritten(
    rewritten: str, left: list[str]
) -> None:
    (part,) = parts_of(FILE, rewritten, ["Exp", "ConvTranspose"])
    assert ops(part) == [*left, "ConvTranspose", "Neg"]


def test_what_another_part_makes_is_not_made_again() -> None:
    # In the file the sum takes what an engine makes here, of what its own part has too.
    file = FILE.replace("b = Exp (a)", "t = Sin (x)  b = Add (t, a)")
    rewritten = FILE.replace("b = Exp (a)", "t = Sin (x)  n = Neg (t)  m = Neg (n)  b = Sum (m, a, zero)").replace(
        "a = Relu (c6)", "zero = Sub (x, x)  a = Relu (c6)"
    )
    (part,) = parts_of(file, rewritten, ["Sum", "Sub", "ConvTranspose"])
    assert ops(part) == ["Sub", "Sum", "ConvTranspose", "Neg"]


def test_what_is_seen_is_seen_in_a_process_of_its_own() -> None:
    model = OnnxModel(NETS["matcher"](), Path("net.onnx"))
    points = [{"x": (1, 3, 4, size)} for size in (4, 6)]
    assert observed.observe(model, ["distances"], points) == watching(model)(["distances"], points)
    # What depends on values is not the same twice.
    packer = OnnxModel(NETS["packer"](), Path("net.onnx"))
    shapes = {"embeddings": (2, 40, 32), "mask": (2, 40)}
    assert watching(packer)(["packed", "mixed"], [shapes]) == [{"mixed": (onnx.TensorProto.FLOAT, (2, 40, 32))}]


def test_sizes_behind_an_unknown_operator_are_seen_and_bounded() -> None:
    model = OnnxModel(NETS["matcher"](), Path("net.onnx"))
    cutting = Cutting(
        model,
        dict.fromkeys(matching(model, ["distances"]), "as the test has it"),
        profiles_of(model, BOUNDS["matcher"]),
        {},
        watching(model),
    )
    (dims,) = cutting.slices[2].dims
    assert list(dims.values()) == [Range(64, 256, 1024)]
    # One name for one size: the engine behind has the rows of the one in front.
    assert cutting.slices[0].outputs[0].shape == (*dims, 8)


def test_what_nobody_knows_is_told_from_what_only_values_tell() -> None:
    for name, refused, why in (
        ("matcher", "distances", "nobody knows what a tensor is that it reads"),
        ("packer", "type:NonZero", "a tensor that it reads has a size that only values tell, and no bounds"),
    ):
        model = OnnxModel(NETS[name](), Path("net.onnx"))
        reasons = dict.fromkeys(matching(model, [refused]), "as the test has it")
        Cutting(model, reasons, profiles_of(model, BOUNDS[name]), {}, lambda names, sizes: [])
        others = {reason for reason in reasons.values() if reason != "as the test has it"}
        assert len(others) == 1 and others.pop().startswith(why), name


def test_what_only_values_tell_is_an_engine_where_it_has_bounds() -> None:
    model = OnnxModel(NETS["packer"](), Path("net.onnx"))

    def cutting(bounds: Mapping[str, Range]) -> Cutting:
        refused = dict.fromkeys(matching(model, ["type:NonZero"]), "as the test has it")
        profiles = profiles_of(model, BOUNDS["packer"])
        return Cutting(model, refused, profiles, bounds, watching(model))

    assert [part.is_engine for part in cutting({}).slices] == [True, False]
    bounded = cutting({"packed:0": Range(1, 16, 128), "nonsense": Range(1, 1, 1)})
    assert [part.is_engine for part in bounded.slices] == [True, False, True]
    assert bounded.slices[2].dims == ({"packed:0": Range(1, 16, 128)},)
    assert bounded.unused == ["nonsense"]


def test_what_reads_a_type_that_tensorrt_has_not_is_left() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x, uint64 s, bool c) => (string[4] n, float[4] y, float[4] z)
        <string[2] names = {"cat", "dog"}, uint16[1] k = {2}, int64[1] fine = {1}>
        {
            a = Relu (x)  i = Cast <to = 7> (a)  n = Gather (names, i)  f = Cast <to = 1> (s)  y = Mul (a, f)
            z = If (c) <then_branch = t () => (float[4] u) { w = Cast <to = 1> (k)  u = Add (a, w) },
                        else_branch = e () => (float[4] v) { v = Exp (a) }>
            b = Cast <to = 1> (fine)
        }
    """
    model = OnnxModel(onnx.parser.parse_model(text), Path("g.onnx"))
    assert list(readers_of_lacking_types(model)) == [(2, "names", "string"), (3, "s", "uint64"), (5, "k", "uint16")]
    clock = Stopwatch(None)
    reasons = refused_nodes(model, Target("tensorrt", (10, 0)), None, (), clock)
    assert reasons[2] == "TensorRT has no string, which 'names' is of"
    assert {2, 3, 5} <= reasons.keys() and 0 not in reasons


def test_sizes_that_are_computed_are_blamed_operator_by_operator() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[h,4] x) => (float[p,q] y) <int64[1] k = {2}, int64[2] two = {2, 2}, int64[4] none = {0, 0, 0, 1}> {
            a = Tile (x, two)  s = Shape (a)  n = Gather (s, k)  b = Pad (a, none)  m = Concat <axis = 0> (n, k)
            c = Reshape (b, m)  d = Pad (c, none)  l = Concat <axis = 0> (m, m)  e = Pad (d, l)  y = Reshape (e, two)
        }
    """
    model = OnnxModel(onnx.parser.parse_model(text), Path("g.onnx"))
    assert nodes_of_computed_sizes(model) == [8]
    proto = onnx.parser.parse_model(text.replace("e = Pad (d, l)", "e = Pad (d, none)"))
    assert nodes_of_computed_sizes(OnnxModel(proto, Path("g.onnx"))) == [5]
    proto = onnx.parser.parse_model(text.replace("e = Pad (d, l)", "e = Relu (d)").replace("(b, m)", "(b, two)"))
    assert nodes_of_computed_sizes(OnnxModel(proto, Path("g.onnx"))) == []


def test_a_fault_inside_a_branch_refuses_the_whole_if() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x, bool c) => (float[4] y)
        {
            a = Relu (x)
            [choice] y = If (c) <
                then_branch = t () => (float[4] u) { u = Tanh (a) },
                else_branch = e () => (float[4] v) {
                    [inner] v = If (c) <
                        then_branch = tt () => (float[4] w) { [deep] w = Exp (a) },
                        else_branch = ee () => (float[4] z) { z = Log (a) }
                    >
                }
            >
        }
    """
    model = OnnxModel(onnx.parser.parse_model(text), Path("g.onnx"))
    deep = next(scope for scope in model.scopes if "Exp" in scope.by_op)
    finding = codes.PARSER_REFUSED.finding("no Exp", place=deep.location(0))
    assert at_nodes(model, [finding]) == {1: "no Exp"}
    assert at_nodes(model, [codes.PARSER_REFUSED.finding("no Relu", place=Location(node="choice"))]) == {1: "no Relu"}


def test_patterns_mean_names_and_operators() -> None:
    model = OnnxModel(NETS["detector"](), Path("net.onnx"))
    assert matching(model, ["type:NonMaxSuppression"]) == matching(model, ["selected"])
    assert len(matching(model, ["*_act"])) == 5
    assert selections(model, range(len(model.main.columns))) == matching(model, ["selected"])
    with pytest.raises(InputError):
        matching(model, ["type:NonMaximumSuppression"])


CHOSEN = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,1,height,8] x) => (float[] y)
    <int64[1] k0 = {0}, int64[1] k2 = {2}, int64[1] k123 = {123}, int64[1] k240 = {240}, float[300] v>
    {
        d = Shape (x)  h = Gather (d, k2)  c = Equal (h, k123)  b = Squeeze (c)  top = Max (h, k240)
        [choice] size = If (b) <then_branch = p () => (int64[1] e) { e = Identity (top) },
                                else_branch = q () => (int64[1] f) { f = Identity (h) }>
        t = Slice (v, k0, size, k0)
        [middle] m = Softsign (t)
        m1 = Neg (m)  m2 = Abs (m1)  m3 = Sin (m2)  m4 = Cos (m3)  m5 = Tanh (m4)  y = Sigmoid (m5)
    }"""
"""A vector as long as an image is high, but for images of 123 rows."""


@pytest.mark.parametrize("left", [["middle"], ["middle", "choice"]])
def test_sizes_that_nothing_but_a_run_tells_are_looked_at_everywhere(left: Sequence[str]) -> None:
    """Whoever computes them: where the If is refused too, its value crosses, and what it shapes is known."""
    proto = onnx.parser.parse_model(CHOSEN.replace("float[300] v", f"float[300] v = {{{', '.join('1' * 300)}}}"))
    model = OnnxModel(proto, Path("g.onnx"))
    refused = dict.fromkeys(matching(model, left), "as the test has it")
    cutting = Cutting(model, refused, profiles_of(model, {"height": "8:12:200"}), {}, watching(model))
    (last,) = [part for part in cutting.slices if part.is_engine]
    assert [tensor.name for tensor in last.inputs] == ["m"]
    assert last.dims == ({"size0": Range(8, 12, 240)},)
    assert cutting.unbounded == ()
