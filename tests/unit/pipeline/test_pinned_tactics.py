"""`build --as`: the tactics of another build, from a report that a stranger may have written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from support.onnx_models import parse
from support.runtime import TENSORRT_8, FakeNetwork, FakeRuntime
from trtconv import BuildRequest, build
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.saved import load_report
from trtconv.core.documents.signed import CHECKSUM, checksum
from trtconv.core.documents.tactics import Tactic, TensorLayout
from trtconv.core.errors import BuildFailed, EnvironmentMissing, InputError
from trtconv.engine.farm.acceptance import as_told
from trtconv.engine.farm.job import BuildJob
from trtconv.graph.model import OnnxModel
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt.base import EngineBlob

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
TACTIC = Tactic("y", "0x3e8", "0xfb", (TensorLayout("float16", (8, 1), -1, 1),))


class Telling(FakeNetwork):
    """Tells of a tactic: of that which it is to take, else of its own."""

    def build(self, plan: Any, monitor: Any = None) -> EngineBlob:
        return dataclasses.replace(super().build(plan, monitor), tactics=plan.tactics or (TACTIC,))


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeRuntime]:
    """Makes a TensorRT the installed one; one of version 8.6 unless it is told otherwise."""

    def install(**changes: Any) -> FakeRuntime:
        capabilities = dataclasses.replace(TENSORRT_8, algorithm_selector=True)
        given = {"family": "tensorrt", "version": "8.6.0", "gpu": "A", "capabilities": capabilities, **changes}
        fake = FakeRuntime(Telling(), **given)
        monkeypatch.setattr(tensorrt, "load", lambda target: fake)
        return fake

    install()
    return install


@pytest.fixture
def first(use: Callable[..., FakeRuntime], tmp_path: Path) -> Path:
    """The report of an engine that tells of its tactics."""
    onnx.save(parse(TEXT), tmp_path / "m.onnx")
    assert built(tmp_path, "first").exit_code == 0
    return tmp_path / "first.engine.json"


def built(folder: Path, name: str, **options: Any) -> BuildReport:
    return build(BuildRequest(folder / "m.onnx", folder / f"{name}.engine", prove="none", **options))


def changed(report: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Writes a report anew, as a stranger would."""
    document = json.loads(report.read_text())
    change(document)
    document[CHECKSUM] = checksum({key: value for key, value in document.items() if key != CHECKSUM})
    path = report.with_name("strange.json")
    path.write_text(json.dumps(document))
    return path


def test_a_report_keeps_the_tactics_and_another_build_takes_them(
    use: Callable[..., FakeRuntime], first: Path, tmp_path: Path
) -> None:
    saved = load_report(first).report
    assert saved.engine is not None
    assert saved.engine.tactics == (TACTIC,)
    assert json.loads(first.read_text())["engine"]["tactics"][0]["tactic"] == "0x3e8"
    fake = use()
    report = built(tmp_path, "second", tactics_of=first)
    (plan,) = fake.network.built
    assert plan.tactics == (TACTIC,)
    assert report.plan.to_json()["as"] == plan.tactics_sha256 != ""
    assert "as" not in saved.plan.to_json()


def test_an_engine_is_up_to_date_while_the_tactics_are_the_same(
    use: Callable[..., FakeRuntime], first: Path, tmp_path: Path
) -> None:
    assert not built(tmp_path, "second").up_to_date
    assert not built(tmp_path, "second", tactics_of=first).up_to_date
    assert built(tmp_path, "second", tactics_of=first).up_to_date
    other = changed(first, lambda document: document["engine"]["tactics"][0].update(tactic="0x1"))
    assert not built(tmp_path, "second", tactics_of=other).up_to_date
    # An engine may be built again as it is: its report is read before it is written.
    assert not built(tmp_path, "first", tactics_of=first).up_to_date


def test_the_forms_of_nodes_are_taken_too(use: Callable[..., FakeRuntime], first: Path, tmp_path: Path) -> None:
    tuned = changed(first, lambda document: document.update(respelled={"up": "kernel"}))
    report = built(tmp_path, "second", tactics_of=tuned, tune=True)
    assert report.forms == {"up": "kernel"}
    assert load_report(tmp_path / "second.engine.json").forms == {"up": "kernel"}


def test_a_network_that_is_refused_with_tactics_may_build_without(
    use: Callable[..., FakeRuntime], first: Path, tmp_path: Path
) -> None:
    use().network.failure = BuildFailed("Could not find any implementation for node y")
    report = built(tmp_path, "second", tactics_of=first)
    assert (report.exit_code, [f.code for f in report.findings][-2:]) == (1, ["TC403", "TC413"])
    assert "TC413" not in [f.code for f in built(tmp_path, "second").findings]
    assert not (tmp_path / "second.engine").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: [*t, *t],
        lambda t: [{**t[0], "layer": ""}],
        lambda t: [{**t[0], "layer": "x" * 100_000}],
        lambda t: [{**t[0], "tactic": "1000"}],
        lambda t: [{**t[0], "tactic": 1000}],
        lambda t: [{**t[0], "implementation": "0x" + "f" * 17}],
        lambda t: [{**t[0], "tensors": [{"dtype": "float16", "strides": ["1"]}]}],
        lambda t: [{**t[0], "layer": str(number)} for number in range(100_001)],
        lambda t: {"layer": "tactic"},
    ],
)  # fmt: skip
def test_what_a_stranger_wrote_is_checked(first: Path, tmp_path: Path, change: Callable[[Any], Any]) -> None:
    strange = changed(first, lambda document: document["engine"].update(tactics=change(document["engine"]["tactics"])))
    with pytest.raises(InputError, match=r"strange\.json is not the report of a build"):
        built(tmp_path, "second", tactics_of=strange)
    assert not (tmp_path / "second.engine").exists()


def test_tactics_of_nobody_or_of_another_tensorrt_are_refused(
    use: Callable[..., FakeRuntime], first: Path, tmp_path: Path
) -> None:
    silent = changed(first, lambda document: document["engine"].pop("tactics"))
    with pytest.raises(InputError, match="does not tell which tactics") as caught:
        built(tmp_path, "second", tactics_of=silent)
    assert "--keep-tactics" in caught.value.hint
    with pytest.raises(InputError, match="cannot be read"):
        built(tmp_path, "second", tactics_of=tmp_path / "none.json")
    use(version="8.6.1")
    with pytest.raises(InputError, match=r"tensorrt 8\.6\.0, and tensorrt 8\.6\.1"):
        built(tmp_path, "second", tactics_of=first)
    use(family="rtx", version="1.7.1.116", capabilities=FakeRuntime().info.capabilities)
    with pytest.raises(EnvironmentMissing, match="TensorRT-RTX"):
        built(tmp_path, "second", tactics_of=first)


def test_the_report_may_not_be_written_over(first: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="whose tactics are taken"):
        build(BuildRequest(tmp_path / "m.onnx", first, tactics_of=first))


def test_tactics_travel_to_other_machines(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, model = BuildRequest(tmp_path / "m.onnx", tactics_of=first), OnnxModel.load(tmp_path / "m.onnx")
    plain = BuildJob.of(BuildRequest(tmp_path / "m.onnx"), model, None)
    job = BuildJob.read(json.dumps(BuildJob.of(request, model, None).to_json()))
    assert job.name != plain.name
    assert "before" not in plain.to_json()
    # Only the version that knows the tactics can build it.
    assert (plain.version, job.version) == (None, "8.6.0")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").rename(tmp_path / job.model_name)
    there = build(dataclasses.replace(job.request(Path("there.engine")), prove="none"))
    (tmp_path / job.model_name).rename(tmp_path / "m.onnx")
    here = built(tmp_path, "here", tactics_of=first)
    assert there.plan.tactics == here.plan.tactics == (TACTIC,)
    assert there.plan.to_json() == here.plan.to_json()
    assert as_told(request, OnnxModel.load(tmp_path / "m.onnx"), there).plan.to_json() == there.plan.to_json()
    strange = job.to_json()
    strange["before"]["tactics"][0]["tactic"] = "1000"  # type: ignore[index]
    with pytest.raises(InputError, match="it is no job"):
        BuildJob.read(json.dumps(strange))


def test_more_tactics_than_a_job_holds_stay_here(first: Path, tmp_path: Path) -> None:
    many = [{**TACTIC.to_json(), "layer": str(number) * 100} for number in range(20_000)]
    full = changed(first, lambda document: document["engine"].update(tactics=many))
    request = BuildRequest(tmp_path / "m.onnx", tactics_of=full)
    with pytest.raises(InputError, match="more tactics than a job holds"):
        BuildJob.of(request, OnnxModel.load(tmp_path / "m.onnx"), None)
