"""Files that are read without their large weights."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import trtconv
from trtconv.core.errors import InputError
from trtconv.core.progress import NullProgress
from trtconv.core.requests.check import CheckRequest
from trtconv.core.target import Target
from trtconv.graph import light_file, wire
from trtconv.graph.external_data import lies_in, refer_to
from trtconv.graph.light_file import leave_weights, light_model
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import session

DTYPES = (np.float32, np.float16, np.float64, np.int8, np.int64)


def model_of(arrays: dict[str, np.ndarray]) -> onnx.ModelProto:
    nodes = [helper.make_node("Cast", [name], [f"{name}:cast"], to=TensorProto.FLOAT) for name in arrays]
    nodes.append(helper.make_node("Identity", ["x"], ["y"], doc_string="a" * 300))
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", f"{next(iter(arrays))}:cast")
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        outputs,
        [numpy_helper.from_array(values, name) for name, values in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(autouse=True)
def any_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LARGE_FILE", 0)
    monkeypatch.setattr(light_file, "_MOST_OTHERS", 1.0)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.sampled_from([0, 3, 127, 128, 40_000])), min_size=1, max_size=4))
def test_a_light_model_is_the_model(tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[type, int]]) -> None:
    path = tmp_path_factory.mktemp("light") / "m.onnx"
    random = np.random.default_rng(0)
    arrays = {f"w{i}": (100 * random.standard_normal((size, 1))).astype(dtype) for i, (dtype, size) in enumerate(kinds)}
    onnx.save_model(model_of(arrays), path)
    whole = OnnxModel.load(path)
    for light in (light_model(path), light_model(path, hashed=True)):
        for name, values in arrays.items():
            one, two = (model.main.initializer(name) for model in (whole, light))
            np.testing.assert_array_equal(light.array(two), values)
            assert lies_in(two, path) == (values.dtype in (np.float32, np.float16) and values.nbytes >= 1 << 16)
            two.CopyFrom(one)
        assert light.proto == whole.proto


def test_a_light_model_is_of_its_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(model_of({"w0": np.ones((40_000, 1), np.float32)}), path)
    light = light_model(path, hashed=True)
    assert any(True for _ in light.external_tensors())
    assert not light.external_files
    assert light.digest() == light.digest(alone=True) == hashlib.sha256(path.read_bytes()).hexdigest()
    light.require_unchanged_data()
    path.write_bytes(flip(path.read_bytes(), -200 % path.stat().st_size))
    with pytest.raises(InputError, match="was changed while it was read"):
        light.require_unchanged_data()
    path.unlink()
    with pytest.raises(InputError, match="was changed while it was read"):
        light.require_unchanged_data()


def test_external_data_that_a_file_keeps_in_itself_stays_named(tmp_path: Path) -> None:
    """Whoever copies the model elsewhere, under another name, has to take it along."""
    path, values = tmp_path / "m.onnx", np.arange(40_000, dtype=np.float32)
    proto = model_of({"w0": values, "w1": values})
    # Where the other one lies, once both offsets are written with as many digits.
    for _ in range(2):
        content = proto.SerializeToString()
        refer_to(proto.graph.initializer[1], "m.onnx", content.index(values.tobytes()), values.nbytes)
    onnx.save_model(proto, path)
    whole, light = OnnxModel.load(path), light_model(path, hashed=True)
    assert whole.external_files == (path,) and not light.external_files
    assert whole.digest() == light.digest() == hashlib.sha256(path.read_bytes()).hexdigest()
    np.testing.assert_array_equal(whole.array(whole.main.initializer("w1")), values)


def test_a_version_of_the_model_is_no_initializer(tmp_path: Path) -> None:
    """Both have the number 5, one in the model and one in its graph."""
    path = tmp_path / "m.onnx"
    proto = model_of({"w0": np.ones((40_000, 1), np.float32)})
    proto.model_version = 3
    onnx.save_model(proto, path)
    assert any(True for _ in light_model(path).external_tensors())


def test_a_tensor_of_many_fields_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(model_of({"w0": np.ones((40_000, 1), np.float32)}), path)
    count = len(wire.tensor_fields(*first_tensor(path)))
    for most, is_light in ((count, True), (count - 1, False)):
        monkeypatch.setattr(wire, "_MOST_OF_TENSOR", most)
        assert any(True for _ in light_model(path).external_tensors()) is is_light
        assert bool(list(wire.large_values(io.BytesIO(path.read_bytes())))) is is_light


def first_tensor(path: Path) -> tuple[io.BytesIO, wire.MessageField]:
    file = io.BytesIO(path.read_bytes())
    graph = next(f for f in wire.fields(file, 0, file.seek(0, 2), wire.GRAPH) if f.number == wire.GRAPH)
    tensors = wire.fields(file, graph.content, graph.end, wire.INITIALIZER)
    return file, next(field for field in tensors if field.number == wire.INITIALIZER)


def test_files_beside_a_light_model_are_its_own(tmp_path: Path) -> None:
    path, values = tmp_path / "m.onnx", np.arange(40_000, dtype=np.float32)
    proto = model_of({"w0": values, "w1": values + 1})
    refer_to(proto.graph.initializer[1], "w.data", 4, values.nbytes)
    onnx.save_model(proto, path)
    (tmp_path / "w.data").write_bytes(bytes(4) + (values + 1).tobytes())
    light, whole = light_model(path, hashed=True), OnnxModel.load(path)
    assert lies_in(light.main.initializer("w0"), path)
    assert light.external_files == whole.external_files == (tmp_path / "w.data",)
    assert light.digest() == whole.digest() != light.digest(alone=True)


@pytest.mark.parametrize(
    "unknown",
    [
        b"\x98\x06\x96\x01",
        b"\x98\x06" + b"\xff" * 9 + b"\x01",
        b"\x99\x06" + b"abcdefgh",
        b"\x9a\x06\x03abc",
        b"\x9d\x06" + b"abcd",
    ],
    ids=["number", "the longest number", "8 bytes", "text", "4 bytes"],
)
@pytest.mark.parametrize("where", ["model", "graph", "weight"])
def test_fields_of_a_newer_onnx_are_passed_over(tmp_path: Path, unknown: bytes, where: str) -> None:
    """Field 99, which ONNX does not have, of each kind of content."""
    path, values = tmp_path / "m.onnx", np.arange(40_000, dtype=np.float32)
    proto = model_of({"w": values})
    part = {"model": proto, "graph": proto.graph, "weight": proto.graph.initializer[0]}[where]
    part.MergeFromString(unknown)
    onnx.save_model(proto, path)
    light = light_model(path)
    assert lies_in(light.main.initializer("w"), path) == (where != "weight")
    np.testing.assert_array_equal(light.array(light.main.initializer("w")), values)


def test_a_session_of_a_light_model_computes_what_one_of_the_model_does(tmp_path: Path) -> None:
    path, weights = tmp_path / "m.onnx", np.arange(40_000, dtype=np.float16)
    onnx.save_model(model_of({"w0": weights}), path)
    light = light_model(path)
    runs = session(light)
    feeds = {"x": np.array([3, 4], np.float32)}
    assert [each.name for each in runs.get_inputs()] == ["x"]
    assert [each.name for each in runs.get_outputs()] == ["y", "w0:cast"]
    for got, expected in zip(runs.run(None, feeds), [feeds["x"], weights.astype(np.float32)], strict=True):
        np.testing.assert_array_equal(got, expected)


def test_links_are_followed_and_cut_files_refused(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    blob, path = tmp_path / "store" / "blob", tmp_path / "m.onnx"
    onnx.save_model(model_of({"w0": np.full(40_000, 3, np.float32)}), blob)
    path.symlink_to(blob)
    light = light_model(path)
    assert (light.array(light.main.initializer("w0")) == 3).all()
    data = blob.read_bytes()
    for end in range(1, 400, 7):
        (tmp_path / "cut.onnx").write_bytes(data[:end])
        with pytest.raises(InputError):
            light_model(tmp_path / "cut.onnx")


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


@pytest.mark.parametrize(
    "value", [b"\0" + varint(300), b"\1" + b"8 bytes.", b"\2" + varint(200) + b"x" * 200, b"\5" + b"four"], ids="0125"
)
def test_fields_of_newer_versions_are_passed_over(value: bytes, tmp_path: Path) -> None:
    """One of each kind, with a number that ONNX does not have, in front of the graph."""
    proto = model_of({"w0": np.ones((40_000, 1), np.float32)})
    kind, rest = value[0], value[1:]
    path = tmp_path / "m.onnx"
    path.write_bytes(varint(1000 << 3 | kind) + rest + proto.SerializeToString())
    assert [node.op_type for node in light_model(path).proto.graph.node] == [n.op_type for n in proto.graph.node]


def test_a_tensor_with_too_many_values_stays_inside_to_be_complained_of(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = model_of({"w": np.ones((40_000, 1), np.float32)})
    model.graph.initializer[0].raw_data += b"more"
    onnx.save_model(model, path)
    with pytest.raises(InputError, match="160004 bytes"):
        light_model(path)


def test_a_file_of_nodes_most_of_all_is_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light_file, "_MOST_OTHERS", 0.25)
    for size, light in ((1 << 16, True), (1 << 14, False)):
        path = tmp_path / f"{size}.onnx"
        model = model_of({"w": np.ones((size, 1), np.float32)})
        model.graph.node[-1].doc_string = "a" * 50_000
        onnx.save_model(model, path)
        assert lies_in(light_model(path).main.initializer("w"), path) == light


def test_a_check_of_a_file_that_changes_meanwhile_has_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(model_of({"w": np.ones((40_000, 1), np.float32)}), path)

    class Changing(NullProgress):
        def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
            if name == "rules":
                onnx.save_model(model_of({"w": np.zeros((40_000, 1), np.float32)}), path)
            return super().stage(name)

    with pytest.raises(InputError, match="changed while"):
        trtconv.check(CheckRequest(path, target=Target("tensorrt", (10,))), Changing())


@pytest.mark.parametrize("linked", [True, False])
def test_a_file_that_has_a_second_name_since_is_no_other(tmp_path: Path, linked: bool) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(model_of({"w": np.ones((4, 1), np.float32)}), path)
    model = OnnxModel.load(path, hashed=True)
    if linked:
        (tmp_path / "again.onnx").hardlink_to(path)
    else:
        path.unlink()
    model.require_unchanged_data()


@pytest.mark.parametrize("number", [5, 7, 9])
def test_a_field_that_has_the_number_of_a_message_and_is_none_is_passed_over(tmp_path: Path, number: int) -> None:
    proto = model_of({"w0": np.ones((40_000, 1), np.float32)})
    output = b"b\x03\n\x01x"
    path = tmp_path / "m.onnx"
    path.write_bytes(varint(number << 3 | 1) + output.ljust(8, b"\0") + proto.SerializeToString())
    assert light_model(path).outputs == OnnxModel.load(path).outputs


def test_a_file_of_more_fields_than_are_looked_through_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(model_of({"w0": np.ones((40_000, 1), np.float32)}), path)
    assert any(True for _ in light_model(path).external_tensors())
    monkeypatch.setattr(wire, "_MOST_FIELDS", 2)
    assert not any(True for _ in light_model(path).external_tensors())


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def first_weight(proto: onnx.ModelProto) -> TensorProto:
    return proto.graph.initializer[0]


def rich(path: Path) -> OnnxModel:
    """Returns a model that has something of everything, as it is in its file."""
    proto = model_of({"w": np.arange(40_000, dtype=np.float32), "s": np.float32([1, 2])})
    proto.producer_name, proto.doc_string, proto.graph.doc_string = "p", "d", "g"
    proto.metadata_props.add(key="k", value="v")
    proto.graph.initializer[0].doc_string = "weight"
    proto.graph.value_info.append(helper.make_tensor_value_info("w:cast", TensorProto.FLOAT, [40_000]))
    body = [helper.make_node("Neg", ["a"], ["b"])]
    proto.functions.append(helper.make_function("my", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    onnx.save_model(proto, path)
    return OnnxModel.load(path)


def test_weights_are_left_in_the_file_that_has_them(tmp_path: Path) -> None:
    model = rich(tmp_path / "m.onnx")
    whole, content = model.proto, (tmp_path / "m.onnx").read_bytes()
    assert leave_weights(model, io.BytesIO(content))
    assert lies_in(model.main.initializer("w"), model.path) and not lies_in(model.main.initializer("s"), model.path)
    np.testing.assert_array_equal(model.array(model.main.initializer("w")), np.arange(40_000, dtype=np.float32))
    model.embed()
    first_weight(model.proto).ClearField("data_location")
    assert model.proto == whole and model.serialize() == content


def test_weights_that_are_in_the_file_already_are_held_to_what_was_parsed(tmp_path: Path) -> None:
    path = rich(tmp_path / "m.onnx").path
    content = path.read_bytes()
    model = light_model(path, hashed=True)
    before = model.serialize()
    assert leave_weights(model, io.BytesIO(content))
    assert model.serialize() == before and lies_in(model.main.initializer("w"), path)
    place = content.index(np.arange(40_000, dtype=np.float32).tobytes())
    for changed in (place, place + 80_000, place + 159_999):
        assert not leave_weights(model, io.BytesIO(flip(content, changed)))
    path.write_bytes(flip(content, place + 159_999))
    assert not leave_weights(model, io.BytesIO(content))


def test_what_was_known_of_the_weights_before_is_given_back_at_once(tmp_path: Path) -> None:
    model = rich(tmp_path / "m.onnx")
    known = weakref.ref(model.main)
    gc.disable()
    try:
        assert leave_weights(model, io.BytesIO(model.path.read_bytes()))
        assert known() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "change",
    [
        lambda proto: setattr(first_weight(proto), "raw_data", flip(first_weight(proto).raw_data, 0)),
        lambda proto: setattr(first_weight(proto), "raw_data", flip(first_weight(proto).raw_data, -1 % 160_000)),
        lambda proto: setattr(first_weight(proto), "doc_string", "other"),
        lambda proto: first_weight(proto).dims.append(1),
        lambda proto: setattr(first_weight(proto), "name", "v"),
        lambda proto: setattr(proto.graph.initializer[1], "raw_data", flip(proto.graph.initializer[1].raw_data, 0)),
        lambda proto: proto.graph.initializer.pop(),
        lambda proto: proto.graph.initializer.add(name="n", data_type=1),
        lambda proto: setattr(proto.graph.node[0], "name", "n"),
        lambda proto: proto.graph.node.pop(),
        lambda proto: setattr(proto.graph, "name", "other"),
        lambda proto: proto.graph.value_info.pop(),
        lambda proto: proto.functions.pop(),
        lambda proto: setattr(proto.opset_import[0], "version", 18),
        lambda proto: setattr(proto, "producer_name", "q"),
    ],
)
@pytest.mark.parametrize("changes_file", [False, True])
def test_weights_of_a_model_that_is_another_than_the_file_stay_where_they_are(
    tmp_path: Path, change: Callable[[onnx.ModelProto], object], changes_file: bool
) -> None:
    model = rich(tmp_path / "m.onnx")
    file = onnx.load(model.path)
    change(file if changes_file else model.proto)
    proto, before = model.proto, model.serialize()
    assert not leave_weights(model, io.BytesIO(file.SerializeToString()))
    assert model.proto is proto and model.serialize() == before


def test_what_the_file_says_lies_elsewhere_is_not_held_to_the_file(tmp_path: Path) -> None:
    """Whoever parsed the file read it there, and nobody knows what was there then."""
    model = rich(tmp_path / "m.onnx")
    sizes = np.arange(2, dtype=np.int64)
    model.proto.graph.initializer.append(numpy_helper.from_array(sizes, "inside"))
    beside = model.proto.graph.initializer.add()
    beside.CopyFrom(numpy_helper.from_array(sizes, "beside"))
    place = model.serialize().index(sizes.tobytes())
    refer_to(beside, "other.bin", place, sizes.nbytes)
    model.path.write_bytes(model.serialize())
    assert model.path.read_bytes()[place:].startswith(sizes.tobytes())
    (tmp_path / "other.bin").write_bytes(bytes(place) + sizes.tobytes())
    model = OnnxModel.load(model.path)
    assert not model.external_files
    assert not leave_weights(model, io.BytesIO(model.path.read_bytes()))


def test_floats_that_lie_elsewhere_are_not_held_to_the_file(tmp_path: Path) -> None:
    """As above, though the other file has at the same place what the model's own has."""
    model = rich(tmp_path / "m.onnx")
    values = np.arange(40_000, dtype=np.float32) + 1
    model.proto.graph.initializer.append(numpy_helper.from_array(values, "inside"))
    beside = model.proto.graph.initializer.add()
    beside.CopyFrom(numpy_helper.from_array(values, "beside"))
    refer_to(beside, "other.bin", model.serialize().index(values.tobytes()), values.nbytes)
    model.path.write_bytes(model.serialize())
    (tmp_path / "other.bin").write_bytes(model.path.read_bytes())
    for loaded in (OnnxModel.load(model.path), light_model(model.path, hashed=True)):
        assert loaded.external_files == (tmp_path / "other.bin",)
        assert not leave_weights(loaded, io.BytesIO(model.path.read_bytes()))


def test_small_files_and_what_is_no_model_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = rich(tmp_path / "m.onnx")
    content = model.path.read_bytes()
    unknown = b"\x98\x06\x96\x01"
    short = rich(tmp_path / "short.onnx").proto
    refer_to(first_weight(short), "other.bin", 0, 4)
    bad_node = b"\x3a\x04\x0a\x02\xff\xff"
    others = (content + unknown, content + bad_node, short.SerializeToString())
    for data in (b"", b"no model", content[:-1], content[:200], *others):
        assert not leave_weights(model, io.BytesIO(data))
    monkeypatch.setattr(wire, "LARGE_FILE", len(content) + 1)
    assert not leave_weights(model, io.BytesIO(content))
    monkeypatch.setattr(wire, "LARGE_FILE", len(content))
    assert leave_weights(model, io.BytesIO(content))
