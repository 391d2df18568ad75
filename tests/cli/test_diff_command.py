"""`trtconv diff`: what is otherwise is told, and what is worse fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import engines

EDIT = {"pass": "make-deconv-explicit", "node": "up", "what": "written out"}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[engines.Built, engines.Built]:
    return engines.build(tmp_path, name="a"), engines.build(tmp_path, name="b")


def measured(built: engines.Built, command: str, **document: Any) -> None:
    built.report.with_name(f"{built.engine.name}.{command}.json").write_text(json.dumps(document))


def bench(built: engines.Built, median_us: float) -> None:
    row = {"engine": 0, "profile": 0, "size": "opt", "shapes": {"x": [1, 3, 8, 8]}, "graph": True, "copies": False}
    engine = json.loads(built.report.read_text())["engine"]
    measured(built, "bench", engines=[engine], rows=[{**row, "median_us": median_us}])


def verify(built: engines.Built, error: float | str) -> None:
    engine = json.loads(built.report.read_text())["engine"]
    cases = [{"outputs": [{"name": "y", "max_rel": error}]}]
    measured(built, "verify", engine=engine, ran="engine", tolerance={"relative": 1e-3, "cosine": 0.99}, cases=cases)


def diff(call: Any, pair: tuple[engines.Built, engines.Built], *flags: str) -> tuple[int, dict[str, Any]]:
    ended = call("diff", str(pair[0].engine), str(pair[1].report), "--format", "json", *flags)
    return ended.code, json.loads(ended.out)


def test_the_same_is_no_regression(call, pair) -> None:
    code, document = diff(call, pair)
    assert (code, document["exit_code"], document["regressions"]) == (0, 0, [])
    assert document["profiles"]["same"]
    assert document["options"] == []
    assert call("diff", str(pair[0].engine), str(pair[1].engine)).out.splitlines()[-1] == "no regression beyond 5.0%"


def test_what_is_otherwise_is_told(call, pair) -> None:
    pair[1].change_report(edits=[EDIT], plan__precision="fp16")
    code, document = diff(call, pair)
    assert code == 0
    assert document["options"] == [{"name": "precision", "a": "as-is", "b": "fp16"}]
    assert document["rewrites"] == {"added": [EDIT], "removed": []}
    assert "+ make-deconv-explicit up written out" in call("diff", str(pair[0].report), str(pair[1].report)).out


def test_latency_beyond_the_tolerance_fails(call, pair) -> None:
    bench(pair[0], 100.0)
    bench(pair[1], 110.0)
    code, document = diff(call, pair)
    assert code == 1
    assert document["regressions"] == [{"what": "latency", "message": "1x3x8x8 from 100.0 to 110.0 us"}]
    assert diff(call, pair, "--tolerance", "0.2")[0] == 0
    assert diff(call, pair[::-1])[0] == 0


def test_errors_that_grow_beyond_rounding_fail(call, pair) -> None:
    for before, after, code in ((1e-7, 5e-7, 0), (1e-3, 2e-3, 1), (1e-3, "inf", 1), (1e-3, "nan", 1), (2e-3, 1e-3, 0)):
        verify(pair[0], before)
        verify(pair[1], after)
        assert diff(call, pair)[0] == code, (before, after)


def test_sizes_that_are_taken_no_more_fail(call, pair, tmp_path: Path) -> None:
    narrow = engines.build(tmp_path, dims=({**engines.DIMS[0], "h": engines.Range(4, 8, 8)},), name="narrow")
    assert "no profile takes all sizes" in call("diff", str(pair[0].engine), str(narrow.engine)).out
    assert diff(call, (pair[0], narrow))[0] == 1
    assert diff(call, (narrow, pair[0]))[0] == 0


def test_larger_engine_new_error_and_lost_proof_fail(call, pair) -> None:
    size = json.loads(pair[0].report.read_text())["engine"]["bytes"]
    finding = {"code": "TC101", "name": "a", "message": "b", "severity": "error", "location": {"node": "up"}}
    pair[0].change_report(proof={"agrees": True})
    pair[1].change_report(engine__bytes=2 * size, findings=[finding], proof={"agrees": False})
    code, document = diff(call, pair)
    assert code == 1
    assert [each["what"] for each in document["regressions"]] == ["findings", "proof", "sizes"]


def test_what_is_no_report_is_an_error(call, pair) -> None:
    pair[1].change_report(findings=[{"severity": "error"}])
    ended = call("diff", str(pair[0].report), str(pair[1].report))
    assert ended.code == 2
    assert "b.engine.json" in ended.err
    assert call("diff", str(pair[0].report), "none.json").code == 2


def test_changed_tactics_are_told(call, pair) -> None:
    assert diff(call, pair)[1]["tactics"] is None
    kept = [{"layer": name, "tactic": "0x1", "implementation": "0x2"} for name in ("same", "up", "moved")]
    layout = [{"dtype": "float16", "strides": [8, 1]}]
    moved = {**kept[2], "tensors": layout}
    pair[0].change_report(engine__tactics=kept)
    pair[1].change_report(engine__tactics=[kept[0], {**kept[1], "tactic": "0x3e8"}, moved])
    document = diff(call, pair)[1]
    assert document["tactics"] == [
        {"layer": "up", "profile": 0, "a": "0x1", "b": "0x3e8"},
        {"layer": "moved", "profile": 0, "a": "0x1 of 0x2", "b": "0x1 of 0x2 float16 [8, 1]/1"},
    ]
    text = call("diff", str(pair[0].report), str(pair[1].report)).out
    assert "up (profile 0)     0x1" in text
    many = [{**kept[0], "layer": str(number)} for number in range(100)]
    pair[1].change_report(engine__tactics=many)
    assert "... and 83 more" not in call("diff", str(pair[0].report), str(pair[0].report)).out
    assert "... and 83 layers more" in call("diff", str(pair[0].report), str(pair[1].report)).out
