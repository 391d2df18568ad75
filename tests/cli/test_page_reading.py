"""What keeps the page readable: whole drawings, contrast in light and dark, names that break, two sheets of paper."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support import engines
from trtconv.cli.formats.page.drawings import graph_drawing
from trtconv.cli.formats.wording import dims_text
from trtconv.explainer.changes import DrawnNode

STYLE = Path(__file__).resolve().parents[2] / "trtconv/cli/formats/page/templates/style.css"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ON = {
    "ink": ("ground", "panel", "soft", "new", "gone", "warn-soft", "tap1", "tap2", "tap3", "tap4"),
    "dim": ("ground", "panel", "soft", "warn-soft"),
    "link": ("ground", "panel"),
    **{kind: (f"{kind}-soft", "ground", "panel") for kind in ("ok", "bad", "warn")},
}
"""Colour of a text to what it stands on."""


@pytest.fixture
def built(tmp_path: Path) -> engines.Built:
    return engines.build(tmp_path)


def branches(count: int) -> dict[str, object]:
    """Returns layers that each take what the two before make."""
    tensors = [{"name": f"t{n}", "dtype": "float32", "shape": ["n", 64, "h/2 + 1"]} for n in range(count + 1)]
    made = [
        {
            "name": "c",
            "kind": "CONVOLUTION",
            "node": f"/backbone/stages.{n}/Conv",
            "inputs": [n, max(0, n - 1)],
            "outputs": [n + 1],
            "products": [4e9],
            "moved": [3e6],
        }
        for n in range(count)
    ]
    return {"tensors": tensors, "layers": made, "aside": 0, "left": 0}


def page_of(call, built: engines.Built, tmp_path: Path) -> tuple[Path, str]:
    page = tmp_path / "page.html"
    assert call("report", str(built.engine), "-o", str(page)).code == 0
    return page, page.read_text(encoding="utf-8")


def test_every_edge_of_a_large_network_is_drawn(call, built: engines.Built, tmp_path: Path) -> None:
    built.change_report(layers=branches(500))
    _, text = page_of(call, built, tmp_path)
    drawn = max(re.findall(r'<path d="([^"]*)"', text), key=len)
    assert re.fullmatch(r"(M[\d ]+(L[\d ]+|C[\d ]+))+", drawn), "nothing is cut from the middle"
    assert drawn.count("M") == 499 + 498


def test_names_break_behind_their_slashes_and_sums_stand_in_brackets(
    call, built: engines.Built, tmp_path: Path
) -> None:
    built.change_report(layers=branches(2))
    _, text = page_of(call, built, tmp_path)
    assert "/<wbr>backbone/<wbr>stages.1/<wbr>Conv" in text
    assert "n x 64 x (h/2 + 1)" in text
    assert dims_text([1, -1, "h*w/2"]) == "1 x ? x h*w/2"


def test_paper_has_the_longest_layers_alone(call, built: engines.Built, tmp_path: Path) -> None:
    engine = json.loads(built.report.read_text())["engine"]
    built.change_report(layers=branches(40))
    timed = [{"name": f"layer{n}", "type": "Conv", "precision": "half", "time_us": n} for n in range(40)]
    document = {"kind": "engine", "file": engine, "layers": timed, "details": "full", "time": None}
    built.report.with_name("net.engine.inspect.json").write_text(json.dumps(document))
    _, text = page_of(call, built, tmp_path)
    printed = re.findall(r'<tr><td class="long">(layer\d+)<', text)
    assert printed == [f"layer{n}" for n in range(32, 40)]
    assert len(re.findall(r'<tr id="L\d+"><td class="long">', text)) == 8


def test_lines_go_around_the_boxes_between() -> None:
    nodes = [
        DrawnNode("Conv", "first", ("x",), ("a",), (), ()),
        DrawnNode("Relu", "second", ("a",), ("b",), (), ()),
        DrawnNode("Add", "third", ("b", "x"), ("y",), (), ()),
    ]
    text = str(graph_drawing(nodes, nodes, "new"))
    shapes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" class="node"', text)
    boxes = [tuple(map(float, each)) for each in shapes]
    assert len(boxes) == 3
    lines = [[tuple(map(float, p.split(","))) for p in each.split()] for each in re.findall(r'points="([^"]+)"', text)]
    assert len(lines) == 5
    for points in lines:
        for (x, y), (to_x, to_y) in itertools.pairwise(points):
            for part in (step / 20 for step in range(1, 20)):
                at, down = x + part * (to_x - x), y + part * (to_y - y)
                assert not any(a < at < a + wide and b < down < b + high for a, b, wide, high in boxes)
    whole = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    assert whole is not None
    assert max(x for points in lines for x, _ in points) < float(whole[1])


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("number", "where"), [(0, "light"), (1, "dark"), (2, "print")])
def test_texts_stand_out_from_what_they_stand_on(number: int, where: str) -> None:
    block = re.findall(r":root \{([^}]*)\}", STYLE.read_text())[number]
    colours = dict(re.findall(r"--([\w-]+): (#\w+)", block))
    faint = {}
    for text, grounds in ON.items():
        for ground in grounds:
            low, high = sorted((luminance(colours[text]), luminance(colours[ground])))
            # What the Web Content Accessibility Guidelines ask of texts of this size.
            if (high + 0.05) / (low + 0.05) < 4.5:
                faint[f"{text} on {ground}"] = (high + 0.05) / (low + 0.05)
    assert not faint, where


def test_what_verify_wrote_is_no_other_file(call, built: engines.Built, tmp_path: Path) -> None:
    built.report.with_name("net.engine.bench.json").write_text(json.dumps({"engines": [], "rows": []}))
    page = tmp_path / "folder.html"
    assert call("report", str(built.engine.parent), "-o", str(page)).code == 0
    assert "other .json" not in page.read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to print with")
def test_an_engine_of_500_layers_prints_on_two_sheets(call, built: engines.Built, tmp_path: Path) -> None:
    built.change_report(layers=branches(500))
    page, _ = page_of(call, built, tmp_path)
    paper = tmp_path / "page.pdf"
    words = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    subprocess.run([*words, f"--print-to-pdf={paper}", page.as_uri()], check=True, capture_output=True, timeout=120)
    assert len(re.findall(rb"/Type /Page\b", paper.read_bytes())) == 2
