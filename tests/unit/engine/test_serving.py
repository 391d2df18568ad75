"""Engines under load, on a GPU that is played: contexts, profiles, recordings, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.engines import DIMS, Built, build, call_here, give_gpu
from support.gpu import Context, FakeDriver
from trtconv.cli.formats.engine import bench_text
from trtconv.core.decode import decoded
from trtconv.core.dims import Range
from trtconv.core.documents.bench import BenchReport
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.core.requests.bench import BenchRequest
from trtconv.engine import bench
from trtconv.runtimes.tensorrt import engine as adapter

SECOND = {"n": Range(1, 1, 1), "h": Range(12, 16, 20), "w": Range(12, 16, 20)}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr(adapter, "energy_millijoules", lambda bus_id: None)
    return give_gpu(monkeypatch)


def run(built: Built, **options: Any) -> BenchReport:
    lasting = {} if "arrivals" in options else {"duration": 0.02}
    return bench(BenchRequest(built.engine, **{"warmup": 0, **lasting, **options}))


def table(folder: Path, text: str) -> Path:
    path = folder / "came.csv"
    path.write_text(text)
    return path


def test_contexts_at_opt_of_every_profile(gpu: FakeDriver, tmp_path: Path) -> None:
    report = run(build(tmp_path, dims=(*DIMS, SECOND)), contexts=3)
    assert (report.exit_code, report.rows, report.incomplete) == (0, (), "")
    assert [load.sizes[0].shapes for load in report.loads] == [{"x": (1, 3, 8, 8)}, {"x": (1, 3, 16, 16)}]
    for load in report.loads:
        assert (load.contexts, load.graph, load.copies, load.engine, load.arrivals) == (3, True, True, 0, None)
        assert load.requests == load.sizes[0].requests > 0
        assert load.seconds >= 0.02
        assert load.throughput_per_s == pytest.approx(load.requests / load.seconds, rel=0.01)
        assert 0 < load.latency.p50_us <= load.latency.p99_us <= load.latency.max_us
        assert load.memory_bytes > 0
        assert load.power_w is None
    assert gpu.used == 0
    assert decoded(BenchReport, json.loads(json.dumps(report.to_json()))) == report
    assert "requests a second" in bench_text(report)


def test_sizes_of_the_user_without_copies_and_graphs(gpu: FakeDriver, tmp_path: Path) -> None:
    gpu.captures = False
    built = build(tmp_path)
    for sizes in ({"shapes": {"x": (2, 3, 12, 4)}}, {"dims": {"n": Range(2, 2, 2), "h": Range(12, 12, 12), "w": 4}}):
        (load,) = run(built, contexts=2, copies=False, **sizes).loads
        assert (load.sizes[0].shapes, load.graph, load.copies) == ({"x": (2, 3, 12, 4)}, False, False)


def test_each_context_has_a_profile_of_its_own_where_there_are_several(gpu: FakeDriver, tmp_path: Path) -> None:
    gpu.shares_profiles = False
    several = build(tmp_path, dims=(*DIMS, SECOND, *DIMS))
    (load, _) = run(several, contexts=1).loads
    assert load.sizes[0].profile == 0
    (load,) = run(several, contexts=2, dims={"n": 1, "h": 8, "w": 8}).loads
    assert (load.contexts, load.requests > 0) == (2, True)
    with pytest.raises(InputError, match="has 2 of the 3 profiles that 3 contexts take") as caught:
        run(several, contexts=3, dims={"n": 1, "h": 8, "w": 8})
    assert caught.value.hint.count("--profile 'n=1:1:2,h=4:8:12,w=4:8:12'") == 3
    assert "--share-profiles" in caught.value.hint
    assert gpu.used == 0
    gpu.shares_profiles = True
    assert run(several, contexts=3, dims={"n": 1, "h": 8, "w": 8}).exit_code == 0


def test_a_fault_at_a_further_context_is_no_lack_of_profiles(
    gpu: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.shares_profiles = False
    built = build(tmp_path)
    take = Context.set_input_shape

    def break_down(context: Context, name: str, shape: tuple[int, ...]) -> bool:
        gpu.failing = {} if take(context, name, shape) else {"cuStreamSynchronize": 700}
        return not gpu.failing

    monkeypatch.setattr(Context, "set_input_shape", break_down)
    with pytest.raises(EngineFailed, match="cuStreamSynchronize returned 700"):
        run(built, contexts=2)


def test_engines_beside(gpu: FakeDriver, tmp_path: Path) -> None:
    main, other = build(tmp_path), build(tmp_path, name="other", dims=(SECOND,))
    report = run(main, beside=(other.engine, other.engine), contexts=2)
    assert [load.engine for load in report.loads] == [0, 1, 2]
    assert [load.sizes[0].shapes for load in report.loads][1:] == [{"x": (1, 3, 16, 16)}] * 2
    assert all(load.requests > 0 for load in report.loads)
    assert "C: " in bench_text(report)
    assert run(main, beside=(other.engine,)).loads[0].contexts == 1


def test_requests_of_a_recording(gpu: FakeDriver, tmp_path: Path) -> None:
    came = table(tmp_path, "time,h,x:3,n\n0.004,4,4,1\n0,12,12,2\n0.002,20,14,1\n0.006,4,4,1\n")
    (load,) = run(build(tmp_path, dims=(*DIMS, SECOND)), arrivals=came, contexts=2).loads
    assert (load.requests, load.graph, load.contexts, load.arrivals) == (4, False, 2, str(came))
    assert [(size.profile, size.shapes["x"], size.requests) for size in load.sizes] == [
        (0, (1, 3, 4, 4), 2),
        (0, (2, 3, 12, 12), 1),
        (1, (1, 3, 20, 14), 1),
    ]
    assert all(size.median_us for size in load.sizes)
    assert load.offered_per_s == pytest.approx(4 / 0.006, rel=0.01)
    assert load.seconds >= 0.006
    assert gpu.used == 0


def test_growing_and_shrinking_requests_are_right(gpu: FakeDriver, tmp_path: Path) -> None:
    """The largest by elements is not the largest in every dimension: memory grows for what it does not hold."""
    came = table(tmp_path, "time,h,w,n\n0,12,4,1\n0,4,12,1\n0,10,10,1\n0,4,4,2\n0,12,12,1\n")
    (load,) = run(build(tmp_path), arrivals=came).loads
    assert (load.requests, load.contexts) == (5, 1)


def test_dimensions_that_are_no_columns(gpu: FakeDriver, tmp_path: Path) -> None:
    came = table(tmp_path, "time,h\n0,4\n")
    built = build(tmp_path)
    (load,) = run(built, arrivals=came, dims={"n": 1, "w": 12}).loads
    assert load.sizes[0].shapes == {"x": (1, 3, 4, 12)}
    assert load.offered_per_s is None
    fixed = build(tmp_path, name="fixed", dims=({"n": Range(1, 1, 1), "h": Range(4, 8, 12), "w": Range(8, 8, 8)},))
    (load,) = run(fixed, arrivals=came).loads
    assert load.sizes[0].shapes == {"x": (1, 3, 4, 8)}


@pytest.mark.parametrize(
    ("text", "dims", "what"),
    [
        ("time,h,w,n\n0,4,4,1\n0,4,99,1\n", {}, r"came\.csv:3: no profile of the engine takes w 99; they take 4 to 12"),
        ("time,h,w,n\n0,20,20,2\n", {}, r"came\.csv:2: no profile of the engine takes .*n 2.* together"),
        ("time,h,w\n0,4,4\n", {}, r"came\.csv:2: .*n"),
        ("time,h,w,n,q\n0,4,4,1,1\n", {}, r"came\.csv:2: .*'q'"),
        ("time,h,w,n\n0,4,4,1\n", {"n": 1}, r"--dim n, and .*came\.csv has a column 'n'"),
        ("time,h,w\n0,4,4\n", {"n": Range(1, 1, 2)}, "requests have one size"),
        ("time,h,w,n\n700,4,4,1\n", {}, r"came\.csv:2: a request comes after 700 s"),
        ("time,h,w,n\n", {}, "has no requests"),
    ],
)
def test_bad_recordings(gpu: FakeDriver, tmp_path: Path, text: str, dims: Any, what: str) -> None:
    built = build(tmp_path, dims=(*DIMS, SECOND) if "together" in what else DIMS)
    with pytest.raises(InputError, match=what) as caught:
        run(built, arrivals=table(tmp_path, text), dims=dims)
    assert caught.value.exit_code == 2


def test_options_that_do_not_go_together(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    came = table(tmp_path, "time,h,w,n\n0,4,4,1\n")
    for options, what in (
        ({"contexts": 0}, "--contexts 0 is not 1 to 1000"),
        ({"contexts": 2, "versus": built.engine}, "--vs"),
        ({"copies": False}, "--no-copies"),
        ({"nvtx": True}, "--nvtx"),
        ({"arrivals": came, "shapes": {"x": (1, 3, 4, 4)}}, "--shapes"),
        ({"contexts": 1, "shapes": {"x": (9, 3, 4, 4)}}, "no profile"),
    ):
        with pytest.raises(InputError, match=what):
            run(built, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="--seconds"):
        bench(BenchRequest(built.engine, arrivals=came, duration=2))


def test_memory_that_does_not_suffice(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    gpu.total = 30_000
    with pytest.raises(EnvironmentMissing, match=r"context \d+ of 40 of .*net\.engine: the GPU's memory"):
        run(built, contexts=40)
    assert gpu.used == 0


def test_power_where_the_driver_tells(gpu: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([1_000_000, 1_030_000])
    buses = []

    def energy(bus_id: str) -> int:
        buses.append(bus_id)
        return next(told)

    monkeypatch.setattr(adapter, "energy_millijoules", energy)
    report = run(build(tmp_path), contexts=1, duration=0.1)
    assert set(buses) == {"0000:65:00.0"}
    # 30 J in a tenth of a second.
    assert 100 < (report.loads[0].power_w or 0) <= 300
    assert "W of the GPU" in bench_text(report)


def test_names_for_profilers(gpu: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    ended: list[int] = []

    class Ranges:
        def begin(self, name: str) -> int:
            begun.append(name)
            return len(begun)

        def end(self, number: int) -> None:
            ended.append(number)

    monkeypatch.setattr(adapter, "NvtxRanges", Ranges)
    built = build(tmp_path)
    run(built, contexts=2, nvtx=True)
    assert set(begun) == {f"{built.engine} x 1x3x8x8"}
    assert sorted(ended) == list(range(1, len(begun) + 1))


def test_without_a_gpu_bad_tables_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call_here(monkeypatch)
    built = build(tmp_path)
    with pytest.raises(EnvironmentMissing):
        run(built, contexts=2)
    with pytest.raises(InputError):
        run(built, arrivals=table(tmp_path, "time\nx\n"))
