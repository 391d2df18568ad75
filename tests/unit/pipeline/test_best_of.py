"""`build --best-of`: of several builds of one network the fastest is kept, on a GPU that takes as long as told."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from support.engines import GPU, give_gpu
from support.gpu import FakeDriver, engine_bytes, fake_tensorrt
from support.onnx_models import parse
from support.paths import DATA
from support.runtime import TENSORRT_8, FakeNetwork, FakeRuntime
from trtconv import BuildRequest, build
from trtconv.cli.formats.text import build_text
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.dims import Range
from trtconv.core.documents.best_of import typical
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.saved import load_report
from trtconv.core.documents.tactics import Tactic
from trtconv.core.errors import BuildFailed, EngineFailed, EnvironmentMissing, InputError
from trtconv.engine.farm.job import BuildJob
from trtconv.graph.model import OnnxModel
from trtconv.pipeline import racing
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt.base import EngineBlob
from trtconv.runtimes.tensorrt.engine import Engines
from trtconv.runtimes.tensorrt.logger import Log
from trtconv.runtimes.tensorrt.timing_format import without_copies

NET = '<ir_version: 8, opset_import: ["": 17]> g (float[1,2,h] x) => (float[1,2,h] y) { y = Relu (x) }'
DIMS = {"h": Range(4, 8, 16)}
TIMINGS = (DATA / "timings-8.6.bin").read_bytes()
TACTIC = Tactic("y", "0x3e8", "0xfb", ())


class Lucky(FakeNetwork):
    """Builds engines of which each takes its time; None fails to build, "broken" does not load."""

    times: Iterator[Any]

    def build(self, plan: Any, monitor: Any = None) -> EngineBlob:
        blob = super().build(plan, monitor)
        us = next(self.times)
        if us is None:
            raise BuildFailed("out of luck")
        data = b"broken" if us == "broken" else engine_bytes(parse(NET), [p.inputs for p in plan.profiles], us=us)
        return dataclasses.replace(blob, data=memoryview(data), tactics=(TACTIC,))


class Caching(Lucky):
    """Leaves a timing cache of TensorRT 8.6 behind, and notes what there was before."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[bytes] = []

    def build(self, plan: Any, monitor: Any = None) -> EngineBlob:
        self.starts.append(plan.timing_cache.read_bytes() if plan.timing_cache.exists() else b"")
        plan.timing_cache.write_bytes(TIMINGS)
        return super().build(plan, monitor)


class OnGpu(FakeRuntime):
    """TensorRT 8.6 with a GPU."""

    def __init__(self, driver: FakeDriver, network: FakeNetwork) -> None:
        capabilities = dataclasses.replace(TENSORRT_8, timing_cache=True, algorithm_selector=True)
        super().__init__(network, family="tensorrt", version="8.6.0", gpu=GPU, capabilities=capabilities)
        trt = fake_tensorrt(driver)
        self._engines = Engines("tensorrt", trt, Log(trt))

    def engines(self) -> Engines:
        return self._engines


class Blind(FakeRuntime):
    """TensorRT 8.6 without one."""

    def engines(self) -> Any:
        raise EnvironmentMissing("there is no GPU here that CUDA offers", "")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNetwork]:
    def install(*us: Any, network: Lucky | None = None) -> FakeNetwork:
        network = network or Lucky()
        network.times = iter(us)
        runtime = OnGpu(give_gpu(monkeypatch), network)
        monkeypatch.setattr(tensorrt, "load", lambda target: runtime)
        return network

    return install


def built(folder: Path, **options: Any) -> BuildReport:
    path = folder / "m.onnx"
    if not path.exists():
        onnx.save(parse(NET), path)
    return build(
        BuildRequest(path, **{"best_of": 4, "prove": "none", "dims": DIMS, "timing_cache": folder / "t", **options})
    )


def us_of(engine: bytes) -> Sequence[float]:
    return [us for us in (2000.0, 2400.0, 3000.0) if engine == engine_bytes(parse(NET), [profile()], us=us)]


def profile() -> Any:
    from trtconv.core.bounds import make_profile

    return make_profile(OnnxModel(parse(NET), Path("m.onnx")).inputs, DIMS).inputs


def test_the_fastest_of_several_is_kept_and_told(use: Callable[..., FakeNetwork], tmp_path: Path) -> None:
    network = use(2400.0, 3000.0, 2000.0, 2400.0)
    report = built(tmp_path)
    assert report.exit_code == 0, report.findings
    assert us_of((tmp_path / "m.engine").read_bytes()) == [2000.0]
    document = json.loads((tmp_path / "m.engine.json").read_text())["best_of"]
    assert document == {"builds": 4, "redraws": 0, "us": [[2400], [3000], [2000], [2400]], "taken": 2, "spread": 1.5}
    assert "best of 4 builds, build 3 was taken: 2400.0, 3000.0, 2000.0, 2400.0 us" in build_text(report)
    saved = load_report(tmp_path / "m.engine.json").report
    assert saved.best_of == report.best_of
    # The first is what a build without makes; with its timings the others would be the same engine.
    caches = [plan.timing_cache for plan in network.built]
    assert caches[0] == tmp_path / "t"
    assert len(set(caches)) == 4
    assert not any(cache.exists() for cache in caches)
    assert {"build", "race"} <= report.seconds.keys()
    assert built(tmp_path).up_to_date
    use(2400.0)
    assert not built(tmp_path, best_of=1).up_to_date


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*seconds: float) -> None:
        """Has the clock say these seconds one after another, and the last one again and again."""
        times = iter(seconds)
        monkeypatch.setattr(racing, "time", SimpleNamespace(monotonic=lambda: next(times, seconds[-1])))

    return install


def test_the_fastest_is_built_again_with_other_copies(
    use: Callable[..., FakeNetwork], clock: Callable[..., None], tmp_path: Path
) -> None:
    """Of these one build in five has the fast kernels; they cost a fraction of a build to draw."""
    clock(0, 100)
    network = Caching()
    use(3000.0, 2400.0, *[3000.0] * 6, 2000.0, None, *[3000.0] * 8, network=network)
    report = built(tmp_path, best_of=2)
    assert report.best_of is not None
    assert (report.best_of.builds, report.best_of.redraws, report.best_of.taken) == (18, 16, 8)
    assert us_of((tmp_path / "m.engine").read_bytes()) == [2000.0]
    assert "best of 18 builds (16 of them the fastest of the others with other copies), build 9 was" in build_text(
        report
    )
    assert load_report(tmp_path / "m.engine.json").report.best_of == report.best_of
    # Whole builds start from nothing, the others from all that convolutions took; the user's cache has nothing of them.
    assert network.starts == [b"", b"", *[without_copies(TIMINGS)] * 16]
    assert {plan.timing_cache for plan in network.built[2:]}.isdisjoint({tmp_path / "t"})


def test_copies_are_drawn_no_longer_than_builds_took(
    use: Callable[..., FakeNetwork], clock: Callable[..., None], tmp_path: Path
) -> None:
    clock(0, 10, 20, 25, 29, 30)
    use(*[2400.0] * 20, network=Caching())
    report = built(tmp_path, best_of=2)
    assert report.best_of is not None
    assert report.best_of.redraws == 2


def test_large_engines_are_not_held_many_times(
    use: Callable[..., FakeNetwork], clock: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(0, 100)
    size = len(engine_bytes(parse(NET), [profile()], us=2400.0))
    monkeypatch.setattr(racing, "_DRAW_BYTES", 4 * size - 1)
    use(*[2400.0] * 20, network=Caching())
    report = built(tmp_path, best_of=2)
    assert report.best_of is not None
    assert report.best_of.redraws == 3


def test_the_first_is_kept_where_none_is_faster(use: Callable[..., FakeNetwork], tmp_path: Path) -> None:
    use(2000.0, 2000.0, None, "broken")
    report = built(tmp_path)
    assert report.best_of is not None
    assert (report.best_of.taken, report.best_of.us) == (0, ((2000.0,), (2000.0,), (), ()))
    assert "failed, failed us" in str(report.best_of)
    assert report.best_of.spread == 1.0


def test_every_profile_counts_alike(use: Callable[..., FakeNetwork], tmp_path: Path) -> None:
    use(3000.0, 2400.0)
    report = built(tmp_path, best_of=2, dims={}, profiles=({"h": Range(4, 4, 8)}, {"h": Range(8, 16, 16)}))
    assert report.best_of is not None
    assert report.best_of.us == ((3000.0, 3000.0), (2400.0, 2400.0))
    assert (report.best_of.taken, report.best_of.spread) == (1, 1.25)


@pytest.mark.parametrize(("low", "fails"), [(12, True), (9, False)])
def test_profiles_have_to_cover_what_the_dims_ask_for(
    use: Callable[..., FakeNetwork], tmp_path: Path, low: int, fails: bool
) -> None:
    use(2000.0)
    profiles = ({"h": Range(4, 4, 8)}, {"h": Range(low, 16, 16)})
    with pytest.raises(InputError, match="h 9") if fails else contextlib.nullcontext():
        built(tmp_path, best_of=1, dims={"h": Range(4, 4, 16)}, profiles=profiles)


def test_a_network_that_does_not_build_is_refused_as_ever(use: Callable[..., FakeNetwork], tmp_path: Path) -> None:
    network = use(None, None, 1.0)
    report = built(tmp_path, mend=False)
    assert (report.exit_code, [f.code for f in report.findings]) == (1, ["TC409", "TC403"])
    # None of the further builds, each of which would measure everything anew; a narrower profile is tried as ever.
    assert all(plan.timing_cache for plan in network.built)


def test_engines_that_do_not_run_are_an_error(use: Callable[..., FakeNetwork], tmp_path: Path) -> None:
    use(*["broken"] * 4)
    with pytest.raises(EngineFailed, match="--best-of"):
        built(tmp_path)
    assert not (tmp_path / "m.engine").exists()


def test_without_a_gpu_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blind = Blind(family="tensorrt", version="8.6.0", capabilities=TENSORRT_8)
    monkeypatch.setattr(tensorrt, "load", lambda target: blind)
    with pytest.raises(EnvironmentMissing, match="--best-of times engines on the GPU: there is no GPU") as caught:
        built(tmp_path)
    assert "--on ADDRESS" in caught.value.hint
    assert blind.network.built == []
    monkeypatch.setattr(tensorrt, "load", lambda target: FakeRuntime())
    with pytest.raises(EnvironmentMissing, match="TensorRT-RTX"):
        built(tmp_path)


@pytest.mark.parametrize("others", [{"options": BuilderOptions(strip_weights=True)}, {"partition": True}])
def test_what_leaves_no_choice_is_refused(tmp_path: Path, others: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"--best-of|--partition"):
        built(tmp_path, **others)


def test_it_travels_to_a_farm(tmp_path: Path) -> None:
    onnx.save(parse(NET), tmp_path / "m.onnx")
    job = BuildJob.of(
        BuildRequest(tmp_path / "m.onnx", dims=DIMS, best_of=3), OnnxModel.load(tmp_path / "m.onnx"), None
    )
    assert BuildJob.read(json.dumps(job.to_json())).request(Path("e")).best_of == 3


def test_what_is_tuned_is_built_several_times(use: Callable[..., FakeNetwork], tmp_path: Path) -> None:
    use(3000.0, 2400.0, 3000.0, 2000.0)
    report = built(tmp_path, best_of=1, tune=True)
    assert report.best_of is not None
    assert (report.best_of.builds, report.best_of.taken, report.best_of.spread) == (4, 3, 1.5)
    use(*[2400.0] * 6)
    more = built(tmp_path, best_of=6, tune=True).best_of
    assert more is not None
    assert more.builds == 6


def test_what_is_tuned_where_nothing_runs_is_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blind = Blind(family="tensorrt", version="8.6.0", capabilities=TENSORRT_8)
    monkeypatch.setattr(tensorrt, "load", lambda target: blind)
    report = built(tmp_path, best_of=1, tune=True)
    assert (report.exit_code, report.best_of, len(blind.network.built)) == (0, None, 1)


def test_the_tactics_of_an_engine_are_built_several_times(use: Callable[..., FakeNetwork], tmp_path: Path) -> None:
    """The kernels that copy and quantise at the inputs are nobody's to choose, and differ by chance with --as too."""
    use(3000.0)
    built(tmp_path, best_of=1)
    first = Path(shutil.copy(tmp_path / "m.engine.json", tmp_path / "first.json"))
    network = use(3000.0, 2400.0, 2000.0, 2400.0)
    report = built(tmp_path, tactics_of=first)
    assert report.best_of is not None
    assert report.best_of.taken == 2
    assert [plan.tactics for plan in network.built] == [(TACTIC,)] * 4


@pytest.mark.parametrize("times", [(), (0.0,), (2.0, -1.0), (float("nan"), 2.0), (2.0, float("nan"))])
def test_times_that_are_none_are_never_the_fastest(times: tuple[float, ...]) -> None:
    assert typical(times) == float("inf")


def test_of_several_profiles_each_time_counts_alike() -> None:
    assert typical((2.0, 8.0)) == pytest.approx(4.0)
