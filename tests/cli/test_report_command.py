"""`trtconv report` and `build --page`: one file that shows all, loads nothing, and lets no foreign text be markup."""

from __future__ import annotations

import html.parser
import json
import os
import re
from pathlib import Path
from typing import Any

import onnx
import pytest

from support import engines
from support.cli import FakePipeline, build_report
from trtconv.cli.process.boundary import error_document
from trtconv.core.documents.signed import checksum
from trtconv.core.errors import EnvironmentMissing

MARKUP = "<script>alert(1)</script>\"'&"
MISREAD = engines.NET.replace(
    "<strides = [2, 2]> (b, k)", "<strides = [2, 2], output_padding = [1, 1]> (b, k)"
).replace("z = Add (x, c)", "z = Relu (x)")


@pytest.fixture
def built(tmp_path: Path) -> engines.Built:
    return engines.build(tmp_path)


class Reader(html.parser.HTMLParser):
    """Notes every element with its attributes, and the text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def write(built: engines.Built, command: str, /, **document: Any) -> None:
    built.report.with_name(f"net.engine.{command}.json").write_text(json.dumps(document))


def identity(built: engines.Built) -> dict[str, Any]:
    engine: dict[str, Any] = json.loads(built.report.read_text())["engine"]
    return engine


def test_page_loads_nothing_and_runs_nothing(call, built: engines.Built, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert call("report", str(built.engine), "-o", str(page)).code == 0
    read = Reader(page)
    tags = {tag for tag, _ in read.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "audio", "video", "image"}
    policy = next(a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    for _, attributes in read.elements:
        assert not {"style", "src", "srcset", "xlink:href"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    style = re.search(r"<style>(.*?)</style>", page.read_text(encoding="utf-8"), re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert len(page.read_bytes()) < 300_000


def test_page_shows_verdict_sizes_and_identity(call, built: engines.Built, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    call("report", str(built.report), "-o", str(page))
    text = Reader(page).text
    for said in ("net.onnx", "Built", "Not proven", "1x3x4x4", "2x3x12x12", identity(built)["sha256"], "8.6.0"):
        assert said in text


def test_rewrites_are_drawn_where_the_model_is_at_hand(call, tmp_path: Path) -> None:
    built = engines.build(tmp_path, MISREAD)
    name = onnx.load(built.model).graph.node[2].name or "ConvTranspose"
    built.change_report(edits=[{"pass": "make-deconv-explicit", "node": name, "what": "written out"}])
    page = tmp_path / "page.html"
    call("report", str(built.engine), "-o", str(page))
    read = Reader(page)
    assert {"graph", "taps"} <= {attributes.get("class") for tag, attributes in read.elements if tag == "svg"}
    assert "output_padding 1, 1" in read.text
    assert "Why it computes the same." in read.text
    built.model.unlink()
    call("report", str(built.engine), "-o", str(page))
    assert "net.onnx is not here" in Reader(page).text
    assert "written out" in Reader(page).text


def test_what_was_measured_is_shown(call, built: engines.Built, tmp_path: Path) -> None:
    row = {"engine": 0, "profile": 0, "size": "opt", "shapes": {"x": [1, 3, 8, 8]}, "graph": True, "copies": False}
    times = {"runs": 9, "median_us": 1234.5, "p99_us": 1300.0, "min_us": 1200.0, "throughput_per_s": 810.0}
    write(built, "bench", engines=[identity(built)], rows=[{**row, **times}], runtime=engines.RUNTIME)
    tensor = {"name": "y", "shape": [1, 3, 8, 8], "dtype": "float16", "format": "Channel last"}
    layer = {"name": "conv + relu", "type": "Convolution", "precision": "half", "outputs": [tensor], "time_us": 77.5}
    write(built, "inspect", kind="engine", file=identity(built), layers=[layer], details="full", time=None)
    output = {
        "name": "y",
        "max_abs": 1e-3,
        "max_rel": 0.5,
        "cosine": 0.9,
        "psnr": 60.0,
        "passed": False,
        "why": "far off",
    }
    case = {"profile": 0, "size": "opt", "shapes": {"x": [1, 3, 8, 8]}, "outputs": [output], "passed": False}
    write(
        built,
        "verify",
        engine=identity(built),
        ran="engine",
        why_not_run=None,
        precision="fp16",
        tolerance={"relative": 0.02, "cosine": 0.99},
        cases=[{**case, "skipped": None}],
        verified=False,
        incomplete=None,
        worst={"max_rel": 0.5},
    )
    page = tmp_path / "page.html"
    assert call("report", str(built.engine), "-o", str(page)).code == 0
    text = Reader(page).text
    for said in ("1,234.5 us", "conv + relu", "Channel last", "Not verified", "5.0e-01", "far off"):
        assert said in text


def test_what_is_of_another_engine_is_not_shown(call, built: engines.Built, tmp_path: Path) -> None:
    write(built, "bench", engines=[{"path": "x.engine", "sha256": "0"}], rows=[])
    page = tmp_path / "page.html"
    assert call("report", str(built.engine), "-o", str(page)).code == 0
    assert "net.engine.bench.json is of another engine" in Reader(page).text
    ended = call("report", str(built.engine), "-o", str(page), "--with", str(tmp_path / "net.engine.bench.json"))
    assert ended.code == 2
    assert "is of another engine" in ended.err


def test_foreign_text_is_no_markup(call, built: engines.Built, tmp_path: Path) -> None:
    place = {"graph": "", "index": 1, "node": MARKUP, "op": MARKUP, "tensor": MARKUP, "source": MARKUP}
    finding = {"code": "TC101", "name": MARKUP, "message": MARKUP, "severity": "error", "location": place}
    built.change_report(
        model__path=MARKUP,
        runtime__gpu=MARKUP,
        findings=[{**finding, "fix": f"\u202e{MARKUP}", "mended_by": None}],
        edits=[{"pass": MARKUP, "node": MARKUP, "what": MARKUP}],
        skipped=[{"pass": MARKUP, "node": MARKUP, "reason": MARKUP}],
        notes=[MARKUP],
        seconds={MARKUP: 1.0},
        io=[{"kind": MARKUP, "name": MARKUP, "dtype": MARKUP, "shape": [1]}],
        lattice={
            "dims": {MARKUP: {"min": 1, "max": 2, "valid": None, "accepted": MARKUP}},
            "joint": [MARKUP],
            "imposed": [{"text": MARKUP}],
        },
    )
    for subject in (built.report, tmp_path):
        page = tmp_path / "page.html"
        assert call("report", str(subject), "-o", str(page)).code == 0
        read = Reader(page)
        assert "script" not in {tag for tag, _ in read.elements}
        assert "alert(1)" in read.text
        assert "\u202e" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"findings": [{"code": 1}]},
        {"notes": 3},
        {"findings": [{"code": "TC1", "severity": "error", "location": 5}]},
        {"lattice": {"dims": {"h": 3}}},
        {"plan": {}},
        {"seconds": {"a": "b"}},
    ],
)
def test_values_that_trtconv_does_not_write_are_an_error(
    call, built: engines.Built, tmp_path: Path, changes: Any
) -> None:
    built.change_report(**changes)
    ended = call("report", str(built.report), "-o", str(tmp_path / "page.html"))
    assert ended.code == 2
    assert "net.engine.json" in ended.err
    assert not (tmp_path / "page.html").exists()


GOOD = {"profile": 0, "size": "min", "shapes": {}, "passed": True, "outputs": [{"name": "y", "max_rel": 1e-6}]}


def proven(built: engines.Built, **verify: Any) -> None:
    """Has the build prove all, and verify find what is given."""
    compared = [{"output": "y", "size": "min", "shapes": {}, "error": 0.125}]
    pieces = {"proven": 3, "of": 3}
    proof = {"of": "network", "sizes": 1, "layers": 3, "unproven": [], "max_relative_error": 1e-7, "worst": None}
    built.change_report(proof={**proof, "agrees": True, "pieces": pieces, "compared": compared})
    tolerance = {"relative": 0.02, "cosine": 0.99}
    told = {"precision": "as-is", "tolerance": tolerance, "cases": [], "incomplete": None, "worst": None, **verify}
    write(built, "verify", engine=identity(built), why_not_run="no GPU", **told)


@pytest.mark.parametrize(
    ("verify", "count", "said"),
    [
        ({"ran": "network", "cases": [GOOD]}, 1, "Proven, network verified"),
        ({"ran": "rewritten model", "cases": [GOOD]}, 1, "Proven, rewrite verified"),
        ({"ran": "network", "incomplete": "max took too long"}, 1, "Proven, not verified"),
        ({"ran": "engine", "cases": [GOOD]}, 1, "Verified"),
        ({"ran": "engine", "cases": [{**GOOD, "outputs": [], "passed": False}]}, 0, "Not verified"),
    ],
)
def test_to_verify_takes_nothing_of_what_the_build_proved(
    call, built: engines.Built, tmp_path: Path, verify: dict[str, Any], count: int, said: str
) -> None:
    proven(built, **verify)
    page = tmp_path / "page.html"
    assert call("report", str(tmp_path), "-o", str(page)).code == 0
    text = Reader(page).text
    assert f"1 built, {count} proven" in text
    assert said in text
    call("report", str(built.engine), "-o", str(page))
    text = Reader(page).text
    assert said in text
    # What the build compared stands where verify compared nothing.
    compared = any(case["outputs"] for case in verify.get("cases", ()))
    assert ("By the build's own proof" in text) == (not compared)


def test_a_measurement_that_failed_is_told_beside_its_engine(call, built: engines.Built, tmp_path: Path) -> None:
    failed = error_document(EnvironmentMissing("no GPU: cuInit fails", "Add one."), "EnvironmentMissing")
    beside = built.report.with_name("net.engine.verify.json")
    beside.write_text(failed)
    page = tmp_path / "page.html"
    for subject in ([str(tmp_path)], [str(built.engine)], [str(built.report), "--with", str(beside)]):
        ended = call("report", *subject, "-o", str(page))
        assert (ended.code, "left out" in ended.out) == (0, False), ended.err
        assert "verify failed: no GPU: cuInit fails" in Reader(page).text
        assert "Built" in Reader(page).text


def test_a_measurement_that_cannot_be_read_does_not_take_its_engine_along(
    call, built: engines.Built, tmp_path: Path
) -> None:
    beside = built.report.with_name("net.engine.bench.json")
    beside.write_text('{"rows": 3}')
    page = tmp_path / "page.html"
    told = json.loads(call("report", str(tmp_path), "-o", str(page), "--format", "json").out)
    assert (told["engines"], list(told["left_out"])) == (1, [str(beside)])
    assert "net.onnx" in Reader(page).text
    ended = call("report", str(built.engine), "-o", str(page))
    assert (ended.code, "trtconv bench" in ended.err, "verify" in ended.err) == (2, True, False)


def test_folder_is_a_matrix(call, tmp_path: Path) -> None:
    for name in ("one", "two"):
        engines.build(tmp_path, name=name)
    (tmp_path / "else.json").write_text("{}")
    page = tmp_path / "page.html"
    ended = call("report", str(tmp_path), "-o", str(page), "--format", "json")
    assert (ended.code, json.loads(ended.out)["engines"]) == (0, 2)
    text = Reader(page).text
    for said in ("one.onnx", "two.onnx", "tensorrt-8.6", "1 other .json file"):
        assert said in text


def test_without_an_output_the_page_lies_beside_its_subject_and_replaces_pages_alone(
    call, built: engines.Built, tmp_path: Path
) -> None:
    for subject, page in ((built.engine, "net.html"), (built.report, "net.html"), (tmp_path, "index.html")):
        for _ in "ab":
            ended = call("report", str(subject))
            assert (ended.code, ended.out.startswith(f"wrote {tmp_path / page} ")) == (0, True), ended.err
        (tmp_path / page).write_text("<html>somebody's own</html>")
        ended = call("report", str(subject))
        assert (ended.code, "was not written by trtconv" in ended.err) == (2, True)
        assert call("report", str(subject), "-o", str(tmp_path / page)).code == 0


def test_what_is_no_engine_is_said(call, built: engines.Built, tmp_path: Path) -> None:
    page = str(tmp_path / "page.html")
    (tmp_path / "empty").mkdir()
    built.engine.write_bytes(b"another")
    for subject, said in (
        (tmp_path / "none.engine", "cannot be read"),
        (built.model, "is an ONNX model"),
        (tmp_path / "empty", "has no report of a build"),
        (built.engine, "is not the engine that net.engine.json tells of"),
    ):
        ended = call("report", str(subject), "-o", page)
        assert ended.code == 2
        assert said in ended.err
    assert call("report", str(built.report), "-o", str(built.report)).code == 2


def test_build_writes_its_page(call, pipeline: FakePipeline, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert call("build", str(tmp_path / "m.onnx"), "-q", "--page", str(page)).code == 0
    assert "Built" in Reader(page).text
    assert str(build_report().plan.target) in Reader(page).text
    ended = call("build", str(tmp_path / "m.onnx"), "-q", "--page", str(tmp_path / "m.onnx"))
    assert ended.code == 2


def test_one_spoiled_report_is_left_out_and_named(call, tmp_path: Path) -> None:
    report = build_report().to_json()
    for number in range(2):
        (tmp_path / f"good{number}.engine.json").write_text(json.dumps(report))
    spoiled = {**report, "findings": [{"code": "<script>", "severity": "<script>", "location": {}}]}
    (tmp_path / "bad.engine.json").write_text(json.dumps({**spoiled, "body_sha256": checksum(spoiled)}))
    os.mkfifo(tmp_path / "pipe.json")
    ended = call("report", str(tmp_path), "-o", str(tmp_path / "page.html"), "--format", "json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert (told["engines"], list(told["left_out"])) == (2, [str(tmp_path / "bad.engine.json")])
    page = (tmp_path / "page.html").read_text()
    assert "bad.engine.json" in page
    assert "<script>" not in page
    (tmp_path / "good1.engine.json").unlink()
    assert "about 1 engine\n" in call("report", str(tmp_path), "-o", str(tmp_path / "page.html")).out


@pytest.mark.parametrize("subject", ["net.engine", "net.engine.json", "."])
@pytest.mark.parametrize("page", ["net.onnx", "net.engine", "net.engine.json", "net.engine.bench.json"])
def test_a_page_replaces_nothing_that_it_is_about(
    call, built: engines.Built, monkeypatch: pytest.MonkeyPatch, subject: str, page: str
) -> None:
    monkeypatch.chdir(built.engine.parent)
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    ended = call("report", subject, "-o", page)
    assert (ended.code, "would replace it" in ended.err) == (2, True), ended.err
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def layers(count: int, name: str = "conv") -> dict[str, object]:
    """Returns a chain of convolutions, each with an activation that is part of it."""
    tensors = [{"name": f"t{n}", "dtype": "float32", "shape": ["n", 64, "h/2", "w/2"]} for n in range(2 * count + 1)]
    made: list[dict[str, object]] = []
    for n in range(count):
        whole = {"node": f"/backbone/stages.{n}/{name}/Conv", "products": [4e9], "moved": [3e6]}
        made.append({"name": "c", "kind": "CONVOLUTION", "inputs": [2 * n], "outputs": [2 * n + 1], **whole})
        part = {"node": f"/backbone/stages.{n}/act/Relu", "products": [0.0], "moved": [0.0], "joined": 2 * n + 1}
        made.append({"name": "r", "kind": "ACTIVATION", "inputs": [2 * n + 1], "outputs": [2 * n + 2], **part})
    return {"tensors": tensors, "layers": made, "aside": 7, "left": 0}


def test_the_parsed_network_is_shown_with_an_estimate(call, built: engines.Built, tmp_path: Path) -> None:
    built.change_report(layers=layers(3))
    page = tmp_path / "page.html"
    assert call("report", str(built.engine), "-o", str(page), "--gpu", "l4").code == 0
    read = Reader(page)
    # 2 * 4e9 operations at 60e12 a second are 133.33 us; 3 MB at 300 GB/s are 10.
    assert read.text.count("133.33") == 3
    assert "400.0" in read.text, "all three at opt"
    assert "estimate" in read.text
    assert "n x 64 x h/2 x w/2" in read.text
    assert "7 layers that are constants" in read.text
    rows = {attributes["id"] for tag, attributes in read.elements if tag == "tr" and attributes.get("id")}
    links = {(attributes["href"] or "")[1:] for tag, attributes in read.elements if tag == "a"}
    assert rows == {"L0", "L2", "L4"}, "a layer that is part of another has no row"
    assert rows <= links, "every box leads to its row"
    call("report", str(built.engine), "-o", str(page), "--gpu", "t4")
    assert "987.65" in Reader(page).text, "8.1e12 a second"


def test_500_layers_stay_below_300_kB_and_can_be_read_without_scripts(call, built: engines.Built, tmp_path) -> None:
    built.change_report(layers=layers(500, "a_module_with_a_long_name.of_a_real_network"))
    page = tmp_path / "page.html"
    assert call("report", str(built.engine), "-o", str(page)).code == 0
    assert len(page.read_bytes()) < 300_000
    read = Reader(page)
    boxes = [attributes for tag, attributes in read.elements if tag == "rect" and attributes.get("class") == "k0"]
    assert len(boxes) == 500
    assert "250 that take less" in read.text
    assert not {"script", "style="} & {tag for tag, _ in read.elements}


def test_names_of_layers_are_text(call, built: engines.Built, tmp_path: Path) -> None:
    built.change_report(layers=layers(2, MARKUP))
    page = tmp_path / "page.html"
    call("report", str(built.engine), "-o", str(page))
    assert "<script" not in page.read_text(encoding="utf-8")
    assert MARKUP in Reader(page).text


def test_what_is_otherwise_than_in_the_build_before(call, built: engines.Built, tmp_path: Path) -> None:
    size = int(identity(built)["bytes"])
    previous = {
        "built_by": "0.1.0",
        "engine_sha256": "0" * 64,
        "engine_bytes": size - 12,
        "dims": [{"n": "1:1:2", "h": "4:8:16", "w": "4:8:12"}],
        "layers": 5,
        "edits": 2,
        "findings": ["TC999"],
        "error": None,
    }
    built.change_report(layers=layers(2), previous=previous, rebuilt="the model changed")
    page = tmp_path / "page.html"
    for subject in (built.engine, built.engine.parent):
        assert call("report", str(subject), "-o", str(page)).code == 0
        text = Reader(page).text
        for said in ("+12 bytes", "4 layers, and there were 5", "h 4:8:16", "TC999 went", "since the model changed"):
            assert said in text
        assert "Since the build" in text


def test_a_folder_shows_builds_that_failed(call, built: engines.Built, tmp_path: Path) -> None:
    failed = {"model": "models/other.onnx", "target": "rtx", "exit_code": 1}
    error = {"type": "InputError", "message": f"no such dim {MARKUP}", "hint": "Write --dim n=1."}
    report = json.loads(built.report.read_text())
    finding = {
        "code": "TC403",
        "name": "refused",
        "message": "no kernel for it",
        "severity": "error",
        "fix": "Leave it",
    }
    broken = {**report, "findings": [finding], "engine": None, "exit_code": 1}
    runs = {"schema": 1, "config": None, "runs": [{**failed, "error": error}, broken, report], "summary": {}}
    (built.engine.parent / "build.json").write_text(json.dumps(runs))
    page = tmp_path / "page.html"
    assert call("report", str(built.engine.parent), "-o", str(page)).code == 0
    text = Reader(page).text
    for said in ("2 failed", "other.onnx", f"no such dim {MARKUP}", "Write --dim n=1.", "TC403", "no kernel for it"):
        assert said in text
    # The same builds, told twice, are no more.
    (built.engine.parent / "again.json").write_text(json.dumps(runs))
    assert call("report", str(built.engine.parent), "-o", str(page)).code == 0
    assert "2 failed" in Reader(page).text
    (built.engine.parent / "build.json").write_text(json.dumps({**runs, "runs": [{**failed, "error": 3}]}))
    assert call("report", str(built.engine.parent), "-o", str(page)).code == 0
    assert "build.json" in Reader(page).text


def test_stages_that_take_nothing_are_told_together(call, built: engines.Built, tmp_path: Path) -> None:
    built.change_report(seconds={"build": 9.0, "load": 0.01, "plan": 0.02})
    page = tmp_path / "page.html"
    call("report", str(built.engine), "-o", str(page))
    text = Reader(page).text
    assert "all else" in text
    assert "0.03 s" in text
