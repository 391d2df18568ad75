"""The pipeline with a runtime that does as it is told: what is written when, and what never is."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from google.protobuf.message import EncodeError
from onnx import numpy_helper

import trtconv
from support.onnx_models import RTX, parse
from support.runtime import TENSORRT_8, FakeNetwork, FakeRuntime, deconv, issue
from trtconv import BuildRequest, CheckRequest, Range, RewriteRequest, Target, pipeline
from trtconv.cli.formats.text import build_text
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import ParserVerdict
from trtconv.core.documents.rewrite import Edit
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import BuildFailed, EnvironmentMissing, InputError
from trtconv.core.findings import Finding, Severity
from trtconv.passes import PASSES, Pass, PassResult
from trtconv.pipeline import respelling, rewriting
from trtconv.precision import apply
from trtconv.runtimes import tensorrt

RELU = """<ir_version: 8, opset_import: ["": 17]> g (float[1,3,height,width] x) => (float[1,3,height,width] y)
    { y = Relu (x) }"""
UP = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,8,8] x) => (float[1,1,p,q] y)
    <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}> { [up] y = ConvTranspose <%s> (x, w) }"""
DIMS = {"height": Range(8, 16, 32), "width": Range(8, 16, 32)}
OLD = b"ptrt\0, an engine made before"

Use = Callable[[FakeRuntime], FakeRuntime]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes a runtime the installed one."""

    def install(fake: FakeRuntime) -> FakeRuntime:
        monkeypatch.setattr(tensorrt, "load", lambda target: fake)
        return fake

    install(FakeRuntime())
    return install


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(parse(RELU), path)
    return path


class Narrow(FakeNetwork):
    """Builds where one dimension ranges at most."""

    def build(self, plan: Any, monitor: Any = None) -> Any:
        (profile,) = plan.profiles
        if sum(bound.min < bound.max for bound in profile.dims.values()) > 1:
            self.built.append(plan)
            raise BuildFailed("it ran out of host memory", "Give narrower ranges.")
        return super().build(plan, monitor)


def saved(path: Path, attrs: str) -> Path:
    onnx.save(parse(UP % attrs), path)
    return path


def saved_outside(path: Path) -> Path:
    """Saves a model whose weight is in w.bin."""
    proto = parse(UP % "strides=[2,2]")
    weight = numpy_helper.from_array(numpy_helper.to_array(proto.graph.initializer[0]), "w")
    proto.graph.initializer[0].CopyFrom(weight)
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (path.parent / "w.bin").exists()
    return path


def layer(**changes: Any) -> Any:
    return deconv("up", **{"has_bias": False, "out_channels": 1, **changes})


def build(model: Path, **options: Any) -> BuildReport:
    return pipeline.build(BuildRequest(model, **{"dims": DIMS, **options}))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_build_writes_an_engine_and_its_report(use: Use, model: Path) -> None:
    report = build(model)
    engine = model.with_suffix(".engine")
    assert engine.read_bytes() == b"ptrt\0engine"
    assert json.loads(engine.with_name("m.engine.json").read_text()) == json.loads(json.dumps(report.to_json()))
    assert set(files(model.parent)) == {"m.onnx", "m.engine", "m.engine.json"}


def test_the_report_has_the_keys_that_scripts_rely_on(use: Use, model: Path) -> None:
    data = build(model).to_json()
    keys = {
        "schema",
        "model",
        "plan",
        "profiles",
        "edits",
        "findings",
        "runtime",
        "engine",
        "seconds",
        "io",
        "exit_code",
    }
    assert keys <= data.keys()
    assert data["model"].keys() >= {"path", "sha256"}
    assert data["engine"].keys() >= {"path", "sha256", "bytes"}
    assert data["engine"]["bytes"] == 11
    assert data["runtime"].keys() >= {"family", "version", "gpu"}
    assert data["profiles"] == [{"x": {"min": [1, 3, 8, 8], "opt": [1, 3, 16, 16], "max": [1, 3, 32, 32]}}]
    assert {"name", "dtype", "shape"} <= data["io"][0].keys()
    assert {"load", "rules", "rewrite", "parse", "audit", "build", "write"} <= data["seconds"].keys()


def test_check_and_rewrite_reports_have_their_keys(use: Use, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", "strides=[2,2], output_padding=[1,1]")
    use(FakeRuntime(FakeNetwork(deconvolutions=(layer(kernel=(4, 4), output_shape=(1, 1, 18, 18)),))))
    data = pipeline.check(CheckRequest(path)).to_json()
    assert {"schema", "model", "target", "findings", "summary", "parser", "exit_code"} <= data.keys()
    (finding,) = data["findings"]
    assert {"code", "name", "severity", "message", "location", "fix"} <= finding.keys()
    assert finding["location"].keys() == {"graph", "index", "node", "op", "tensor", "source"}
    asked = {"runtime": "rtx", "version": "1.7.1.116", "accepted": True, "built": True, "why": None}
    assert data["parser"] == asked
    data = pipeline.rewrite(RewriteRequest(path, tmp_path / "out.onnx")).to_json()
    assert {"schema", "edits", "skipped", "verified", "exit_code"} <= data.keys()
    assert data["edits"][0].keys() == {"pass", "node", "what"}
    assert 0 <= data["verified"] < 1e-6
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


@pytest.mark.parametrize(
    ("shape", "told"),
    [((1, 3, 16, 16), 0), ((-1, -1, -1, -1), 0), ((), 0), ((1, 5, 16, 16), 1), ((1, 3, 16), 1), ((-1, 3, 16), 1)],
)
def test_an_output_that_is_declared_otherwise_is_told(use: Use, model: Path, shape: tuple[int, ...], told: int) -> None:
    use(FakeRuntime(FakeNetwork(outputs=(TensorInfo("y", "output", "float32", shape),))))
    found = [finding.message for finding in build(model).findings if finding.code == "TC409"]
    assert len(found) == told
    assert all("output y is declared as [1, 3, ?, ?], and the network computes" in message for message in found)


class TestUpToDate:
    def test_a_second_build_keeps_the_engine(self, use: Use, model: Path) -> None:
        first = build(model)
        before = files(model.parent)
        fake = use(FakeRuntime())
        second = build(model)
        assert (second.up_to_date, second.exit_code, fake.parsed) == (True, 0, [])
        assert second.engine == first.engine
        assert (second.edits, second.findings, second.io) == (first.edits, first.findings, first.io)
        assert files(model.parent) == before

    @pytest.mark.parametrize(
        "change",
        [
            lambda model: {"dims": {**DIMS, "width": Range(8, 16, 64)}},
            lambda model: {"profiles": (DIMS, {"width": Range(8, 8, 8)})},
            lambda model: {"force": True},
            lambda model: {"rewrite": False},
            lambda model: {"precision": "fp16"},
            lambda model: model.write_bytes(model.read_bytes() + b"\x12\x01x") and {},
            lambda model: model.with_suffix(".engine").write_bytes(b"other") and {},
            lambda model: model.with_suffix(".engine").unlink() or {},
            lambda model: model.with_name("m.engine.json").write_text("{}") and {},
            lambda model: model.with_name("m.engine.json").write_text("[]") and {},
            lambda model: model.with_name("m.engine.json").write_bytes(b"\xff") and {},
            lambda model: model.with_name("m.engine.json").unlink() or {},
            lambda model: os.utime(model, (time.time() + 9, time.time() + 9)) or {},
        ],
        ids=[
            "dims",
            "profiles",
            "force",
            "rewrite",
            "precision",
            "model",
            "engine",
            "no-engine",
            "report",
            "list",
            "bytes",
            "no-report",
            "touched",
        ],
    )
    def test_any_change_builds_again(self, use: Use, model: Path, change: Callable[[Path], dict[str, Any]]) -> None:
        build(model)
        options = change(model)
        fake = use(FakeRuntime())
        report = build(model, **options)
        assert not report.up_to_date
        assert len(fake.network.built) == 1

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda model: {"dims": {**DIMS, "width": Range(8, 16, 64)}}, r"what was asked for \(dims\) changed"),
            (lambda model: {"precision": "fp16"}, r"what was asked for \(precision, .*\) changed"),
            (lambda model: model.write_bytes(model.read_bytes() + b"\x12\x01x") and {}, "the model changed"),
            (lambda model: model.with_suffix(".engine").write_bytes(b"other") and {}, "the engine's file was changed"),
            (lambda model: os.utime(model, (time.time() + 9, time.time() + 9)) or {}, "the model's file is newer"),
            (lambda model: model.with_name("m.engine.json").unlink() or {}, "its report is missing"),
            (
                lambda model: model.with_name("m.engine.json").write_bytes(b"x") and {},
                "its report is damaged, or was changed by hand",
            ),
            (lambda model: _edit(model.with_name("m.engine.json")), "its report is damaged, or was changed by hand"),
            (lambda model: model.with_suffix(".engine").unlink() or {}, "the engine's file is missing"),
            (lambda model: {"force": True}, None),
        ],
    )
    def test_why_it_is_built_again_is_told(
        self, use: Use, model: Path, change: Callable[[Path], dict[str, Any]], why: str | None
    ) -> None:
        assert build(model).rebuilt is None
        report = build(model, **change(model))
        assert (report.rebuilt is None) == (why is None)
        assert why is None or re.fullmatch(why, report.rebuilt or "")
        assert report.rebuilt is None or f"; built again, since {report.rebuilt}" in build_text(report)

    def test_an_engine_that_cannot_be_read_is_built_again(
        self, use: Use, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        build(model)

        def refuse(_: Path) -> str:
            raise OSError("of its bytes only 0 are there")

        monkeypatch.setattr("trtconv.pipeline.outputs.sha256_of", refuse)
        report = build(model)
        assert not report.up_to_date and report.exit_code == 0

    def test_another_runtime_builds_again(self, use: Use, model: Path) -> None:
        build(model)
        use(FakeRuntime(version="1.8.0.1"))
        report = build(model)
        assert not report.up_to_date
        assert re.search(r"TensorRT \(rtx .*, now rtx 1\.8\.0\.1\) changed", report.rebuilt or "")

    def test_changed_external_data_builds_again(self, use: Use, tmp_path: Path) -> None:
        path = saved_outside(tmp_path / "m.onnx")
        use(FakeRuntime(FakeNetwork(deconvolutions=(layer(),))))
        build(path, dims={})
        assert build(path, dims={}).up_to_date
        (tmp_path / "w.bin").write_bytes(bytes(36))
        assert not build(path, dims={}).up_to_date

    def test_touched_external_data_builds_again_as_a_touched_model_does(self, use: Use, tmp_path: Path) -> None:
        path = saved_outside(tmp_path / "m.onnx")
        use(FakeRuntime(FakeNetwork(deconvolutions=(layer(),))))
        build(path, dims={})
        os.utime(tmp_path / "w.bin", (time.time() + 9, time.time() + 9))
        assert build(path, dims={}).rebuilt == "the model's external data is newer"

    def test_findings_that_were_let_pass_once_fail_later(self, use: Use, tmp_path: Path) -> None:
        path = saved(tmp_path / "m.onnx", "strides=[2,2], output_padding=[1,1]")
        use(FakeRuntime(FakeNetwork(deconvolutions=(layer(),))))
        assert build(path, dims={}, rewrite=False).exit_code == 0
        assert build(path, dims={}, rewrite=False, fail_on=Severity.WARNING).exit_code == 1
        assert build(path, dims={}, rewrite=False).up_to_date


def _edit(report: Path) -> dict[str, Any]:
    document = json.loads(report.read_text())
    report.write_text(json.dumps({**document, "exit_code": 1}))
    return {}


def _missing(model: Path) -> dict[str, Any]:
    model.unlink()
    return {}


def _truncated(model: Path) -> dict[str, Any]:
    model.write_bytes(model.read_bytes()[:-20])
    return {}


def _folder(model: Path) -> dict[str, Any]:
    model.unlink()
    model.mkdir()
    return {}


def _weightless(location: str) -> Callable[[Path], dict[str, Any]]:
    def change(model: Path) -> dict[str, Any]:
        proto = parse(UP % "strides=[2,2]")
        weight = proto.graph.initializer[0]
        weight.ClearField("float_data")
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        model.write_bytes(proto.SerializeToString())
        return {"dims": {}}

    return change


def _in_a_file(model: Path) -> dict[str, Any]:
    (model.parent / "file").write_text("no folder")
    return {"engine": model.parent / "file" / "m.engine"}


BAD_INPUT: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "missing file": (_missing, "m.onnx: no such file"),
    "a folder": (_folder, "m.onnx is a folder"),
    "truncated": (_truncated, "m.onnx is not a"),
    "not ONNX": (lambda model: model.write_text("hello") and {}, "m.onnx is a text file"),
    "external data missing": (_weightless("w.bin"), "'w.bin' of tensor 'w' is missing"),
    "external data outside": (_weightless("../w.bin"), "'../w.bin' of tensor 'w' points outside"),
    "unknown dimension": (lambda model: {"dims": {**DIMS, "depth": Range(1, 1, 1)}}, "no dimension 'depth'"),
    "missing bounds": (lambda model: {"dims": {"height": Range(8, 8, 8)}}, "width  at x:3"),
    "range for a static dimension": (lambda model: {"dims": {**DIMS, "x:1": Range(1, 3, 4)}}, "x:1 is static"),
    "a profile that misses one": (lambda model: {"dims": {}, "profiles": (DIMS, {"width": DIMS["width"]})}, "height"),
    "which profile that is": (
        lambda model: {"dims": {}, "profiles": (DIMS, {"width": Range(8, 8, 8)})},
        "profile 1 (width=8): ",
    ),
    "a size beyond TensorRT's": (
        lambda model: {"dims": {**DIMS, "height": Range(8, 8, 1 << 31)}},
        "height=8:8:2147483648 is too large: TensorRT takes sizes up to 2147483647",
    ),
    "engine in a file": (_in_a_file, "m.engine cannot be written"),
    "engine is a folder": (lambda model: {"engine": model.parent}, "is a folder"),
    "engine is the model": (lambda model: {"engine": model}, "is the model itself"),
    "report is the model": (lambda model: {"report": model}, "is the model itself"),
    "timing cache is the model": (lambda model: {"timing_cache": model}, "the timing cache would replace it"),
    "timing cache is the engine": (lambda m: {"timing_cache": m.with_suffix(".engine")}, "both the engine"),
    "timing cache is a device": (lambda model: {"timing_cache": Path("/dev/null")}, "a device or a pipe"),
    "report is the engine": (lambda model: {"report": model.with_suffix(".engine")}, "both the engine and the report"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_named_and_changes_nothing(use: Use, model: Path, name: str) -> None:
    change, words = BAD_INPUT[name]
    model.with_suffix(".engine").write_bytes(OLD)
    options = change(model)
    before = files(model.parent)
    fake = use(FakeRuntime())
    with pytest.raises(InputError) as caught:
        build(model, **options)
    assert words in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2
    assert files(model.parent) == before
    assert fake.network.built == []


@pytest.mark.parametrize("bounds", [(4, 2, 8), (8, 4, 2), (0, 1, 1), (-1, 1, 1)])
def test_ranges_out_of_order(bounds: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match=r"min|least"):
        Range(*bounds)


def test_no_folder_is_made_for_a_request_that_is_bad(use: Use, model: Path) -> None:
    with pytest.raises(InputError):
        build(model, dims={}, engine=model.parent / "out" / "m.engine")
    assert not (model.parent / "out").exists()


def test_folders_are_made_for_a_good_one(use: Use, model: Path) -> None:
    build(model, engine=model.parent / "deep" / "er" / "m.engine")
    assert (model.parent / "deep" / "er" / "m.engine.json").exists()


@pytest.mark.parametrize("option", ["engine", "report"])
def test_weights_of_the_model_are_never_overwritten(use: Use, tmp_path: Path, option: str) -> None:
    path = saved_outside(tmp_path / "m.onnx")
    before = files(tmp_path)
    with pytest.raises(InputError, match="holds weights of the model"):
        build(path, dims={}, **{option: tmp_path / "w.bin"})
    with pytest.raises(InputError, match="holds weights of the model"):
        pipeline.rewrite(RewriteRequest(path, tmp_path / "w.bin", target=RTX))
    assert files(tmp_path) == before


class TestFailure:
    """The model fails: exit code 1, findings, no engine, the old one untouched."""

    def fails(self, path: Path, **options: Any) -> BuildReport:
        path.with_suffix(".engine").write_bytes(OLD)
        before = files(path.parent)
        report = build(path, **options)
        assert report.exit_code == 1
        assert report.engine is None
        assert files(path.parent) == before
        return report

    def test_the_parser_refuses(self, use: Use, model: Path) -> None:
        use(FakeRuntime(refuses=[issue(0, "Relu", "no importer", "a"), issue(-1, "", "odd")]))
        findings = self.fails(model).findings
        assert [f.code for f in findings] == ["TC401", "TC401"]
        assert (findings[0].location.index, findings[0].location.node, findings[0].location.op) == (0, "a", "Relu")
        assert "no importer" in findings[0].message

    def test_the_builder_refuses(self, use: Use, model: Path) -> None:
        use(FakeRuntime(FakeNetwork(failure=BuildFailed("no tactic", "try less"))))
        (finding,) = self.fails(model).findings
        assert (finding.code, finding.message, finding.fix) == ("TC403", "no tactic", "try less")

    @pytest.mark.parametrize(
        "message",
        [
            "Assertion !layerImpls.empty() failed. a_0 has no runners that implement it",
            "Could not find any implementation for node a.",
            "Could not find any implementation for node {ForeignNode[a...b]}.",
            "Could not find any implementation for node x_1 + a.",
        ],
    )
    def test_what_the_builder_refuses_stands_at_the_node_that_it_names(
        self, use: Use, model: Path, message: str
    ) -> None:
        proto = onnx.load(model)
        proto.graph.node[0].name = "a"
        onnx.save(proto, model)
        use(FakeRuntime(FakeNetwork(failure=BuildFailed(message))))
        (finding,) = self.fails(model).findings
        place = finding.location
        assert (place.index, place.node, place.op) == (0, "a", "Relu")
        assert finding.fix.endswith("Or leave it to ONNX Runtime: build --partition (docs/partition.md).")

    def test_the_builder_refuses_wide_ranges(self, use: Use, model: Path) -> None:
        """As std::bad_alloc for two ranging dimensions: what does build is tried and told."""
        network = Narrow()
        use(FakeRuntime(network))
        (finding,) = self.fails(model).findings
        assert (finding.code, finding.message) == ("TC403", "it ran out of host memory")
        assert finding.fix == (
            "The ranges are too wide for the builder. It does build with --dim height=8:16:32 --dim width=16;"
            " or with --dim height=16 --dim width=8:16:32; or with --dim height=16 --dim width=16."
        )
        assert len(network.built) == 5

    def test_ranges_that_are_not_to_blame(self, use: Use, model: Path) -> None:
        """Where everything fixed fails too, nothing else is tried."""
        network = FakeNetwork(failure=BuildFailed("no tactic", "try less"))
        use(FakeRuntime(network))
        self.fails(model)
        assert len(network.built) == 2

    def test_no_patience(self, use: Use, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(respelling, "_PATIENCE_SECONDS", 0.0)
        network = Narrow()
        use(FakeRuntime(network))
        assert self.fails(model).findings[0].fix == "Give narrower ranges."
        assert len(network.built) == 1

    def test_the_builder_refuses_with_findings(self, use: Use, model: Path) -> None:
        given = Finding("TC404", "profile-inconsistent", "7 != 8", Severity.ERROR)
        use(FakeRuntime(FakeNetwork(failure=BuildFailed("no", findings=(given,)))))
        assert self.fails(model).findings == (given,)

    def test_the_network_differs(self, use: Use, tmp_path: Path) -> None:
        path = saved(tmp_path / "m.onnx", "strides=[2,2]")
        use(FakeRuntime(FakeNetwork(deconvolutions=(layer(pre_padding=(0, 1)),))))
        assert [f.code for f in self.fails(path, dims={}, fail_on=None).findings] == ["TC402"]

    @pytest.mark.parametrize("fail_on", [Severity.ERROR, None])
    def test_a_misread_node_without_the_passes(self, use: Use, tmp_path: Path, fail_on: Severity | None) -> None:
        path = saved(tmp_path / "m.onnx", 'strides=[2,2], auto_pad="SAME_UPPER", output_padding=[1,1]')
        misread = layer(padding_mode="SAME_UPPER", output_shape=(1, 1, 16, 16))
        use(FakeRuntime(FakeNetwork(deconvolutions=(misread,))))
        codes = {f.code for f in self.fails(path, dims={}, rewrite=False, fail_on=fail_on).findings}
        assert codes == ({"TC102"} if fail_on else {"TC102", "TC402"})

    def test_a_report_that_was_asked_for_is_written(self, use: Use, model: Path) -> None:
        use(FakeRuntime(FakeNetwork(failure=BuildFailed("no tactic"))))
        report = model.parent / "why.json"
        build(model, report=report)
        assert json.loads(report.read_text())["exit_code"] == 1
        assert not model.with_suffix(".engine").exists()

    def test_an_exception_of_the_runtime_is_passed_on(self, use: Use, model: Path) -> None:
        use(FakeRuntime(FakeNetwork(failure=ZeroDivisionError("a bug"))))
        with pytest.raises(ZeroDivisionError):
            build(model)
        assert not model.with_suffix(".engine").exists()


@pytest.mark.parametrize(
    ("fail_on", "exit_code"), [(Severity.ERROR, 0), (Severity.WARNING, 1), (Severity.INFO, 1), (None, 0)]
)
def test_fail_on(use: Use, tmp_path: Path, fail_on: Severity | None, exit_code: int) -> None:
    path = saved(tmp_path / "m.onnx", "strides=[2,2], output_padding=[1,1]")
    use(FakeRuntime(FakeNetwork(deconvolutions=(layer(),))))
    assert build(path, dims={}, rewrite=False, fail_on=fail_on).exit_code == exit_code
    assert pipeline.check(CheckRequest(path, rewrite=False, fail_on=fail_on)).exit_code == exit_code


def test_two_unnamed_nodes_are_told_apart(use: Use, tmp_path: Path) -> None:
    """The first is mended and becomes several nodes; the second is refused and keeps its finding."""
    path = tmp_path / "m.onnx"
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,8,8] x, float[1,1,3,3] w)
        => (float[1,1,p,q] y, float[1,1,p,q] z)
        { y = ConvTranspose <kernel_shape=[3,3], strides=[2,2], output_padding=[1,1]> (x, w)
          z = ConvTranspose <kernel_shape=[3,3], strides=[2,2], output_padding=[2,2]> (x, w) }"""
    )
    onnx.save(proto, path)
    findings = pipeline.check(CheckRequest(path, target=Target("tensorrt", (8, 6)))).findings
    seen = sorted((f.code, f.severity.value, f.mended_by is not None) for f in findings if f.code < "TC4")
    assert seen == [("TC101", "info", True), ("TC101", "warning", False), ("TC105", "error", False)]


def test_check_against_a_target_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    def missing(target: Target | None) -> Any:
        raise EnvironmentMissing("not here", "install it")

    monkeypatch.setattr(tensorrt, "load", missing)
    report = pipeline.check(CheckRequest(model, target=Target("tensorrt", (8, 6))))
    assert report.parser == ParserVerdict(why="not here")
    # A family alone means the version that is installed; there is none to judge by.
    for target in (None, Target("tensorrt"), Target("rtx")):
        with pytest.raises(EnvironmentMissing):
            pipeline.check(CheckRequest(model, target=target))
    with pytest.raises(EnvironmentMissing):
        build(model)


def test_the_users_model_is_never_written(use: Use, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", "strides=[2,2], output_padding=[1,1]")
    before = path.read_bytes()
    use(FakeRuntime(FakeNetwork(deconvolutions=(layer(kernel=(4, 4), output_shape=(1, 1, 18, 18)),))))
    build(path, dims={})
    pipeline.rewrite(RewriteRequest(path, tmp_path / "out.onnx"))
    assert path.read_bytes() == before


def test_a_weight_that_outgrows_onnx_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel of more than 2 GiB once it is lengthened ended as a bug of ours."""

    def fail(*_: Any) -> Any:
        raise EncodeError("Failed to serialize proto")

    monkeypatch.setattr("trtconv.graph.editor.Field._new_initializers", fail)
    path = saved(tmp_path / "m.onnx", "strides=[2,2], output_padding=[1,1]")
    with pytest.raises(InputError, match="node 'up' rewritten has a weight over 2 GiB"):
        pipeline.rewrite(RewriteRequest(path, tmp_path / "out.onnx"))
    assert not (tmp_path / "out.onnx").exists()


class Wrong(Pass):
    """Breaks the numbers."""

    name = "wrong"
    fixes = ()

    def run(self, model: Any, target: Target) -> PassResult:
        node = model.proto.graph.node[0]
        if node.op_type != "Relu":
            return PassResult()
        node.op_type = "Neg"
        model.touch()
        return PassResult((Edit(self.name, node.name, "broken"),))


def test_a_rewrite_that_computes_something_else_is_not_written(
    use: Use, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "PASSES", (*PASSES, Wrong()))
    report = pipeline.rewrite(RewriteRequest(model, model.parent / "out.onnx"))
    assert report.exit_code == 1
    assert report.verified.max_relative_error > 0.1
    assert not (model.parent / "out.onnx").exists()


class Broken(Wrong):
    """Was asked to change numbers, and changes shapes."""

    safety = "changes numbers, only when asked"

    def run(self, model: Any, target: Target) -> PassResult:
        node = model.proto.graph.node[0]
        if node.op_type != "Relu":
            return PassResult()
        node.op_type = "Concat"
        node.input.append(node.input[0])
        node.attribute.append(onnx.helper.make_attribute("axis", 2))
        model.touch()
        return PassResult((Edit(self.name, node.name, "broken"),))


def test_a_request_to_change_numbers_is_none_to_break_the_model(
    use: Use, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "PASSES", (Broken(),))
    report = pipeline.rewrite(RewriteRequest(model, model.parent / "out.onnx"))
    assert report.verified.max_relative_error == float("inf")
    assert report.exit_code == 1
    assert not (model.parent / "out.onnx").exists()


def test_the_data_file_of_a_large_result_must_not_be_the_models(use: Use, tmp_path: Path) -> None:
    path = saved_outside(tmp_path / "m.onnx")
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "out.onnx.data"
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "w.bin").rename(tmp_path / "out.onnx.data")
    with pytest.raises(InputError, match="holds weights of the model"):
        pipeline.rewrite(RewriteRequest(path, tmp_path / "out.onnx"))


def test_the_public_functions_are_these(use: Use, model: Path) -> None:
    report = trtconv.build(trtconv.BuildRequest(model, dims=DIMS))
    assert dataclasses.is_dataclass(report)
    assert report.exit_code == 0


def test_paths_may_be_text() -> None:
    request = BuildRequest("m.onnx", engine="out/m.engine")  # type: ignore[arg-type]
    assert (request.model, request.report_path) == (Path("m.onnx"), Path("out/m.engine.json"))
    assert CheckRequest("m.onnx").model == Path("m.onnx")  # type: ignore[arg-type]


class TestCast:
    """What comes of --precision where the graph is cast."""

    def test_the_cast_is_in_the_report_and_in_what_tensorrt_is_given(self, use: Use, model: Path) -> None:
        fake = use(FakeRuntime())
        report = build(model, precision="fp16")
        assert report.cast is not None
        assert report.cast.nodes == 1
        assert report.cast.verified.max_relative_error < 1e-3
        assert [edit.pass_name for edit in report.edits] == ["cast-to-fp16"]
        given = onnx.load_model_from_string(fake.parsed[0][0])
        assert [node.op_type for node in given.graph.node] == ["Cast", "Relu", "Cast"]
        assert fake.network.built[0].precision == "as-is"
        written = json.loads(model.with_name("m.engine.json").read_text())
        assert written["cast"] == report.cast.to_json()
        assert written["plan"]["cast_by"].keys() == {"onnx", "onnxruntime"}

    def test_a_kept_engine_keeps_the_report_of_its_cast(self, use: Use, model: Path) -> None:
        first = build(model, precision="fp16")
        second = build(model, precision="fp16")
        assert (second.up_to_date, second.cast) == (True, first.cast)

    @pytest.mark.parametrize("change", ["tools", "io"])
    def test_another_cast_builds_again(
        self, use: Use, model: Path, monkeypatch: pytest.MonkeyPatch, change: str
    ) -> None:
        build(model, precision="fp16")
        if change == "tools":
            monkeypatch.setattr(apply, "tools", lambda: {"onnx": "1", "onnxruntime": "2"})
        assert not build(model, precision="fp16", cast_interface=change == "io").up_to_date

    def test_a_cast_that_is_not_finite_fails_the_build(self, use: Use, tmp_path: Path, monkeypatch: Any) -> None:
        path = tmp_path / "m.onnx"
        big = """<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) <float b = {60000}>
            { a = Mul (x, b)  y = Mul (a, b) }"""
        onnx.save(parse(big), path)
        monkeypatch.setattr(apply, "_hot", lambda *_: frozenset())
        fake = use(FakeRuntime())
        report = build(path, dims={"n": Range(8, 8, 8)}, precision="fp16")
        assert (report.exit_code, [f.code for f in report.findings]) == (1, ["TC512"])
        assert (fake.parsed, report.engine) == ([], None)
        forgiven = build(path, dims={"n": Range(8, 8, 8)}, precision="fp16", fail_on=None)
        assert forgiven.exit_code == 0

    def test_inputs_and_outputs_are_cast_where_the_graph_is(self, use: Use, model: Path) -> None:
        use(FakeRuntime(capabilities=TENSORRT_8, version="8.6.0", family="tensorrt"))
        with pytest.raises(InputError, match="TensorRT 8"):
            build(model, precision="fp16", cast_interface=True)
        use(FakeRuntime())
        with pytest.raises(InputError, match="--precision"):
            build(model, cast_interface=True)

    def test_options_and_cache_reach_the_builder(self, use: Use, model: Path, tmp_path: Path) -> None:
        caching = dataclasses.replace(TENSORRT_8, timing_cache=True)
        options = BuilderOptions(workspace_bytes=1)
        for kind, name in ({"timing_cache": tmp_path / "t"}, "t"), ({"timing_folder": tmp_path}, None):
            fake = use(FakeRuntime(capabilities=caching, family="tensorrt", version="8.6.0", gpu="NVIDIA H100/80GB"))
            build(model, options=options, force=True, **kind)
            (plan,) = fake.network.built
            assert plan.options == options
            assert plan.timing_cache == tmp_path / (name or "tensorrt-8.6.0-NVIDIA-H100-80GB.timing")

    @pytest.mark.parametrize(
        ("asked", "split", "measures", "level"),
        [
            (None, "auto", True, 2),
            (3, "auto", True, 3),
            (None, "auto", False, None),
            (None, "4", True, None),
            (None, None, True, None),
        ],
    )
    def test_many_profiles_of_split_auto_take_a_quicker_search(
        self, use: Use, model: Path, asked: int | None, split: str | None, measures: bool, level: int | None
    ) -> None:
        capabilities = dataclasses.replace(TENSORRT_8, timing_cache=measures)
        fake = use(FakeRuntime(capabilities=capabilities, family="tensorrt", version="8.6.0"))
        options = BuilderOptions(optimization_level=asked)
        report = build(model, dims=dict.fromkeys(DIMS, Range(8, 64, 64)), split=split, options=options)
        (plan,) = fake.network.built
        assert len(plan.profiles) == (4 if split else 1)
        assert plan.options.optimization_level == level
        assert report.plan.options == options, "what was asked is told, and decides what is up to date"
        assert any("--optimization-level 3" in note for note in report.notes) == (level == 2)

    def test_another_option_builds_again_another_cache_does_not(self, use: Use, model: Path, tmp_path: Path) -> None:
        build(model)
        assert build(model, timing_folder=tmp_path).up_to_date
        assert not build(model, options=BuilderOptions(sparsity=True)).up_to_date

    def test_a_cache_that_rtx_does_not_have_is_told_once_asked_for(self, use: Use, model: Path, tmp_path: Path) -> None:
        report = build(model, timing_cache=tmp_path / "t", force=True)
        assert [(f.code, f.severity.value) for f in report.findings] == [("TC407", "info")]
        assert build(model, timing_folder=tmp_path, force=True).findings == ()
