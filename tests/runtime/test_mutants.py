"""A layer of a parsed network changed: the proof sees it. Samples of `bench/mutants.py`, and what people found."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import trtconv
from support.paths import ROOT

WEIGHTS = (
    "H1",
    "H2",
    "H4",
    "H5",
    "H6",
    "H6d",
    "H14",
    "H16",
    "H17",
    "S unet",
    "S2 unet",
    "S2 yolo",
)
"""Changes of weights, between passes and parser or in it."""
OTHERS = ("H5c", "H9b", "H10", "H11")
"""A product turned round, a mean over more axes, another type, an assertion that never holds."""


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    folder = str(ROOT / "bench")
    sys.path.insert(0, folder)
    yield importlib.import_module("mutants")
    sys.path.remove(folder)


@pytest.mark.parametrize("name", [*WEIGHTS, *OTHERS])
def test_a_change_on_purpose_is_seen(name: str, bench: Any, tmp_path: Path) -> None:
    (hole,) = [each for each in bench.holes() if each.name == name]
    path = tmp_path / "m.onnx"
    onnx.save_model(hole.network.make(), path)
    told, why = bench.judge_hole(hole, path, "quick")
    assert told == "caught", why


@pytest.mark.parametrize("network", ["pools", "products"])
def test_a_sample_of_mutants_is_seen(network: str, bench: Any) -> None:
    *rows, unchanged = bench.run([network], 3, 7, "quick", ())
    assert unchanged["told"] == "passed", unchanged["why"]
    assert len(rows) == 3
    assert [row for row in rows if bench.column(row) in bench.LEFT] == []


@pytest.mark.parametrize(
    ("network", "kind", "attribute"),
    [
        pytest.param("pools", "POOLING", "post_padding", id="pads that show at odd sizes"),
        pytest.param("loop", "LOOP_OUTPUT", "axis", id="the second result of a loop"),
        pytest.param("boxes", "NMS", "bounding_box_format", id="corners of boxes for centres"),
        pytest.param("layer_norm", "MATRIX_MULTIPLY", "inputs", id="a product that does not compute"),
    ],
)
def test_mutants_that_survived_are_seen(network: str, kind: str, attribute: str, bench: Any, tmp_path: Path) -> None:
    (case,) = [each for each in bench.all_networks() if each.name == network]
    made = bench.Bench(case, tmp_path, "quick")
    numbers = [number for number, key in enumerate(made.count(5)) if key == (kind, attribute)]
    columns = {bench.column(row) for row in (made.row(number, 5) for number in numbers[:4]) if row is not None}
    assert "caught" in columns
    assert columns.isdisjoint(bench.LEFT)


@pytest.mark.parametrize("name", ["iov_0", "nan_0", "norm_1", "norm_2", "soft_0"])
def test_what_is_read_right_raises_no_alarm(name: str) -> None:
    report = trtconv.check(trtconv.CheckRequest(ROOT / "tests" / "data" / "proof" / "false-alarms" / f"{name}.onnx"))
    assert report.exit_code == 0, report.findings
    assert not [each for each in report.findings if each.code == "TC402"]


LOGARITHMS = {
    "log-softmax": ("LogSoftmax (x)", True),
    "log-softmax 2-d": ("LogSoftmax <axis = 0> (x)", True),
    "log-sum-exp": ("ReduceLogSumExp <axes = [1], keepdims = 1> (x)", False),
    "softmax": ("Softmax (x)", False),
}


@pytest.mark.parametrize(("node", "misread"), LOGARITHMS.values(), ids=LOGARITHMS)
def test_logarithms_of_nothing_are_found(node: str, misread: bool, tmp_path: Path) -> None:
    """RTX's parser takes LogSoftmax for the logarithm of a softmax, which may be 0."""
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[n,6] x) => (float[n,k] y) {{ y = {node} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    dims = {"n": trtconv.Range(2, 4, 8)}
    for rewrite, wrong in ((False, misread), (True, False)):
        report = trtconv.check(trtconv.CheckRequest(tmp_path / "m.onnx", dims=dims, rewrite=rewrite))
        assert [each.code for each in report.findings if each.code == "TC402"] == ["TC402"] * wrong
