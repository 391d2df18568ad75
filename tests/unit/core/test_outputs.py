"""What may be written: nothing of a stranger's folder or configuration makes a command replace what is not its own."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from trtconv.core import config
from trtconv.core.agreement import CodeFile
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_stream, atomic_write
from trtconv.core.outputs import Output, check_all, is_replaceable
from trtconv.core.requests.bench import BenchRequest
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.engine import InspectRequest, RefitRequest, RunRequest, VerifyRequest, WarmRequest
from trtconv.core.requests.explain import ExplainRequest
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.requests.files import files_read
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.core.requests.reduce import ReduceRequest
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.seal import KEY
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.outputs import check_outputs

REQUESTS = (
    *(BenchRequest, BuildRequest, CheckRequest, ExplainRequest, FarmRequest, InspectRequest, QuantizeRequest),
    *(ReduceRequest, RefitRequest, RewriteRequest, RunRequest, VerifyRequest, WarmRequest),
)
ENGINE = b"ftrt" + bytes(60)
REPORT = '{\n  "schema": 1,\n  "trtconv": "0.1.0"\n}\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a configuration's models, and what belongs to others; outside of it, a file of the user's."""
    (tmp_path / "victim").write_text("mine")
    folder = tmp_path / "checkout"
    for name in ("g.onnx", "h.onnx", "package.json", "notes", ".git/config", ".github/workflows/ci.yml", "sub/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("theirs")
    return folder


def load(folder: Path, *models: tuple[str, str]) -> config.Config:
    text = "".join(f"[[models]]\npath = '{path}'\nengine = '{engine}'\n" for path, engine in models)
    (folder / "trtconv.toml").write_text(text)
    return config.load(folder / "trtconv.toml")


def _link(name: str, to: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).symlink_to(to)


REFUSED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "link of the engine": ("r.engine", _link("r.engine", "../victim")),
    "link of the report": ("r.engine", _link("r.engine.json", "../victim")),
    "link of the report to nothing": ("r.engine", _link("r.engine.json", "../new")),
    "link inside the folder": ("r.engine", _link("r.engine.json", "notes")),
    "link in a circle": ("r.engine", _link("r.engine", "r.engine")),
    "folder that is a link": ("out/r.engine", _link("out", "..")),
    "outside": ("../r.engine", lambda _: None),
    "absolute": ("/tmp/r.engine", lambda _: None),
    "folder of Git": (".git/config", lambda _: None),
    "hook of Git": (".git/hooks/pre-commit", lambda _: None),
    "another tool's folder": (".github/workflows/ci.yml", lambda _: None),
    "hidden file": (".envrc", lambda _: None),
    "folder of Git by a link": ("out/hooks", _link("out", ".git")),
    "the configuration": ("trtconv.toml", lambda _: None),
    "the model itself": ("g.onnx", lambda _: None),
    "another model": ("h.onnx", lambda _: None),
    "another model by a detour": ("sub/../h.onnx", lambda _: None),
    "another model by a hard link": ("hard.engine", lambda folder: os.link(folder / "h.onnx", folder / "hard.engine")),
    "a file of somebody else": ("notes", lambda _: None),
    "a report that is a file of somebody else": ("package", lambda _: None),
}


@pytest.mark.parametrize("detour", ["", "none/../", "none/none/../../"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_configuration_may_not_replace(checkout: Path, name: str, detour: str) -> None:
    engine, prepare = REFUSED[name]
    prepare(checkout)
    with pytest.raises(InputError):
        load(checkout, ("g.onnx", str(Path(detour) / engine)), ("h.onnx", "h.engine"))


@pytest.mark.parametrize(
    ("one", "other", "prepare"),
    [
        ("a.engine", "sub/../a.engine", lambda _: None),
        ("a.engine", "./a.engine", lambda _: None),
        ("a.engine", "none/../a.engine", lambda _: None),
        ("a.engine", "out/a.engine", _link("out", ".")),
        ("a.engine", "a.engine.json", lambda _: None),
        ("a.engine.json", "a.engine", lambda _: None),
        ("a.engine", "b.engine", lambda f: ((f / "a.engine").touch(), os.link(f / "a.engine", f / "b.engine"))),
        ("a.engine", "b.engine", _link("b.engine", "a.engine")),
    ],
)
def test_entries_do_not_share_a_file(checkout: Path, one: str, other: str, prepare: Callable[[Path], object]) -> None:
    prepare(checkout)
    with pytest.raises(InputError):
        load(checkout, ("g.onnx", one), ("h.onnx", other))


def test_what_a_configuration_may_replace(checkout: Path) -> None:
    """An engine, by what it begins with or by its report; and its report, whatever became of that."""
    (checkout / "g.engine").write_bytes(ENGINE)
    (checkout / "g.engine.json").write_text("damaged")
    (checkout / "out").mkdir()
    (checkout / "out" / "h.bin").write_bytes(b"old")
    named = REPORT.replace("}", f', "sha256": "{hashlib.sha256(b"old").hexdigest()}"}}')
    (checkout / "out" / "h.bin.json").write_text(named)
    found = load(checkout, ("g.onnx", "g.engine"), ("h.onnx", "out/h.bin"))
    assert [build.engine_path.name for build in found.builds] == ["g.engine", "h.bin"]
    for build in found.builds:
        check_outputs(build)


@pytest.mark.parametrize("name", ["keep.engine", "keep.plan", "keep.trt", "keep.int8.onnx", "keep.1.part.onnx"])
@pytest.mark.parametrize("report", [None, "{}", REPORT, REPORT + hashlib.sha256(b"another").hexdigest()])
def test_what_trtconv_did_not_write_is_not_replaced_whatever_it_is_called(
    checkout: Path, name: str, report: str | None
) -> None:
    (checkout / name).write_bytes(b"mine")
    if report is not None:
        (checkout / f"{name}.json").write_text(report)
    with pytest.raises(InputError, match="was not written by trtconv"):
        load(checkout, ("g.onnx", name), ("h.onnx", "h.engine"))


@pytest.mark.parametrize(("engine", "content"), [("package", ENGINE), ("new.engine", b"mine")])
def test_a_report_that_trtconv_did_not_write_is_not_replaced(checkout: Path, engine: str, content: bytes) -> None:
    (checkout / engine).write_bytes(content)
    (checkout / f"{engine}.json").write_text("mine")
    with pytest.raises(InputError, match="was not written by trtconv"):
        load(checkout, ("g.onnx", engine), ("h.onnx", "h.engine"))


def test_a_file_that_cannot_be_read_to_its_end_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.touch()
    os.truncate(path, 1 << 31)
    (tmp_path / "weights.bin.json").write_text(REPORT)
    assert not is_replaceable(path)


def test_a_link_that_appears_after_the_configuration_was_read_is_refused(checkout: Path) -> None:
    (build,) = load(checkout, ("g.onnx", "g.engine")).builds
    (checkout / "g.engine.json").symlink_to("../victim")
    with pytest.raises(InputError, match="is a link"):
        check_outputs(build)


@pytest.mark.parametrize("link", ["m.engine", "m.engine.json"])
def test_paths_that_nobody_typed_are_no_links(tmp_path: Path, link: str) -> None:
    (tmp_path / link).symlink_to("victim")
    with pytest.raises(InputError, match="is a link"):
        check_outputs(BuildRequest(tmp_path / "m.onnx"))


def test_a_report_that_nobody_typed_replaces_only_reports(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    with pytest.raises(InputError, match="was not written by trtconv"):
        check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / "package"))
    check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / "package", report=tmp_path / "package.json"))


def test_what_the_user_typed_goes_where_he_says_but_over_no_input(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"model")
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "m.engine").symlink_to(tmp_path / "victim")
    check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / "m.engine"))
    (tmp_path / "link").symlink_to("m.onnx")
    os.link(tmp_path / "m.onnx", tmp_path / "hard")
    for typed in ("m.onnx", "link", "hard", "none/../m.onnx", "none/../link"):
        with pytest.raises(InputError):
            check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / typed))


def test_inputs_that_are_not_there_stand_in_nobodys_way(tmp_path: Path) -> None:
    check_all([Output(tmp_path / "out", "the page")], [("a key", None), ("a report", tmp_path / "none")])
    with pytest.raises(InputError, match="is a report, and the page would replace it"):
        check_all([Output(tmp_path / "none", "the page")], [("a report", tmp_path / "none")])


def test_a_link_is_replaced_where_it_is_not_followed(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("mine")
    link.symlink_to(victim)
    atomic_write(link, b"new")
    assert (victim.read_text(), link.read_bytes(), link.is_symlink()) == ("mine", b"new", False)
    link.unlink()
    link.symlink_to(victim)
    with atomic_stream(link, through_links=True) as file:
        file.write(b"followed")
    assert (victim.read_bytes(), link.is_symlink()) == (b"followed", True)


def test_stdout_is_not_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="not written to stdout"):
        check_outputs(BuildRequest(tmp_path / "m.onnx", Path("-")))


@pytest.mark.parametrize("name", ["m.engine", "m.engine.json"])
@pytest.mark.parametrize("content", [b"mine", b"{}", b"\x08\x08:\x05\x12\x03abc"])
def test_a_name_that_nobody_typed_makes_no_file_of_somebody_else_ours(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="was not written by trtconv") as refused:
        check_outputs(BuildRequest(tmp_path / "m.onnx"))
    assert "-o" in refused.value.hint
    check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / "m.engine", report=tmp_path / "m.engine.json"))


def test_an_engine_of_ours_is_replaced_whatever_became_of_it(tmp_path: Path) -> None:
    request = BuildRequest(tmp_path / "m.onnx")
    request.engine_path.write_bytes(ENGINE)
    request.report_path.write_text("spoiled")
    check_outputs(request)
    request.engine_path.write_bytes(b"spoiled")
    request.report_path.write_text(REPORT.replace("\n}", ',\n  "engine": {"sha256": "0"}\n}'))
    check_outputs(request)
    # The report of a build that failed tells of no engine.
    request.report_path.write_text(REPORT)
    with pytest.raises(InputError, match="was not written by trtconv"):
        check_outputs(request)


def test_a_model_of_ours_is_replaced_until_somebody_changes_it(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    path = tmp_path / "m.int8.onnx"
    output = Output(path, "the quantised model", typed=False)
    OnnxModel(onnx.parser.parse_model(text), path).save(path)
    output.check()
    OnnxModel.load(path).save(path)
    output.check()
    proto = onnx.load(path)
    assert [each.key for each in proto.metadata_props] == [KEY]
    proto.graph.node[0].op_type = "Tanh"
    onnx.save(proto, path)
    with pytest.raises(InputError, match="was not written by trtconv"):
        output.check()


def _requests(folder: Path, output: Path) -> list[Any]:
    model, data = folder / "m.onnx", str(folder / "s")
    return [
        BuildRequest(model, output, precision="auto", data=data),
        BuildRequest(model, precision="auto", data=data, report=output),
        BuildRequest(model, precision="auto", data=data, timing_cache=output),
        BuildRequest(model, output, precision="auto", data=f"{folder / 's' / '0.npz'}:f"),
        QuantizeRequest(model, output, data=data),
        QuantizeRequest(model, output, calibration=folder / "s" / "0.npz"),
        BuildRequest(model, output, plugins=CodeFile.named([folder / "s" / "0.npz"])),
        RunRequest(folder / "m.engine", inputs=folder / "s" / "0.npz", output=output),
        WarmRequest(folder / "s" / "0.npz", cache=output),
    ]


def _outputs(request: Any) -> list[Output]:
    if isinstance(request, BuildRequest):
        caches = [] if request.timing_cache is None else [request.timing_cache]
        return [*request.outputs, *(Output(path, "the timing cache") for path in caches)]
    return [Output(getattr(request, "output", None) or request.cache, "what is written")]


@pytest.mark.parametrize("spelling", ["s/0.npz", "s/../s/0.npz", "none/../s/0.npz", "hard", "link"])
def test_nothing_is_written_over_a_file_that_is_read(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "0.npz").write_bytes(b"sample")
    os.link(tmp_path / "s" / "0.npz", tmp_path / "hard")
    (tmp_path / "link").symlink_to("s/0.npz")
    for request in _requests(tmp_path, tmp_path / spelling):
        if ".npz:f" not in str(getattr(request, "data", "")):
            with pytest.raises(InputError, match="would replace it"):
                check_all(_outputs(request), files_read(request))
    for request in _requests(tmp_path, tmp_path / "s" / "new"):
        check_all(_outputs(request), files_read(request))


def test_a_function_that_makes_samples_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text("")
    request = BuildRequest(tmp_path / "m.onnx", tmp_path / "make.py", precision="auto", data=f"{tmp_path}/make.py:f")
    with pytest.raises(InputError, match="is the samples"):
        check_outputs(request)


def test_every_path_that_a_request_names_is_read_or_written() -> None:
    """An option with a file that says neither would be written over."""
    subjects = {"model", "path", "spec", "within", "timing_folder", "output", "keys", "store"}
    for kind in REQUESTS:
        for field in dataclasses.fields(kind):
            says = field.metadata.get("option")
            is_file = "Path" in str(field.type) or "CodeFile" in str(field.type)
            if not is_file or field.name in subjects or (says is None and field.name in ("engine", "cache")):
                continue
            assert bool(says.reads) != says.writes, (kind, field.name)


@pytest.mark.parametrize("request_of", [
    lambda path: QuantizeRequest("m.onnx", path).output,
    lambda path: RewriteRequest("m.onnx", path).output,
    lambda path: ReduceRequest("m.onnx", path).output,
    lambda path: RunRequest("m.engine", inputs="i.npz", output=path).output,
    lambda path: RefitRequest("m.engine", "m.onnx", output=path).output_path,
    lambda path: WarmRequest("m.engine", cache=path).cache,
    lambda path: BenchRequest("m.engine", cache=path).cache,
    lambda path: BuildRequest("m.onnx", path).engine_path,
    lambda path: BuildRequest("m.onnx", report=path).report_path,
])  # fmt: skip
def test_what_is_written_can_be_opened_by_the_path_that_is_told(
    tmp_path: Path, request_of: Callable[[str], Path]
) -> None:
    assert request_of(f"{tmp_path}/none/../x") == tmp_path / "x"


@pytest.mark.parametrize("name", ["client.pem", "ca.pem"])
def test_keys_of_a_farm_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "keys").mkdir()
    path = tmp_path / "keys" / name
    path.touch()
    for output in (path, tmp_path / "keys"):
        with pytest.raises(InputError, match="is the keys"):
            check_all([Output(output, "the engine")], files_read(FarmRequest(keys=tmp_path / "keys")))
