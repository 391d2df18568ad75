"""`trtconv triton`: a repository whose configuration Triton's schema takes."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from support import engines
from support.refittable import give_refitter, net, refittable
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.dims import Range

STRING, INT64, INT32, BOOL, MESSAGE, ENUM = 9, 3, 5, 8, 11, 14
MESSAGES: dict[str, dict[str, tuple[int, int, bool, str]]] = {
    "ModelTensorReshape": {"shape": (1, INT64, True, "")},
    "ModelInput": {
        "name": (1, STRING, False, ""),
        "data_type": (2, ENUM, False, "DataType"),
        "dims": (4, INT64, True, ""),
        "reshape": (5, MESSAGE, False, "ModelTensorReshape"),
        "is_shape_tensor": (6, BOOL, False, ""),
        "is_non_linear_format_io": (9, BOOL, False, ""),
    },
    "ModelOutput": {
        "name": (1, STRING, False, ""),
        "data_type": (2, ENUM, False, "DataType"),
        "dims": (3, INT64, True, ""),
        "reshape": (5, MESSAGE, False, "ModelTensorReshape"),
        "is_shape_tensor": (6, BOOL, False, ""),
        "is_non_linear_format_io": (7, BOOL, False, ""),
    },
    "ModelInstanceGroup": {
        "count": (2, INT32, False, ""),
        "kind": (4, ENUM, False, "Kind"),
        "profile": (5, STRING, True, ""),
    },
    "ModelDynamicBatching": {"preferred_batch_size": (1, INT32, True, "")},
    "Entry": {"key": (1, STRING, False, ""), "value": (2, STRING, False, "")},
    "Step": {
        "model_name": (1, STRING, False, ""),
        "model_version": (2, INT64, False, ""),
        "input_map": (3, MESSAGE, True, "Entry"),
        "output_map": (4, MESSAGE, True, "Entry"),
    },
    "ModelEnsembling": {"step": (1, MESSAGE, True, "Step")},
    "ModelConfig": {
        "name": (1, STRING, False, ""),
        "platform": (2, STRING, False, ""),
        "max_batch_size": (4, INT32, False, ""),
        "input": (5, MESSAGE, True, "ModelInput"),
        "output": (6, MESSAGE, True, "ModelOutput"),
        "instance_group": (7, MESSAGE, True, "ModelInstanceGroup"),
        "dynamic_batching": (11, MESSAGE, False, "ModelDynamicBatching"),
        "ensemble_scheduling": (15, MESSAGE, False, "ModelEnsembling"),
    },
}
"""Of Triton's model_config.proto the fields that are written: number, type, whether repeated, and of which type."""
ENUMS = {
    "DataType": "INVALID BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 STRING BF16",
    "Kind": "AUTO GPU CPU MODEL",
}


def schema() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="triton.proto", package="inference", syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        prefix = "TYPE" if name == "DataType" else "KIND"
        for number, value in enumerate(values.split()):
            enum.value.add(name=f"{prefix}_{value}", number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated, of) in fields.items():
            type_name = f".inference.{of}" if of else None
            message.field.add(name=field, number=number, type=kind, label=3 if repeated else 1, type_name=type_name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


def config(folder: Path) -> Any:
    return text_format.Parse((folder / "config.pbtxt").read_text(), schema()())


IO = [
    {"name": "x", "kind": "input", "dtype": "float32", "shape": [-1, 3, -1, -1]},
    {"name": "y", "kind": "output", "dtype": "float16", "shape": [-1, 3, -1, -1]},
]


def test_batches_where_the_first_dimension_is_one_for_all(call, tmp_path: Path) -> None:
    dims = {"n": Range(1, 2, 4), "h": Range(4, 8, 12), "w": Range(4, 8, 12)}
    built = engines.build(tmp_path, dims=(dims, {**dims, "n": Range(1, 4, 8)}))
    built.change_report(io=IO)
    ended = call("triton", str(built.engine), str(tmp_path / "repository"), "--format", "json")
    assert ended.code == 0
    folder = tmp_path / "repository" / "net"
    assert json.loads(ended.out)["models"][0] | {"folder": ""} == {
        "name": "net",
        "folder": "",
        "max_batch_size": 8,
        "why_no_batches": None,
    }
    made = config(folder)
    assert (made.name, made.platform, made.max_batch_size) == ("net", "tensorrt_plan", 8)
    assert [(t.name, t.data_type, list(t.dims)) for t in made.input] == [("x", 11, [3, -1, -1])]
    assert [(t.name, t.data_type, list(t.dims)) for t in made.output] == [("y", 10, [3, -1, -1])]
    assert list(made.instance_group[0].profile) == ["0", "1"]
    assert list(made.dynamic_batching.preferred_batch_size) == [2, 4]
    assert (folder / "1" / "model.plan").read_bytes() == built.engine.read_bytes()


def test_a_format_that_is_not_linear_is_said(call, tmp_path: Path) -> None:
    built = engines.build(tmp_path, dims=({"n": Range(1, 2, 4), "h": Range(4, 8, 12), "w": Range(4, 8, 12)},))
    built.change_report(io=[{**IO[0], "format": "chw32"}, IO[1]])
    assert call("triton", str(built.engine), str(tmp_path / "repository")).code == 0
    made = config(tmp_path / "repository" / "net")
    assert [made.input[0].is_non_linear_format_io, made.output[0].is_non_linear_format_io] == [True, False]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"io": [IO[0], {**IO[1], "shape": [5, 3]}]}, "not every input and output"),
        ({"io": [IO[0], {**IO[1], "shape": []}]}, "not every input and output"),
    ],
)
def test_no_batches_where_they_cannot_be_made(call, tmp_path: Path, changes: Any, why: str) -> None:
    built = engines.build(tmp_path)
    built.change_report(**changes)
    ended = call("triton", str(built.engine), str(tmp_path / "repository"))
    assert ended.code == 0
    assert why in ended.out
    made = config(tmp_path / "repository" / "net")
    assert made.max_batch_size == 0
    assert list(made.input[0].dims) == [-1, 3, -1, -1]
    assert list(made.output[0].dims) == (changes["io"][1]["shape"] or [1])
    assert made.output[0].HasField("reshape") == (not changes["io"][1]["shape"])


def test_no_profile_for_a_single_request_means_no_batches(call, tmp_path: Path) -> None:
    built = engines.build(tmp_path, dims=({**engines.DIMS[0], "n": Range(2, 2, 4)},))
    built.change_report(io=IO)
    assert "no profile takes a single request" in call("triton", str(built.engine), str(tmp_path / "r")).out


def test_names_are_no_configuration(call, tmp_path: Path) -> None:
    name = 'x" } ] platform: "é\n\\'
    built = engines.build(tmp_path)
    built.change_report(io=[IO[0], {**IO[1], "name": name}])
    assert call("triton", str(built.engine), str(tmp_path / "r")).code == 0
    made = config(tmp_path / "r" / "net")
    assert made.output[0].name == name
    assert made.platform == "tensorrt_plan"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"runtime__family": "rtx"}, "TensorRT-RTX"),
        ({"plan__options": {"strip_weights": True}}, "has no weights"),
        ({"io": [IO[0], {**IO[1], "dtype": "fp8"}]}, "has no type for"),
        ({"io": []}, "no inputs and outputs"),
    ],
)
def test_what_triton_cannot_serve_is_refused(call, tmp_path: Path, changes: Any, said: str) -> None:
    built = engines.build(tmp_path)
    built.change_report(**{"io": IO, **changes})
    ended = call("triton", str(built.engine), str(tmp_path / "r"))
    assert ended.code == 2
    assert said in ended.err
    assert not (tmp_path / "r").exists()


def test_an_engine_without_weights_gets_them(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_refitter(monkeypatch)
    stripped = BuilderOptions(strip_weights=True, refittable=True)
    built = refittable(tmp_path, net(1), options=stripped)
    io = [{**each, "dtype": "float32", "shape": [1, 2, 5, 5]} for each in IO]
    built.change_report(io=io)
    other = tmp_path / "other.onnx"
    onnx.save(onnx.parser.parse_model(net(2)), other)
    before = built.engine.read_bytes()
    words = ["triton", str(built.engine), str(tmp_path / "r"), "--weights"]
    assert call(*words, str(other)).code == 0
    made = (tmp_path / "r" / "net" / "1" / "model.plan").read_bytes()
    call("refit", str(built.engine), str(other), "-o", str(tmp_path / "full.engine"), "--prove", "none", "-q")
    assert made == (tmp_path / "full.engine").read_bytes() != before
    assert built.engine.read_bytes() == before
    assert config(tmp_path / "r" / "net").name == "net"
    # Nothing is written where they are not its weights, or where it has them.
    another = engines.build(tmp_path, name="another")
    another.change_report(io=IO)
    for engine, weights, said in (
        (built.engine, another.model, "another.onnx"),
        (another.engine, other, "another.engine has its weights"),
    ):
        ended = call("triton", str(engine), str(tmp_path / "s"), "--weights", str(weights))
        assert ended.code == 2
        assert said in ended.err
        assert not (tmp_path / "s").exists()
    assert call("triton", str(built.engine), str(built.engine), str(tmp_path / "s"), "--weights", str(other)).code == 2


PROFILE = {"x": {key: [1, 3, 8, 8] for key in ("min", "opt", "max")}}


@pytest.mark.parametrize(
    "changes",
    [
        {"io": [{**IO[0], "name": "other"}, IO[1]]},
        {"io": [{**IO[0], "name": "\ud800"}, IO[1]]},
        {"profiles": [{"x": {**PROFILE["x"], "min": []}}]},
        {"profiles": [{"x": {key: [] for key in PROFILE["x"]}}]},
        {"profiles": [{"y": PROFILE["x"]}]},
    ],
)
def test_a_report_whose_parts_do_not_fit_is_refused(call, tmp_path: Path, changes: Any) -> None:
    built = engines.build(tmp_path)
    built.change_report(**{"io": IO, **changes})
    assert call("triton", str(built.engine), str(tmp_path / "r")).code == 2
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("io", [IO[1:], [IO[0], {**IO[1], "name": "\ud800"}]])
def test_an_engine_without_inputs_or_with_a_name_that_is_no_text_is_served(call, tmp_path: Path, io: Any) -> None:
    built = engines.build(tmp_path)
    built.change_report(io=io)
    assert call("triton", str(built.engine), str(tmp_path / "r")).code == 0
    assert len(config(tmp_path / "r" / "net").output) == 1


@pytest.mark.parametrize("name", ["..engine", "...engine", "....engine", ".a.engine", "a b;$(id).engine"])
def test_an_engine_is_put_into_a_folder_of_the_repository_whatever_its_name(call, tmp_path: Path, name: str) -> None:
    built = engines.build(tmp_path)
    built.change_report(io=IO)
    folder = tmp_path / "top" / "repository"
    built.engine.rename(tmp_path / name)
    Path(f"{built.engine}.json").rename(tmp_path / f"{name}.json")
    assert call("triton", str(tmp_path / name), str(folder)).code == 0
    assert [path.name for path in (tmp_path / "top").iterdir()] == ["repository"]
    (model,) = folder.iterdir()
    assert not model.name.startswith(".")
    assert (model / "1" / "model.plan").is_file()


def test_nothing_is_replaced_unasked(call, tmp_path: Path) -> None:
    built = engines.build(tmp_path)
    built.change_report(io=IO)
    arguments = ("triton", str(built.engine), str(tmp_path / "r"))
    assert call(*arguments).code == 0
    ended = call(*arguments)
    assert ended.code == 2
    assert "model.plan exists" in ended.err
    assert call(*arguments, "--version", "2").code == 0
    assert call(*arguments, "--force").code == 0
    twice = call("triton", str(built.engine), str(built.engine), str(tmp_path / "s"))
    assert twice.code == 2
    assert "Rename one" in twice.err


def test_the_libraries_of_an_engine_go_with_it(call, tmp_path: Path) -> None:
    built = engines.build(tmp_path)
    library, other = tmp_path / "libmine.so", tmp_path / "libother.so"
    library.write_bytes(b"mine")
    other.write_bytes(b"another")
    named = {"file": "libmine.so", "sha256": hashlib.sha256(b"mine").hexdigest()}
    inside = {"file": "libin.so", "sha256": hashlib.sha256(b"in").hexdigest(), "serialized": True}
    built.change_report(io=IO, plan__plugins=[named, inside])
    arguments = ("triton", str(built.engine), str(tmp_path / "r"))
    for given in ((), ("--plugin", str(other))):
        ended = call(*arguments, *given)
        assert ended.code == 2 and "libmine.so" in ended.err and not (tmp_path / "r").exists()
    ended = call(*arguments, "--plugin", str(other), "--plugin", str(library), "--format", "json")
    assert json.loads(ended.out)["models"][0]["plugins"] == ["libmine.so"]
    (copy,) = (tmp_path / "r").rglob("*.so")
    assert copy.read_bytes() == b"mine" and copy.parent.name == "1"


def _pipeline(folder: Path, *ios: list[dict[str, Any]], kind: str = "engine") -> Path:
    """Writes a manifest of engines that are called tts.0, tts.1, ..., of the inputs and outputs given."""
    dims = {"n": Range(1, 2, 4), "h": Range(4, 8, 12), "w": Range(4, 8, 12)}
    parts, made = [], {}
    for number, io in enumerate(ios):
        text = re.sub(r"\bx\b", io[0]["name"], engines.NET)
        built = engines.build(folder, text, dims=(dims,), name=f"tts.{number}")
        built.change_report(io=io)
        tensors = {each["name"]: {"name": each["name"], "dtype": "float", "shape": ["n", 3, "h", "w"]} for each in io}
        made |= tensors
        files = {"file": built.engine.name, "sha256": hashlib.sha256(built.engine.read_bytes()).hexdigest()}
        model = {"file": built.model.name, "sha256": hashlib.sha256(built.model.read_bytes()).hexdigest()}
        sides = {side: [tensors[e["name"]] for e in io if e["kind"] == side[:-1]] for side in ("inputs", "outputs")}
        runs = {"kind": kind, **files, "onnx": model} if kind == "engine" else {"kind": kind, **model}
        parts.append({**runs, **sides, "nodes": 1})
    ends = {"inputs": parts[0]["inputs"], "outputs": parts[-1]["outputs"]}
    document = {"model": {"path": "tts.onnx", "sha256": "0" * 64}, "parts": parts, **ends}
    path = folder / "tts.pipeline.json"
    path.write_text(json.dumps({"schema": 1, **document}))
    return path


def _side(kind: str, name: str, shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "kind": kind, "dtype": dtype, "shape": shape}


WIDE = [-1, 3, -1, -1]
FIRST = [_side("input", "x", WIDE), _side("output", "mid", WIDE)]


@pytest.mark.parametrize(("fixed", "batch", "dims"), [(False, 4, [3, -1, -1]), (True, 0, [-1, 3, -1, -1])])
def test_a_pipeline_is_an_ensemble(call, tmp_path: Path, fixed: bool, batch: int, dims: list[int]) -> None:
    second = [_side("input", "mid", WIDE), _side("output", "z", [5] if fixed else WIDE, "float16")]
    manifest = _pipeline(tmp_path, FIRST, second)
    ended = call("triton", str(manifest), str(tmp_path / "repository"), "--version", "2")
    assert ended.code == 0, ended.err
    repository = tmp_path / "repository"
    assert (repository / "tts" / "2").is_dir()
    assert (repository / "tts.1" / "2" / "model.plan").exists()
    made = config(repository / "tts")
    assert (made.name, made.platform, made.max_batch_size) == ("tts", "ensemble", batch)
    assert [(t.name, t.data_type, list(t.dims)) for t in made.input] == [("x", 11, dims)]
    assert [(t.name, t.data_type, list(t.dims)) for t in made.output] == [("z", 10, [5] if fixed else dims)]
    steps = [
        (step.model_name, [(e.key, e.value) for e in step.input_map], [(e.key, e.value) for e in step.output_map])
        for step in made.ensemble_scheduling.step
    ]
    assert steps == [("tts.0", [("x", "x")], [("mid", "mid")]), ("tts.1", [("mid", "mid")], [("z", "z")])]


def test_what_is_no_ensemble_of_engines_is_refused(call, tmp_path: Path) -> None:
    other = [_side("input", "mid", WIDE, "float16"), _side("output", "z", WIDE)]
    ended = call("triton", str(_pipeline(tmp_path, FIRST, other)), str(tmp_path / "repository"))
    assert (ended.code, "mid" in ended.err) == (2, True)
    second = [_side("input", "mid", WIDE), _side("output", "z", WIDE)]
    ended = call("triton", str(_pipeline(tmp_path, FIRST, second, kind="onnx")), str(tmp_path / "repository"))
    assert (ended.code, "tts.0.onnx" in ended.err) == (2, True)
    assert not (tmp_path / "repository").exists()
