"""What bench measures, on a GPU whose inferences take as long as they are told to."""

from __future__ import annotations

import os
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from support.engines import DIMS, NET, Built, build, call_here, give_gpu
from support.gpu import FakeDriver
from trtconv.cli.formats import plot
from trtconv.cli.formats.engine import bench_text
from trtconv.core.dims import Range
from trtconv.core.documents.bench import BenchReport, GpuRuntime
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.core.requests.bench import BenchRequest
from trtconv.engine import bench


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return give_gpu(monkeypatch)


def run(built: Built, **options: Any) -> BenchReport:
    return bench(BenchRequest(built.engine, **{"warmup": 0, "duration": 0.01, **options}))


def test_rows_of_every_size_and_way(gpu: FakeDriver, tmp_path: Path) -> None:
    report = run(build(tmp_path, us=200.0))
    assert report.exit_code == 0
    assert [(row.size, row.graph, row.copies) for row in report.rows] == [
        (size, graph, copies) for size in ("min", "opt", "max") for graph in (True, False) for copies in (False, True)
    ]
    for row in report.rows:
        assert (row.median_us, row.p99_us, row.min_us, row.throughput_per_s) == (200, 200, 200, 5000)
        assert row.runs == 50
    assert report.runtime == GpuRuntime("tensorrt", "8.6.0", "Fake GPU", "12.4")
    assert report.engines[0].layers == 3
    assert report.engines[0].activation_memory_bytes == 1000
    assert report.engines[0].profile_memory_bytes == ()


def test_two_engines_and_their_ratio(gpu: FakeDriver, tmp_path: Path) -> None:
    fast, slow = build(tmp_path, us=100.0), build(tmp_path, us=400.0, name="slow")
    report = run(fast, versus=slow.engine)
    assert {ratio.ratio for ratio in report.ratios} == {0.25}
    assert len(report.ratios) == 12
    assert len(report.rows) == 24
    text = bench_text(report)
    assert "0.250" in text
    assert "in turns" in text


def test_two_engines_with_other_inputs(gpu: FakeDriver, tmp_path: Path) -> None:
    other = build(tmp_path, NET.replace(" x)", " w0)").replace("(x", "(w0"), name="other")
    with pytest.raises(InputError, match=r"other\.engine takes w0, and .*net\.engine takes x"):
        run(build(tmp_path), versus=other.engine)


def test_a_runtime_cache_overwrites_nothing(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    before = built.engine.read_bytes(), built.report.read_bytes()
    for path in (built.engine, built.report):
        with pytest.raises(InputError, match="would replace it"):
            run(built, cache=path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a device or a pipe"):
        run(built, cache=tmp_path / "pipe")
    assert (built.engine.read_bytes(), built.report.read_bytes()) == before


def test_an_engine_without_graphs(gpu: FakeDriver, tmp_path: Path) -> None:
    gpu.captures = False
    report = run(build(tmp_path))
    assert {row.graph for row in report.rows if row.median_us is None} == {True}
    assert "plain launches" in bench_text(report)


def test_sizes_of_the_user(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    report = run(built, dims={"n": Range(1, 1, 1), "h": Range(8, 8, 8), "w": Range(4, 4, 4)})
    assert [row.shapes for row in report.rows] == [{"x": (1, 3, 8, 4)}] * 4
    report = run(built, shapes={"x": (2, 3, 12, 4)})
    assert {row.size for row in report.rows} == {"given"}
    with pytest.raises(InputError, match="no profile of the engine contains x 9x3x4x4"):
        run(built, shapes={"x": (9, 3, 4, 4)})
    with pytest.raises(InputError, match="the engine has x"):
        run(built, shapes={"q": (1,)})
    with pytest.raises(InputError, match="no dimension 'q'"):
        run(built, dims={"q": Range(1, 1, 1)})


def test_an_engine_without_a_report_names_its_dimensions_by_place(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.report.unlink()
    sizes = {f"x:{axis}": Range(n, n, n) for axis, n in ((0, 1), (2, 8), (3, 8))}
    assert len(run(built, dims=sizes, trust=True).rows) == 4


def test_sizes_that_do_not_fit_into_memory_are_told(gpu: FakeDriver, tmp_path: Path) -> None:
    dims = ({**DIMS[0], "h": Range(4, 8, 256)},)
    built = build(tmp_path, dims=dims)
    gpu.total = 20_000
    report = run(built)
    assert report.exit_code == 4
    assert "max of profile 0" in report.incomplete
    assert {row.size for row in report.rows} == {"min", "opt"}
    assert gpu.used == 0


def test_an_engine_that_breaks_down(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    gpu.failing["cuEventSynchronize"] = 700
    with pytest.raises(EngineFailed):
        run(built)


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call_here(monkeypatch)
    with pytest.raises(EnvironmentMissing) as caught:
        run(build(tmp_path))
    assert caught.value.exit_code == 4
    assert caught.value.hint


def test_the_drawing(gpu: FakeDriver, tmp_path: Path) -> None:
    second = {"n": Range(1, 1, 1), "h": Range(12, 16, 20), "w": Range(12, 16, 20)}
    document = run(build(tmp_path, dims=(*DIMS, second)))
    assert plot.curves(document) == {
        "profile 0": [(48, 100.0), (192, 100.0), (864, 100.0)],
        "profile 1": [(432, 100.0), (768, 100.0), (1200, 100.0)],
    }
    root = xml.etree.ElementTree.fromstring(plot.draw(document, Path("x.svg")))
    tags = [child.tag.rpartition("}")[2] for child in root]
    assert (tags.count("polyline"), tags.count("circle")) == (2, 6)


def test_a_drawing_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="neither"):
        plot.check_format(Path("x.pdf"))
