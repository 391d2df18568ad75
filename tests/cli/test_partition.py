"""`build --partition` and what is done with a pipeline, on the real TensorRT-RTX."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import trtconv
from support.cli import Ended
from support.partition_nets import NETS, flags, write
from support.session import run
from trtconv.core.documents.pipeline import PartKind, load_document
from trtconv.core.documents.saved import load_report

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt-rtx has no package for this platform"
)
QUICK = ("--prove", "none", "-q")
Call = Callable[..., Ended]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pipelines of all networks."""
    from trtconv.cli import main

    folder = tmp_path_factory.mktemp("pipelines")
    for name in NETS:
        assert main(["build", str(write(name, folder)), "--partition", *flags(name), "-q"]) == 0
    return folder


@pytest.mark.parametrize("name", NETS)
def test_what_tensorrt_takes_becomes_engines(built: Path, name: str) -> None:
    document = load_document(built / f"{name}.pipeline.json").document
    assert len(document.left) >= 1
    kinds = [part.kind.value for part in document.parts]
    assert kinds == ["engine", "onnx", *(["engine"] if name == "matcher" else [])]
    for part in document.parts:
        for file in filter(None, (part.runs, part.onnx)):
            assert hashlib.sha256((built / file.file).read_bytes()).hexdigest() == file.sha256
        onnx.load(built / part.model.file)
        if part.kind is PartKind.ENGINE:
            report = load_report(built / f"{part.file}.json").report
            assert report.proof is not None
            assert report.proof.agrees
            # The file that the report names is the one that was written.
            assert report.model.sha256 == part.model.sha256
            assert Path(report.model.path) == built / part.model.file


def test_what_is_up_to_date_is_kept_and_what_is_not_is_built_again(built: Path, call: Call) -> None:
    command = ["build", str(built / "detector.onnx"), "--partition", *flags("detector"), "-q", "--format", "json"]
    assert json.loads(call(*command).out)["up_to_date"] is True
    altered = built / "detector.2.part.onnx"
    altered.write_bytes(altered.read_bytes() + b"\0")
    again = json.loads(call(*command).out)
    assert again["up_to_date"] is False
    assert again["path"] == str(built / "detector.pipeline.json")
    assert [build["exit_code"] for build in again["engines"]] == [0]


def test_an_older_pipeline_leaves_no_parts(tmp_path: Path, call: Call) -> None:
    model = str(write("matcher", tmp_path))
    assert call("build", model, "--partition", *flags("matcher"), *QUICK).code == 0
    assert (tmp_path / "matcher.3.part.engine").exists()
    assert (
        call("build", model, "--partition", *flags("matcher"), "--leave", "thi*", "--leave", "fourth", *QUICK).code == 0
    )
    left = {path.name for path in tmp_path.iterdir()}
    assert {"matcher.3.part.engine", "matcher.3.part.engine.json", "matcher.3.part.onnx"}.isdisjoint(left)
    assert {"matcher.1.part.engine", "matcher.2.part.onnx", "matcher.pipeline.json"} <= left


def test_bounds_of_what_values_tell_make_an_engine_of_the_rest(tmp_path: Path, call: Call) -> None:
    model = str(write("packer", tmp_path))
    ended = call("build", model, "--partition", *flags("packer"), "--dim", "packed:0=1:16:128", "-q")
    assert ended.code == 0
    document = load_document(tmp_path / "packer.pipeline.json").document
    assert [part.kind.value for part in document.parts] == ["engine", "onnx", "engine"]
    (profile,) = load_report(tmp_path / "packer.3.part.engine.json").profiles
    assert profile.inputs["packed"].max == (128, 32)
    assert [crossing.name for crossing in document.crossings] == ["mixed", "packed"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--partition", "--dim", "batch=1"], 2),
        (["--partition", *flags("packer"), "--dim", "pakced:0=1:2:4"], 2),
        (["--partition", *flags("packer"), "--leave", "type:NonZeros"], 2),
        (["--leave", "type:NonZero", *flags("packer")], 2),
        (["--partition", *flags("packer"), "--tune"], 2),
        (["--partition", *flags("packer"), "--leave", "*"], 1),
    ],
)
def test_a_build_that_fails_writes_nothing(tmp_path: Path, call: Call, arguments: list[str], code: int) -> None:
    model = write("packer", tmp_path)
    assert call("build", str(model), *arguments).code == code
    assert list(tmp_path.iterdir()) == [model]


def test_nothing_of_the_users_is_replaced(tmp_path: Path, call: Call) -> None:
    model = write("detector", tmp_path)
    mine = tmp_path / "detector.pipeline.json"
    mine.write_text('{"mine": true}')
    assert call("build", str(model), "--partition", *flags("detector"), "-q").code == 2
    assert mine.read_text() == '{"mine": true}'


def test_what_tensorrt_takes_whole_is_one_engine(tmp_path: Path, call: Call) -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,4] y) { y = Relu (x) }
    """
    model = tmp_path / "relu.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    assert call("build", str(model), "--partition", "-q").code == 0
    (part,) = load_document(tmp_path / "relu.pipeline.json").document.parts
    assert part.kind is PartKind.ENGINE


LISTS = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,h,w] x) => (float[1,8,h,w] y, seq(float[1,1,h,w]) l, float[1,8,h,w] y)
<int64 n = {3}, bool on = {1}, float half = {0.5}> {
    a = Conv <pads = [1,1,1,1]> (x, w1)  b = Relu (a)  c = Conv <pads = [1,1,1,1]> (b, w2)  d = Relu (c)
    s = ReduceSum <keepdims = 0> (d)  m = Greater (s, half)
    e = Loop <body = body (int64 i, bool c0, float[1,8,h,k] p) => (bool c1, float[1,8,h,k2] q)
        { q = Concat <axis = 3> (p, d)  c1 = And (c0, m) }> (n, on, d)
    f = ReduceMax <axes = [3]> (e)  t = Add (d, f)  y = Relu (t)  l = SplitToSequence <axis = 1> (y)
}"""


def test_loops_that_grow_sequences_and_outputs_that_are_listed_twice(tmp_path: Path, call: Call) -> None:
    """The builder refuses the loop and names no node: what holds graphs is left out, and not the whole part."""
    proto = onnx.parser.parse_model(LISTS)
    random = np.random.default_rng(0)
    for name, channels in (("w1", 3), ("w2", 8)):
        values = random.standard_normal((8, channels, 3, 3)).astype(np.float32) / channels
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(proto, tmp_path / "m.onnx")
    dims = ("--dim", "h=16:32:64", "--dim", "w=16:32:64", "--target", "rtx")
    assert call("build", str(tmp_path / "m.onnx"), "--partition", *dims, "-q").code == 0
    document = load_document(tmp_path / "m.pipeline.json").document
    assert PartKind.ENGINE in {part.kind for part in document.parts}
    assert [tensor.name for tensor in document.outputs] == ["y", "l"]
    x = random.standard_normal((1, 3, 24, 40)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    command = ["run", str(tmp_path / "m.pipeline.json"), "--inputs", str(tmp_path / "in.npz"), "-q"]
    assert call(*command, "-o", str(tmp_path / "y.npz"), "--engines", "onnxruntime").code == 0
    expected = run(onnx.load(tmp_path / "m.onnx"), {"x": x})
    with np.load(tmp_path / "y.npz") as arrays:
        assert list(arrays.files) == ["y", *(f"l:{number}" for number in range(8))]
        np.testing.assert_allclose(arrays["y"], expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(arrays["l:7"], arrays["y"][:, 7:])


BRANCHED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,h,w] x) => (float[1,8,p,q] y) <float half = {0.5}> {
    a = Conv <pads = [1,1,1,1]> (x, w1)  b = Relu (a)  c = Conv <pads = [1,1,1,1]> (b, w2)  d = Relu (c)
    s = ReduceSum <keepdims = 0> (d)  m = Greater (s, half)
    e = If (m) <then_branch = t () => (float[] u) { u = Neg (d) }, else_branch = f () => (float[] v) { v = Relu (d) }>
    y = Conv (e, w7)
}"""


def test_graphs_inside_are_no_excuse_for_sizes_that_do_not_fit(tmp_path: Path, call: Call) -> None:
    """At the smallest sizes the last kernel is larger than what it goes over."""
    proto = onnx.parser.parse_model(BRANCHED)
    for name, shape in {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w7": (8, 8, 7, 7)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.full(shape, 0.1, np.float32), name))
    onnx.save(proto, tmp_path / "m.onnx")
    dims = ("--dim", "h=4:32:64", "--dim", "w=4:32:64", "--target", "rtx", "--prove", "none")
    assert call("build", str(tmp_path / "m.onnx"), "--partition", *dims, "-q").code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


TABLE = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,h,w] x) => (float[1,8,p,q] y)
<int64[1] two = {2}, int64[1] four = {4}, int64[6] none = {0, 0, 0, 0, 0, 0}, int64[2] ends = {1, 8}> {
    a = Conv <pads = [1,1,1,1]> (x, w1)  b = Relu (a)  c = Conv <pads = [1,1,1,1]> (b, w2)  d = Relu (c)
    s = Shape (x)  hw = Slice (s, two, four)  e = Gather (table, hw)  r = Concat <axis = 0> (none, e)
    f = Pad (d, r)  g = Conv <pads = [1,1,1,1], strides = [2,2]> (f, w2)  i = Shape (f)  j = Slice (i, two, four)
    k = Concat <axis = 0> (ends, j)  [Last0] y = Resize <mode = "linear"> (g, "", "", k)
}"""


def test_what_the_builder_refuses_by_the_name_of_its_layer_is_left(tmp_path: Path, call: Call) -> None:
    """What the pads reach is nothing that the builder can know, and it takes the sizes for negative."""
    proto = onnx.parser.parse_model(TABLE)
    for name, shape in {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.full(shape, 0.1, np.float32), name))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(65, dtype=np.int64) % 5, "table"))
    onnx.save(proto, tmp_path / "m.onnx")
    dims = ("--dim", "h=16:32:64", "--dim", "w=16:32:64", "--target", "rtx")
    assert call("build", str(tmp_path / "m.onnx"), *dims, *QUICK).code == 1, "the builder takes it now: make another"
    assert call("build", str(tmp_path / "m.onnx"), "--partition", *dims, *QUICK).code == 0
    document = load_document(tmp_path / "m.pipeline.json").document
    assert [node.node for node in document.left] == ["Last0"]
    assert PartKind.ENGINE in {part.kind for part in document.parts}


TYPED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,16,16] x) => (float[1,8,16,16] y) <float scale = {0.05}, int8 zero = {0}> {
    xq = QuantizeLinear (x, scale, zero)  xd = DequantizeLinear (xq, scale, zero)
    wq = QuantizeLinear (w1, scale, zero)  wd = DequantizeLinear (wq, scale, zero)
    [first] a = Conv <pads = [1,1,1,1]> (xd, wd)  b = Relu (a)  c = Tanh (b)  [left] d = Erf (c)
    [second] e = Conv <pads = [1,1,1,1]> (d, w2)  f = Relu (e)
    [third] g = Conv <pads = [1,1,1,1]> (f, w2)  y = Relu (g)
}"""


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(TYPED)
    for name, shape in {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.full(shape, 0.1, np.float32), name))
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def precisions(model: Path) -> list[str]:
    parts = load_document(model.with_suffix(".pipeline.json")).document.parts
    engines = [part for part in parts if part.kind is PartKind.ENGINE]
    return [load_report(model.parent / f"{part.file}.json").report.plan.precision for part in engines]


def test_a_part_without_quantisers_of_an_int8_model_is_of_float16(typed: Path, call: Call) -> None:
    command = ["build", str(typed), "--partition", "--leave", "left", "--target", "rtx", "--precision", "int8", *QUICK]
    assert call(*command).code == 0
    assert precisions(typed) == ["int8", "fp16"]


def test_a_model_without_quantisers_is_no_int8_model(tmp_path: Path, call: Call) -> None:
    model = write("detector", tmp_path)
    ended = call("build", str(model), "--partition", *flags("detector"), "--precision", "int8", *QUICK)
    assert ended.code == 2
    assert f"{model}: --precision int8 needs QuantizeLinear" in ended.err


def test_types_of_nodes_go_to_the_parts_that_have_them(typed: Path, call: Call) -> None:
    command = ["build", str(typed), "--partition", "--leave", "left", "--target", "rtx", *QUICK]
    ended = call(*command, "--node-precision", "nothing=fp16")
    assert (ended.code, "the model has no node of that name" in ended.err) == (2, True)
    ended = call(*command, "--node-precision", "type:LSTM=fp16")
    assert (ended.code, "has no effect" in ended.err) == (2, True)
    assert call(*command, "--node-precision", "third=fp16", "--node-precision", "type:Re*=fp16").code == 0
    parts = load_document(typed.with_suffix(".pipeline.json")).document.parts
    plans = [
        load_report(typed.parent / f"{part.file}.json").report.plan for part in parts if part.kind is PartKind.ENGINE
    ]
    assert [dict(plan.node_precisions) for plan in plans] == [
        {"type:Re*": "fp16"},
        {"third": "fp16", "type:Re*": "fp16"},
    ]


OTHERWISE = {
    # Sizes that the exporter fixed, which are freed; codes that are quantised anew; copies of what another part makes.
    "freed": (
        """<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
        g (float[b,3,h,w] x) => (float[1,8,16,24] y) <int64[3] flat = {1,8,384}, int64[4] full = {1,8,16,24}> {
            a = Conv <pads = [1,1,1,1]> (x, w1)  c = Relu (a)  d = Conv <pads = [1,1,1,1]> (c, w2)  e = Relu (d)
            f = Reshape (e, flat)  g = Tanh (f)  i = Reshape (g, full)
            j = Conv <pads = [1,1,1,1]> (i, w2)  k = Relu (j)  l = Conv <pads = [1,1,1,1]> (k, w2)  y = Relu (l)
        }""",
        ("--dim", "b=1:1:3", "--dim", "h=16:16:64", "--dim", "w=24:24:64", "--leave", "type:Reshape"),
    ),
    "requantised": (
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,3,16,16] x) => (float[1,8,16,16] y) <float s = {0.02}, int8 z = {3}> {
            a = Conv <pads = [1,1,1,1]> (x, w1)  b = Relu (a)  c = Conv <pads = [1,1,1,1]> (b, w2)
            q = QuantizeLinear (c, s, z)  [D] d = DequantizeLinear (q, s, z)  e = Conv <pads = [1,1,1,1]> (d, w2)
            f = Relu (e)  g = Conv <pads = [1,1,1,1]> (f, w2)  r = QuantizeLinear (g, s, z)
            [D1] h = DequantizeLinear (r, s, z)  y = Tanh (h)
        }""",
        ("--requantize", "--leave", "D*"),
    ),
    "copied": (
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,8,t,t] x) => (float[1,8,t,t] y)
        <int64[1] three = {3}, int64[1] zero = {0}, int64 four = {4}, int64 one = {1}> {
            a = Conv <pads = [1,1,1,1]> (x, w2)  b = Relu (a)  c = Conv <pads = [1,1,1,1]> (b, w2)  d = Tanh (c)
            l = SplitToSequence <axis = 1> (d, four)  e = SequenceAt (l, one)  v = Concat <axis = 1> (e, e)
            s = Shape (x)  n = Gather (s, three)  m = Slice (v, zero, n, three)
            f = Conv <pads = [1,1,1,1]> (m, w2)  g = Relu (f)  i = Conv <pads = [1,1,1,1]> (g, w2)  y = Tanh (i)
        }""",
        ("--dim", "t=4:8:16", "--leave", "type:Shape", "--leave", "type:Slice"),
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_parts_are_of_one_model(name: str, tmp_path: Path, call: Call) -> None:
    text, arguments = OTHERWISE[name]
    proto = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    for weight, shape in {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3)}.items():
        values = random.standard_normal(shape).astype(np.float32) / 8
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, weight))
    onnx.save(proto, tmp_path / "m.onnx")
    assert call("build", str(tmp_path / "m.onnx"), "--partition", "--target", "rtx", *arguments, "-q").code == 0
    if name == "freed":
        np.savez(tmp_path / "in.npz", x=np.zeros((2, 3, 32, 48), np.float32))
        command = ["run", str(tmp_path / "m.pipeline.json"), "--inputs", str(tmp_path / "in.npz"), "-q"]
        assert call(*command, "-o", str(tmp_path / "y.npz"), "--engines", "onnxruntime").code == 0
        with np.load(tmp_path / "y.npz") as arrays:
            assert arrays["y"].shape == (2, 8, 32, 48)
        return
    assert call("verify", str(tmp_path / "m.onnx"), str(tmp_path / "m.pipeline.json"), "-q").code == 0


def feeds(name: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    if name == "packer":
        return {
            "embeddings": random.standard_normal((2, 7, 32)).astype(np.float32),
            "mask": random.random((2, 7)) > 0.5,
        }
    key, shape = {"detector": ("images", (1, 3, 64, 48)), "matcher": ("x", (1, 3, 9, 11))}[name]
    return {key: random.standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize("name", NETS)
def test_it_runs_from_arrays_to_arrays(built: Path, tmp_path: Path, call: Call, name: str) -> None:
    arrays = feeds(name)
    np.savez(tmp_path / "in.npz", **arrays)
    command = ["run", str(built / f"{name}.pipeline.json"), "--inputs", str(tmp_path / "in.npz"), "-q"]
    command += ["-o", str(tmp_path / "y.npz")]
    assert call(*command).code == 4, "there is no GPU here"
    assert not (tmp_path / "y.npz").exists()
    ended = call(*command, "--engines", "onnxruntime", "--format", "json")
    assert ended.code == 0
    document = json.loads(ended.out)
    kinds = [part.kind.value for part in load_document(built / f"{name}.pipeline.json").document.parts]
    assert [part["kind"] for part in document["parts"]] == kinds
    model = onnx.load(built / f"{name}.onnx")
    with np.load(tmp_path / "y.npz") as made:
        assert list(made.files) == [value.name for value in model.graph.output]
        for expected, values in zip(run(model, arrays), made.values(), strict=True):
            np.testing.assert_allclose(expected, values, atol=1e-6)


@pytest.mark.parametrize("name", NETS)
def test_without_a_gpu_the_cut_and_every_parsed_engine_are_held_to_the_model(
    built: Path, call: Call, name: str
) -> None:
    path = str(built / f"{name}.pipeline.json")
    ended = call("verify", path, "--format", "json", "-q")
    document = json.loads(ended.out)
    assert (ended.code, document["ran"], len(document["cases"])) == (0, "parts", 10)
    assert all(case["cut"] and case["case"]["passed"] for case in document["cases"])
    assert all(engine["ran"] == "network" and engine["verified"] for engine in document["engines"])
    assert call("verify", path, "--require-engine", "-q").code == 4


def test_the_model_may_be_named_before_its_pipeline(built: Path, call: Call) -> None:
    ended = call("verify", str(built / "packer.onnx"), str(built / "packer.pipeline.json"), "-q")
    assert ended.code == 0
    assert "WERE NOT RUN" in ended.out
    assert call("verify", str(built / "matcher.onnx"), str(built / "packer.pipeline.json"), "-q").code == 2


def test_what_shows_a_pipeline_shows_its_parts(built: Path, tmp_path: Path, call: Call) -> None:
    path, page = str(built / "matcher.pipeline.json"), tmp_path / "page.html"
    assert call("report", path, "-o", str(page)).code == 0
    html = page.read_text()
    shown = call("inspect", path, "-q").out
    for name in ("matcher.1.part.engine", "matcher.2.part.onnx", "matcher.3.part.engine", "distances", "CDist"):
        assert name in html
        assert name in shown
    assert html.count("<svg") == 1
    sizes = json.loads(call("sizes", path, "--format", "json").out)
    assert set(sizes["dims"]) == {"height", "width"}
    assert call("triton", path, str(tmp_path / "repository")).code == 2
    assert not (tmp_path / "repository").exists()
    assert call("report", path, "-o", path).code == 2


@pytest.mark.parametrize("target", ["rtx", "tensorrt-8.6", "tensorrt-10"])
def test_check_says_where_it_would_be_cut(tmp_path: Path, call: Call, target: str) -> None:
    path = write("matcher", tmp_path)
    command = ["check", str(path), "--target", target, "--format", "json", "-q", *flags("matcher")]
    ended = call(*command, "--partition")
    cut = json.loads(ended.out)["partition"]
    assert ended.code == 0
    assert [part["kind"] for part in cut["parts"]] == ["engine", "onnx", "engine"]
    assert [(each["name"], each["from"], each["to"]) for each in cut["crossings"]] == [
        ("pixels", 1, 2),
        ("distances", 2, 3),
    ]
    assert [left["op"] for left in cut["left"]] == ["CDist"]
    assert "partition" not in json.loads(call(*command).out)
    assert list(tmp_path.iterdir()) == [path]


def test_check_cannot_cut_without_bounds_nor_where_nothing_is_left(tmp_path: Path, call: Call) -> None:
    path = str(write("matcher", tmp_path))
    ended = call("check", path, "--partition", "--format", "json", "-q")
    cut = json.loads(ended.out)["partition"]
    assert (ended.code, cut["parts"]) == (1, [])
    text = call("check", path, "--partition", "-q").out
    for name in ("height", "width"):
        assert f"--dim {name}=MIN:OPT:MAX" in cut["why"]
        assert f"--dim {name}=MIN:OPT:MAX" in text
    assert "no cut" in text.splitlines()[-1]
    assert call("check", path, "--partition", *flags("matcher"), "--leave", "*", "-q").code == 1


def test_a_refusal_names_the_way_out(tmp_path: Path, call: Call) -> None:
    ended = call("build", str(write("matcher", tmp_path)), *flags("matcher"), "-q")
    assert ended.code == 1
    assert "--partition" in ended.out


TIED = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,4,height,8] x) => (float[] y) <int64[1] k2 = {2}, int64[1] k64 = {64}, int64[1] k0 = {0}>
    {
        d = Shape (x)  h = Gather (d, k2)  rest = Sub (k64, h)
        s = Slice (v, k0, rest, k2)
        a = Softsign (x)  b = Softsign (s)
        j = Concat <axis = 2> (a, b)
        [meet] t = Add (j, v)
        t1 = Neg (t)  t2 = Abs (t1)  t3 = Sin (t2)  t4 = Cos (t3)  t5 = Tanh (t4)  y = Sigmoid (t5)
    }"""


def test_a_node_for_which_ends_of_sizes_do_not_go_together_is_left(tmp_path: Path, call: Call) -> None:
    """An image and what fills it up to a fixed height: the smallest of both are too few rows, the largest too many."""
    model = onnx.parser.parse_model(TIED)
    values = np.linspace(0, 1, 4 * 64 * 8, dtype=np.float32).reshape(1, 4, 64, 8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "v"))
    onnx.save(model, tmp_path / "tied.onnx")
    flags = ("--dim", "height=8:12:40", "--leave", "type:Softsign")
    ended = call("build", str(tmp_path / "tied.onnx"), "--partition", *flags, *QUICK)
    assert ended.code == 0
    document = load_document(tmp_path / "tied.pipeline.json").document
    assert [node.node for node in document.left if node.op != "Softsign"] == ["meet"]
    assert document.parts[-1].kind is PartKind.ENGINE
    with trtconv.load_pipeline(tmp_path / "tied.pipeline.json", engines="onnxruntime") as pipeline:
        for height in range(8, 41):
            x = np.random.default_rng(0).standard_normal((1, 4, height, 8)).astype(np.float32)
            (expected,) = run(model, {"x": x})
            np.testing.assert_allclose(pipeline.run({"x": x})["y"], expected, rtol=1e-5)
