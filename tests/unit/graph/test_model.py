"""The model layer: what is read, what is refused, and that a rewrite changes nothing but what it rewrites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import RTX, deconvs, parse, rewritten, wrap
from trtconv.core.budget import Budget, allowed
from trtconv.core.errors import InputError
from trtconv.graph.editor import Field
from trtconv.graph.external_data import SMALL_BYTES
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import python_line
from trtconv.passes import PASSES, run_passes

W = numpy_helper.from_array(np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), "w")


def value(name: str, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    made = helper.make_tensor_value_info(name, dtype, shape, doc_string=f"doc of {name}")
    made.metadata_props.add(key="value", value=name)
    return made


def rich(function: bool = False) -> onnx.ModelProto:
    """A model with one of everything that a careless rewrite loses."""
    up = helper.make_node("ConvTranspose", ["h", "w", "b"], ["u"], "up", strides=[2, 2], output_padding=[1, 1])
    odd = helper.make_node("Odd", ["u", "s"], ["o"], "odd", domain="vendor.custom", raw=b"\xff\xfe\x00")
    odd.attribute.append(helper.make_attribute("types", [value("t", [1]).type, value("u", ["n"]).type]))
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("values", TensorProto.FLOAT, [2], [1, 2]),
        helper.make_tensor("at", TensorProto.INT64, [2], [0, 3]),
        [5],
    )
    odd.attribute.append(helper.make_attribute("sparse", sparse))
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], "first"),
        helper.make_node("Neg", ["x"], ["unused"], "unused"),
        odd if not function else helper.make_node("Call", ["u"], ["o"], "call", domain="local"),
        helper.make_node("Identity", ["o"], ["y"], "last"),
    ]
    nodes.insert(2, up)
    for node in nodes:
        node.doc_string = f"doc of {node.name}"
        node.metadata_props.add(key="node", value=node.name)
    bias, strings = helper.make_tensor("b", TensorProto.FLOAT, [1], [1.0]), TensorProto(name="s", dims=[1], data_type=8)
    strings.string_data.append(b"\xff\xff")
    bias.metadata_props.add(key="tensor", value="b")
    graph = helper.make_graph(
        nodes, "g", [value("x", [1, 1, "h", "w"])], [value("y", [1, 1, "p", "q"])], [W, bias, strings], "doc of g"
    )
    graph.value_info.append(value("h", [1, 1, "h", "w"]))
    graph.quantization_annotation.add(tensor_name="h").quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="b")
    graph.metadata_props.add(key="graph", value="g")
    opsets = [helper.make_opsetid(d, v) for d, v in (("", 17), ("vendor.custom", 3), ("local", 1))]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="them", doc_string="doc")
    model.metadata_props.add(key="model", value="m")
    model.training_info.add()
    body = helper.make_node("Exp", ["a"], ["b"], "inner", doc_string="inner doc")
    model.functions.append(helper.make_function("local", "Call", ["a"], ["b"], [body], opsets[:1]))
    return model


@pytest.mark.parametrize("function", [False, True])
def test_a_rewrite_changes_the_node_and_its_weight_and_nothing_else(function: bool) -> None:
    proto = rich(function)
    model, result = rewritten(proto)
    assert len(result.edits) == 1
    after = model.proto
    index = 2
    assert after.graph.node[index].doc_string == "doc of up"
    assert after.graph.node[index].metadata_props == proto.graph.node[index].metadata_props
    assert {t.name for t in after.graph.initializer} == {"b", "s", "up.weight"}
    after.graph.node[index].CopyFrom(proto.graph.node[index])
    kept = [t for t in after.graph.initializer if t.name != "up.weight"]
    del after.graph.initializer[:]
    after.graph.initializer.extend([W, *kept])
    assert after.SerializeToString(deterministic=True) == proto.SerializeToString(deterministic=True)


def test_inlining_keeps_the_rest_of_the_model() -> None:
    proto = rich(function=True)
    inner = helper.make_node("ConvTranspose", ["a", "k"], ["b"], "inner", strides=[2, 2])
    proto.functions[0].CopyFrom(
        helper.make_function("local", "Call", ["a", "k"], ["b"], [inner], proto.opset_import[:1])
    )
    proto.graph.node[3].input.append("w")
    after = rewritten(proto)[0].proto
    assert [node.op_type for node in after.graph.node] == ["Relu", "Neg", "ConvTranspose", "ConvTranspose", "Identity"]
    for mine, theirs in ((0, 0), (1, 1), (4, 4)):
        assert after.graph.node[mine] == proto.graph.node[theirs]
    assert after.graph.metadata_props == proto.graph.metadata_props
    assert after.graph.quantization_annotation == proto.graph.quantization_annotation
    assert after.metadata_props == proto.metadata_props
    assert (after.doc_string, after.producer_name, after.ir_version) == ("doc", "them", 10)


def external(folder: Path, **changes: str) -> Path:
    """Writes a model whose weight is in weights.bin."""
    weight = TensorProto()
    weight.CopyFrom(W)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, text in ({"location": "weights.bin", "offset": "0", "length": "36"} | changes).items():
        weight.external_data.add(key=key, value=text)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], "up", strides=[2, 2], pads=[0, 0, 1, 1])
    graph = helper.make_graph([node], "g", [value("x", [1, 1, 4, 4])], [value("y", [1, 1, "p", "q"])], [weight])
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(W.raw_data)
    path = folder / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_external_data_stays_outside_until_it_is_rewritten(tmp_path: Path) -> None:
    path = external(tmp_path)
    model = OnnxModel.load(path)
    assert run_passes(model, PASSES, RTX).edits == ()
    assert model.proto.graph.initializer[0].data_location == TensorProto.EXTERNAL
    model.proto.graph.node[0].attribute.append(helper.make_attribute("output_padding", [1, 1]))
    model.proto.graph.node[0].attribute.remove(next(a for a in model.proto.graph.node[0].attribute if a.name == "pads"))
    model.touch()
    assert len(run_passes(model, PASSES, RTX).edits) == 1
    (grown,) = model.proto.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(grown)[..., :3, :3], numpy_helper.to_array(W))
    assert (tmp_path / "weights.bin").read_bytes() == W.raw_data


def test_a_model_is_as_large_as_what_it_holds(tmp_path: Path) -> None:
    held = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros(5000, np.float32)))
    graph = helper.make_graph([held], "g", [], [value("k", [5000])], [numpy_helper.from_array(np.zeros(9000), "z")])
    model = OnnxModel(helper.make_model(graph), tmp_path / "m.onnx")
    assert 0 <= model.proto.ByteSize() - model.nbytes < 400
    beside = OnnxModel.load(external(tmp_path))
    assert 0 <= beside.proto.ByteSize() + len(W.raw_data) - beside.nbytes < 1000


def test_a_saved_model_is_self_contained(tmp_path: Path) -> None:
    model = OnnxModel.load(external(tmp_path / "in"))
    model.save(tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(saved.graph.initializer[0]), numpy_helper.to_array(W))
    assert model.proto.graph.initializer[0].data_location == TensorProto.EXTERNAL


@pytest.mark.parametrize(("inside", "fits"), [(0.25, False), (0.5, True), (0.75, True)])
def test_half_of_the_external_data_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: float, fits: bool
) -> None:
    model = OnnxModel.load(external(tmp_path))
    limit = len(model.serialize()) + int(inside * len(W.raw_data))
    monkeypatch.setattr("trtconv.graph.model.PROTOBUF_LIMIT", limit)
    assert model.fits_halved() == fits


def test_a_model_that_has_no_external_data_fits_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtconv.graph.model.PROTOBUF_LIMIT", 1)
    proto = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Relu (x) }')
    assert OnnxModel(proto, Path("m.onnx")).fits_halved()


def test_external_data_may_be_a_link(tmp_path: Path) -> None:
    """Caches of downloads keep the file elsewhere; its name in the model's folder is a link."""
    path = external(tmp_path / "in")
    (tmp_path / "in" / "weights.bin").rename(tmp_path / "blob")
    (tmp_path / "in" / "weights.bin").symlink_to(tmp_path / "blob")
    with pytest.raises(InputError, match="leaves the model's folder"):
        OnnxModel.load(path)
    with allowed(Budget(follow_links=True)):
        model = OnnxModel.load(path)
    np.testing.assert_array_equal(model.array(model.proto.graph.initializer[0]), numpy_helper.to_array(W))
    model.save(tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(saved.graph.initializer[0]), numpy_helper.to_array(W))


def test_external_data_that_names_its_place_twice_is_refused(tmp_path: Path) -> None:
    """Readers differ in which of them counts, and so in which weights they read."""
    path = external(tmp_path)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data.add(key="location", value="weights.bin")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="twice"):
        OnnxModel.load(path)


def test_external_data_that_goes_away_is_told(tmp_path: Path) -> None:
    model = OnnxModel.load(external(tmp_path))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(InputError, match="went away"):
        model.digest()


def test_external_data_that_is_all_holes_is_refused(tmp_path: Path) -> None:
    path = external(tmp_path)
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(1 << 31)
    if (tmp_path / "weights.bin").stat().st_blocks:
        pytest.skip("this file system stores zeros")
    with pytest.raises(InputError, match="hollow"):
        OnnxModel.load(path)


def test_a_model_and_its_data_may_both_be_links(tmp_path: Path) -> None:
    """So caches of downloads have them: both files lie in one folder, under other names."""
    path = external(tmp_path / "in")
    (tmp_path / "blobs").mkdir()
    for name in (path.name, "weights.bin"):
        (tmp_path / "in" / name).rename(tmp_path / "blobs" / f"{name}.blob")
        (tmp_path / "in" / name).symlink_to(tmp_path / "blobs" / f"{name}.blob")
    assert OnnxModel.load(path).external_files


def test_external_data_may_lie_beside_what_a_link_leads_to(tmp_path: Path) -> None:
    path = external(tmp_path / "in")
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "m.onnx"
    link.symlink_to(path)
    model = OnnxModel.load(link)
    np.testing.assert_array_equal(model.array(model.proto.graph.initializer[0]), numpy_helper.to_array(W))
    assert model.digest() == OnnxModel.load(path).digest()
    # What lies beside the link counts first, as other readers have it.
    (tmp_path / "links" / "weights.bin").write_bytes(bytes(36))
    assert not OnnxModel.load(link).array(model.proto.graph.initializer[0]).any()


def test_external_data_that_is_neither_beside_a_link_nor_its_target_is_missing(tmp_path: Path) -> None:
    path = external(tmp_path / "in")
    (tmp_path / "link.onnx").symlink_to(path)
    (tmp_path / "in" / "weights.bin").unlink()
    with pytest.raises(InputError, match="is missing"):
        OnnxModel.load(tmp_path / "link.onnx")


def test_the_digest_is_of_the_model_and_its_data(tmp_path: Path) -> None:
    path = external(tmp_path)
    first = OnnxModel.load(path).digest()
    assert OnnxModel.load(path).digest() == first
    (tmp_path / "weights.bin").write_bytes(bytes(36))
    assert OnnxModel.load(path).digest() != first


def elsewhere(place: str, folder: Path, location: str = "weights.bin") -> Path:
    """Writes a model with external data in another place than an initializer."""
    path = external(folder, location=location)
    proto = onnx.load(path, load_external_data=False)
    weight = TensorProto()
    weight.CopyFrom(proto.graph.initializer[0])
    constant = helper.make_node("Constant", [], ["c"], value=weight)
    opsets = [helper.make_opsetid("", 17)]
    if place == "function":
        function = helper.make_function("local", "Three", [], ["c"], [constant], opsets)
        proto.functions.append(function)
        proto.graph.node.append(helper.make_node("Three", [], ["unused"], domain="local"))
        proto.opset_import.append(helper.make_opsetid("local", 1))
    else:
        at = helper.make_tensor("at", TensorProto.INT64, [9], range(9))
        weight.dims[:] = [9]
        proto.graph.sparse_initializer.add(values=weight, indices=at, dims=[9])
        proto.graph.sparse_initializer[0].values.name = "sparse"
    proto.graph.initializer[0].CopyFrom(W)
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("place", ["function", "sparse"])
def test_external_data_anywhere_is_checked_counted_and_saved(tmp_path: Path, place: str) -> None:
    path = elsewhere(place, tmp_path)
    model = OnnxModel.load(path)
    assert model.external_files == (tmp_path / "weights.bin",)
    first = model.digest()
    model.save(tmp_path / "out" / "out.onnx")
    assert OnnxModel.load(tmp_path / "out" / "out.onnx").external_files == ()
    (tmp_path / "weights.bin").write_bytes(bytes(36))
    assert OnnxModel.load(path).digest() != first
    with pytest.raises(InputError, match="outside the model's folder"):
        OnnxModel.load(elsewhere(place, tmp_path, "../weights.bin"))


def test_a_model_too_large_for_one_file_gets_a_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = external(tmp_path / "in")
    large = numpy_helper.from_array(np.arange(500, dtype=np.float32), "large")
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer.append(large)
    path.write_bytes(proto.SerializeToString())
    monkeypatch.setattr("trtconv.graph.model.PROTOBUF_LIMIT", 100)
    out = tmp_path / "out.onnx"
    # A second time: what an earlier one left is replaced.
    for _ in range(2):
        OnnxModel.load(path).save(out)
        saved = OnnxModel.load(out)
        assert saved.external_files == (tmp_path / "out.onnx.data",)
        for tensor, wanted in zip(saved.proto.graph.initializer, (W, large), strict=True):
            np.testing.assert_array_equal(saved.array(tensor), numpy_helper.to_array(wanted))
    assert (tmp_path / "in" / "weights.bin").read_bytes() == W.raw_data


def test_small_weights_stay_in_the_model_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {f"w{extra}": SMALL_BYTES + extra for extra in (-1, 0, 1, 2 * SMALL_BYTES)}
    proto = onnx.load(external(tmp_path / "in"))
    proto.graph.initializer.extend(numpy_helper.from_array(np.ones(n, np.int8), name) for name, n in sizes.items())
    monkeypatch.setattr("trtconv.graph.model.PROTOBUF_LIMIT", 100)
    OnnxModel(proto, tmp_path / "m.onnx").save(tmp_path / "out.onnx")
    saved = OnnxModel.load(tmp_path / "out.onnx")
    outside = {tensor.name for tensor in saved.external_tensors()}
    assert outside & sizes.keys() == {name for name, size in sizes.items() if size > SMALL_BYTES}
    for tensor in saved.proto.graph.initializer:
        if tensor.name in sizes:
            assert saved.array(tensor).tolist() == [1] * sizes[tensor.name]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"location": "missing.bin"}, "is missing"),
        ({"location": "../weights.bin"}, "outside the model's folder"),
        ({"location": "/etc/hostname"}, "outside the model's folder"),
        ({"location": "a/../../weights.bin"}, "outside the model's folder"),
        ({"location": ""}, "outside the model's folder"),
        ({"location": "."}, "missing"),
        ({"length": "37"}, "too short"),
        ({"length": "35"}, "needs 36"),
        ({"offset": "4"}, "too short"),
        ({"offset": "four"}, "not a number"),
        ({"length": "-1"}, "needs 36"),
        ({"offset": "-4"}, "at -4"),
    ],
)
def test_bad_external_data_is_refused(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    path = external(tmp_path, **changes)
    with pytest.raises(InputError, match=words) as caught:
        OnnxModel.load(path)
    assert "'w'" in caught.value.message
    assert str(path) in caught.value.message


def test_truncated_external_data_is_refused_also_without_a_length(tmp_path: Path) -> None:
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    entries = proto.graph.initializer[0].external_data
    entries.remove(next(e for e in entries if e.key == "length"))
    path.write_bytes(proto.SerializeToString())
    OnnxModel.load(path)
    (tmp_path / "weights.bin").write_bytes(bytes(35))
    with pytest.raises(InputError, match="too short"):
        OnnxModel.load(path)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (_folder, "is a folder"),
        (lambda path: path.write_bytes(b""), "not an ONNX model"),
        (lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"), "ONNX model"),
        (lambda path: path.write_bytes(bytes(1000)), "ONNX model"),
        (lambda path: path.write_bytes(rich().SerializeToString()[:-50]), "ONNX model"),
        (lambda path: path.write_bytes(rich().SerializeToString()[:200]), "ONNX model"),
    ],
    ids=["missing", "folder", "empty", "pointer", "zeros", "truncated", "cut short"],
)
def test_what_is_no_model_is_refused(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    path = tmp_path / "m.onnx"
    make(path)
    with pytest.raises(InputError, match=words) as caught:
        OnnxModel.load(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        ({"trtconv.source": "models/unet.py:31"}, "models/unet.py:31"),
        ({"trtconv.source": "models/unet.py"}, ""),
        ({"trtconv.source": ":0"}, ""),
        ({"pkg.torch.onnx.stack_trace": 'File "a.py", line 7, in f'}, "a.py:7"),
        ({"pkg.torch.onnx.stack_trace": 'File "a.py", line 7, in f', "trtconv.source": "b.py:1"}, "b.py:1"),
        ({"pkg.torch.onnx.stack_trace": 'File "/lib/site-packages/torch/nn.py", line 7, in f'}, ""),
        ({}, ""),
    ],
)
def test_the_python_line_of_a_node(metadata: dict[str, str], line: str) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    for key, value in metadata.items():
        node.metadata_props.add(key=key, value=value)
    assert python_line(node) == line


def test_names_are_made_unique() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,5,5] x, float[1,1,1,1] w) => (float[1,1,5,5] y)
        { a = ConvTranspose (x, w) [up] b = ConvTranspose (a, w) [up] c = ConvTranspose (b, w)
          [ConvTranspose] y = Relu (c) }"""
    )
    model = OnnxModel(proto, Path("m.onnx"))
    model.name_nodes("ConvTranspose")
    names = [node.name for node in deconvs(model)]
    assert len({*names, "ConvTranspose"}) == 4
    assert names[1] == "up"


def test_a_field_closed_without_a_replacement_changes_nothing() -> None:
    model = OnnxModel(rich(), Path("m.onnx"))
    field = Field(model, model.main, {"ConvTranspose"})
    assert [node.name for node in field.candidates] == ["up"]
    assert not field.close()
    assert model.proto == rich()


def test_inputs_are_what_a_caller_must_give() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[n,3,"?",7] x, int64[] count, float[1] w) => (float[n] y)
        <float[1] w = {1}> { y = Identity (x) }"""
    )
    specs = OnnxModel(proto, Path("m.onnx")).inputs
    assert [(s.name, s.dtype, s.dims) for s in specs] == [
        ("x", "float", ("n", 3, "x:2", 7)),
        ("count", "int64", ()),
    ]


def test_sizes_and_types_are_known_behind_quantisers_of_onnx_runtime() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[1,4,8,8] x, bool c) => (float[n,k,h,w] y)
    <float s = {0.05}, int8 z = {0}, float[4,4,1,1] w>
    { q = com.microsoft.QuantizeLinear (x, s, z)  d = com.microsoft.DequantizeLinear (q, s, z)
      y = If (c) <
        then_branch = t () => (float[n,k,h,w] a)
        { e = com.microsoft.QuantizeLinear (d, s, z) f = com.microsoft.DequantizeLinear (e, s, z) a = Relu (f) },
        else_branch = e () => (float[n,k,h,w] b) { b = Neg (d) }> }"""
    model = wrap(parse(text))
    main, then = model.main, next(scope for scope in model.scopes if "f" in scope.producers)
    assert (main.dtype("q"), main.dtype("d"), then.dtype("e")) == ("int8", "float32", "int8")
    assert [scope.shape(name) for scope, name in ((main, "q"), (main, "d"), (then, "f"))] == [(1, 4, 8, 8)] * 3
    assert {node.domain for node in model.proto.graph.node} == {"com.microsoft", ""}
