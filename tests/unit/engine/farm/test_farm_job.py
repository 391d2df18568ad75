"""A build as data: its name, its files, and what is refused of one that comes from elsewhere."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support.onnx_models import parse
from trtconv.core.agreement import AgreedCode, CodeFile
from trtconv.core.dims import Range
from trtconv.core.documents.farm import ErrorRecord, JobResult
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target
from trtconv.engine.farm.code import FLAGS, CodeHere, HeldCode
from trtconv.engine.farm.job import BuildJob, contents
from trtconv.engine.farm.planning import plan
from trtconv.engine.farm.pruning import prune
from trtconv.engine.farm.results import Waiting
from trtconv.engine.farm.store import Store, intact
from trtconv.graph.model import OnnxModel

ADD = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n,4] x) => (float[n,4] y) <float[4] w> { y = Add(x, w) }
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = parse(ADD.replace("<float[4] w>", ""))
    weight = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    proto.graph.initializer.append(weight)
    path = tmp_path / "some name.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="some weights.bin", size_threshold=0)
    return path


def job_of(path: Path, **changes: Any) -> BuildJob:
    request = BuildRequest(path, dims={"n": Range(1, 2, 4)}, target=Target("rtx", None, "l4"), **changes)
    return BuildJob.of(request, OnnxModel.load(path, hashed=True), "1.7.1.116", ("verify",))


def test_it_is_read_as_it_was_written(model: Path) -> None:
    job = job_of(model, precision="fp16")
    assert BuildJob.read(json.dumps(job.to_json())) == job
    request = job.request(Path("engine"))
    assert (request.dims, request.precision) == ({"n": Range(1, 2, 4)}, "fp16")
    assert (request.model, request.target) == (Path("model.onnx"), Target("rtx"))
    assert "some name" not in json.dumps(job.to_json())


@pytest.mark.parametrize("dims", [{"n": Range(1, 2, 4)}, {}])
def test_a_plan_of_many_builds_keeps_none_of_their_models(model: Path, dims: dict[str, Range]) -> None:
    gc.collect()
    before = sum(type(each) is OnnxModel for each in gc.get_objects())
    usual = gc.get_threshold()
    # As the command line has it.
    gc.set_threshold(1_000_000)
    try:
        planned = plan([BuildRequest(model, dims=dims, target=Target("rtx"))] * 20, None)
        after = sum(type(each) is OnnxModel for each in gc.get_objects())
    finally:
        gc.set_threshold(*usual)
    assert {each.state for each in planned} == {"to-build" if dims else "error"}
    assert after - before <= 2


def test_its_name_is_what_determines_the_engine(model: Path) -> None:
    name = job_of(model).name
    assert job_of(model, engine=Path("elsewhere"), force=True).name == name
    assert dataclasses.replace(job_of(model), then=()).name == name
    assert job_of(model, precision="fp16").name != name
    assert dataclasses.replace(job_of(model), version="1.6").name != name
    assert dataclasses.replace(job_of(model), source="changed").name != name
    data = model.with_name("some weights.bin")
    data.write_bytes(bytes(data.stat().st_size))
    assert job_of(model).name != name


def test_files_are_unpacked_and_checked(model: Path, tmp_path: Path) -> None:
    job = job_of(model)
    found = contents(job, model)
    folder = tmp_path / "in"
    job.unpack(folder, lambda sha, size: found[sha].read_bytes())
    assert OnnxModel.load(folder / "model.onnx", hashed=True).digest() == OnnxModel.load(model, hashed=True).digest()
    with pytest.raises(InputError, match="SHA-256"):
        job.unpack(tmp_path / "again", lambda sha, size: found[sha].read_bytes() + b"more")


SUM = {"sha256": "0" * 64, "bytes": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"code": {"plugins": ["/etc/hostname"], "extensions": [], "references": []}},
        {"code": {"plugins": []}},
        {"model": {"sha256": 1, "bytes": 1}},
        {"data": {"../out": {"sha256": "0" * 64, "bytes": 1}}},
        {"data": {"/etc/passwd": {"sha256": "0" * 64, "bytes": 1}}},
        {"data": {"c:\\x": {"sha256": "0" * 64, "bytes": 1}}},
        {"model": {}},
        {"data": {"w": {"bytes": 1}}},
        {"data": {"\ud800": {"sha256": "0" * 64, "bytes": 1}}},
        {"build": {"engine": "/etc/passwd"}},
        {"build": {"dims": {"n": "many"}}},
        {"build": {"targets": []}},
        {"build": {"targets": ["rtx-" + "9" * 5000]}},
        {"build": {"dims": {"n": "9" * 5000}}},
        {"build": {"profiles": [{"n": "8:4:2"}]}},
        {"then": ["rm"]},
        {"more": 1},
        {"build": {"precision": "auto", "data": "samples.py:make"}},
        {"build": {"precision": "auto", "metric": "metrics.py:recall"}},
        {"build": {"extend": ["passes.py"]}},
        {"build": {"plugins": ["/etc/hostname"]}},
        {"build": {"plugins-to-serialize": ["/etc/hostname"]}},
        {"build": {"references": ["/etc/hostname"]}},
        {"data": dict.fromkeys(("a", "a/b"), SUM)},
        {"data": {"a" * 300: SUM}},
        {"data": {"a/" * 2000 + "b": SUM}},
        {"data": {f"w{number}": SUM for number in range(5000)}},
    ],
)
def test_what_is_no_job_is_refused(model: Path, change: dict[str, Any]) -> None:
    document = job_of(model).to_json() | change
    with pytest.raises(InputError, match="no job"):
        BuildJob.read(json.dumps(document))


KINDS = {"extensions": "extend", "plugins": "plugins", "references": "references"}


def held(tmp_path: Path, **contents: bytes) -> HeldCode:
    """What a machine has, by kind: files of its own names."""
    found = {}
    for kind, content in contents.items():
        path = tmp_path / f"own-{kind}"
        path.write_bytes(content)
        found[kind] = (AgreedCode(path, hashlib.sha256(content).hexdigest()),)
    return HeldCode(**found)


@pytest.mark.parametrize("serialized", [True, False])
def test_code_is_named_by_its_hash_and_is_taken_of_the_machine_that_builds(
    model: Path, tmp_path: Path, serialized: bool
) -> None:
    for name in ("liba.so", "libb.so", "mine.py"):
        (tmp_path / name).write_bytes(name.encode())
    libraries = CodeFile.named([tmp_path / "liba.so", tmp_path / "libb.so"])
    asked = {"plugins": libraries[:1], "serialized_plugins": libraries[1:]} if serialized else {"plugins": libraries}
    job = job_of(model, **asked, references=CodeFile.named([tmp_path / "mine.py"]))
    assert "liba" not in json.dumps(job.build) and str(tmp_path) not in json.dumps(job.to_json())
    assert BuildJob.read(json.dumps(job.to_json())) == job
    assert len(
        {
            job.name,
            job_of(model).name,
            job_of(model, plugins=libraries, references=CodeFile.named([tmp_path / "mine.py"])).name,
        }
    ) == (3 if serialized else 2)
    own = [
        AgreedCode(Path(f"/x/{n}"), hashlib.sha256(n.encode()).hexdigest()) for n in ("libb.so", "liba.so", "mine.py")
    ]
    code = job.code.here(HeldCode(plugins=tuple(own[:2]), references=tuple(own[2:])))
    a, b, mine = (CodeFile(Path("/x") / name) for name in ("liba.so", "libb.so", "mine.py"))
    assert code == CodeHere((), (a,) if serialized else (a, b), (b,) if serialized else (), (mine,))
    request = code.on(job.request(Path("engine")))
    assert (request.plugins, request.serialized_plugins, request.references) == (
        code.plugins,
        code.serialized_plugins,
        (mine,),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_code_that_is_not_here_is_said_to_be_missing(model: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "wanted.x").write_bytes(b"wanted")
    job = job_of(model, **{KINDS[kind]: CodeFile.named([tmp_path / "wanted.x"])})
    others = {each: b"wanted" for each in KINDS if each != kind}
    with pytest.raises(EnvironmentMissing, match=r"wanted\.x") as missing:
        # What is to be run as something else is not that.
        job.code.here(held(tmp_path, **others, **{kind: b"another"}))
    assert FLAGS[kind] in missing.value.hint and hashlib.sha256(b"wanted").hexdigest() in missing.value.message
    here = job.code.here(held(tmp_path, **{kind: b"wanted"}))
    assert getattr(here, KINDS[kind]) == (CodeFile(tmp_path / f"own-{kind}"),)


def test_code_that_a_configuration_names_is_in_no_job_without_agreement(model: Path, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"lib")
    named = CodeFile.configured(["lib.so"])[0].of(tmp_path / "trtconv.toml")
    with pytest.raises(InputError, match="names code"):
        job_of(model, plugins=(named,))
    assert job_of(model, plugins=(named,), agree=(hashlib.sha256(b"lib").hexdigest(),)).code.plugins


def test_whether_a_named_library_is_there_is_not_told(model: Path, tmp_path: Path) -> None:
    (tmp_path / "there.so").write_bytes(b"x")
    said = []
    for name in ("there.so", "gone.so"):
        with pytest.raises(InputError) as error:
            BuildJob.read(json.dumps(job_of(model).to_json() | {"build": {"plugins": [str(tmp_path / name)]}}))
        said.append(str(error.value))
    assert said[0] == said[1]


def test_the_model_gets_a_name_that_no_folder_of_data_has(model: Path) -> None:
    job = BuildJob.read(json.dumps(job_of(model).to_json() | {"data": {"model.onnx/w": SUM}}))
    assert job.model_name == "_model.onnx"


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, "nul\0"])
def test_what_is_no_json_of_ours_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="job"):
        BuildJob.read(text)


def test_a_job_of_another_version_is_not_for_this_machine(model: Path) -> None:
    document = job_of(model).to_json() | {"source": "0123456789abcdef"}
    with pytest.raises(EnvironmentMissing, match="0123456789abcdef"):
        BuildJob.read(json.dumps(document))


@pytest.mark.parametrize("missing", ["log", "then", "error", "report", "job"])
def test_a_result_without_all_its_parts_is_none(model: Path, missing: str) -> None:
    waiting = Waiting(BuildRequest(model), job_of(model), OnnxModel.load(model))
    result = {"schema": 1, "job": waiting.job.name, "report": None, "error": None, "then": {}, "log": "", "worker": "w"}
    del result[missing]
    with pytest.raises(InputError, match="is not its result"):
        waiting.take(result, lambda sha, size: b"", None)


@pytest.mark.parametrize(
    "result", [[], 5, {"then": 5}, {"then": ["verify"]}, {"error": {}}, {"error": None, "then": {}}]
)
def test_a_store_knows_what_is_not_finished(tmp_path: Path, result: Any) -> None:
    (tmp_path / f"{'0' * 64}.result.json").write_text(json.dumps(result))
    assert Store(tmp_path).finished("0" * 64, ("verify",)) is None


def test_an_error_without_its_parts_is_no_result(model: Path) -> None:
    waiting = Waiting(BuildRequest(model), job_of(model), OnnxModel.load(model))
    result = {"schema": 1, "job": waiting.job.name, "report": None, "error": {"type": "x"}, "then": {}, "log": ""}
    with pytest.raises(InputError, match="is no result"):
        waiting.take(result, lambda sha, size: b"", None)


def test_a_store_holds_files_to_their_hash(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    sha = store.put(b"engine")
    assert (store.get(sha, 6), store.has(sha)) == (b"engine", True)
    (path,) = (tmp_path / "store" / "sha256").rglob(sha)
    source = tmp_path / "source"
    source.write_bytes(b"engine")
    for poison, heal in itertools.product((b"others", b"", b"engine and more"), (store.put, None)):
        path.write_bytes(poison)
        assert not store.has(sha)
        with pytest.raises(InputError, match=sha):
            store.get(sha, 6)
        # Whoever brings the right content heals it.
        store.put(b"engine") if heal else store.put_file(sha, source)
        assert store.get(sha, 6) == b"engine"
    with pytest.raises(InputError, match=sha):
        store.get(sha, 5)
    path.unlink()
    source.write_bytes(b"changed")
    with pytest.raises(InputError, match="changed while"):
        store.put_file(sha, source)
    assert not list(path.parent.iterdir())


def test_a_store_leaves_its_folder_for_nobody(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for name in ("../../etc/passwd", "", "0" * 63, "0" * 64 + "\n"):
        with pytest.raises(InputError):
            store.get(name, 1)
        with pytest.raises(InputError):
            store.put_result(JobResult(name))
    assert store.result("0" * 64) is None
    store.put_result(JobResult("0" * 64, log="x"))
    assert store.finished("0" * 64, ()) == JobResult("0" * 64, log="x")
    with pytest.raises(InputError):
        intact(b"a", "0" * 64, "test")


def test_a_store_writes_through_no_link(tmp_path: Path) -> None:
    """Whoever may write to a shared store chooses no other file of those who use it."""
    store, victim, elsewhere = Store(tmp_path / "store"), tmp_path / "victim", tmp_path / "elsewhere"
    victim.write_text("mine")
    elsewhere.mkdir()
    name, data = "0" * 64, b"engine"
    sha = hashlib.sha256(data).hexdigest()
    for _ in range(2):
        for path in (f"sha256/{sha[:2]}/{sha}", f"{name}.json", f"{name}.result.json"):
            (store.root / path).parent.mkdir(parents=True, exist_ok=True)
            (store.root / path).unlink(missing_ok=True)
            (store.root / path).symlink_to(victim)
        assert store.put(data) == sha
        store.put_job(name, {"schema": 1})
        store.put_result(JobResult(name, None, ErrorRecord("X", "m", "", 1), {}, ""))
        assert not any(path.is_symlink() for path in store.root.rglob("*"))
        assert (victim.read_text(), store.get(sha, len(data))) == ("mine", data)
    shutil.rmtree(store.root / "sha256")
    (store.root / "sha256").symlink_to(elsewhere)
    with pytest.raises(InputError, match="leads out of"):
        store.put(data)
    with pytest.raises(InputError, match="leads out of"):
        store.put_file(sha, victim)
    kept = elsewhere / sha[:2] / sha
    kept.parent.mkdir()
    kept.write_bytes(b"of somebody else")
    prune(store.root, 0, 0, remove=True)
    assert kept.exists()


def test_a_built_in_metric_travels_and_code_does_not(model: Path) -> None:
    asked = {"precision": "auto", "tolerance": 40.0}
    assert job_of(model, metric="psnr", **asked).request(Path("engine")).metric == "psnr"
    with pytest.raises(InputError):
        job_of(model, metric="metrics.py:recall", **asked)
