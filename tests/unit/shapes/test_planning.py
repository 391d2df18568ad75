"""Requests divided into profiles, and the code that sends them there."""

from __future__ import annotations

import json
import shutil
import subprocess
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtconv.cli.formats.traffic import plan_text
from trtconv.core.dims import Range
from trtconv.core.documents.bench import BenchReport, BenchRow
from trtconv.core.documents.traffic import TrafficPlan
from trtconv.core.errors import InputError
from trtconv.core.requests.traffic import PlanProfilesRequest
from trtconv.core.toml import read_toml
from trtconv.shapes.planning.writing import build_command, plan_profiles

# Multiples of 4 alone; a batch, and a mask that has the same batch.
NET = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 3, h, w] x, float[n, 1] m) => (float[n, 8, h, w] y)
<float[8, 3, 3, 3] k, float[8, 8, 4, 4] u>
{
  a = Conv <pads = [1, 1, 1, 1]> (x, k)
  b = MaxPool <kernel_shape = [4, 4], strides = [4, 4]> (a)
  c = ConvTranspose <strides = [4, 4]> (b, u)
  y = Add (a, c)
}
"""
DIMS = ("n", "h", "w")
Row = tuple[int, tuple[int, int, int]]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nets") / "net.onnx"
    model = onnx.parser.parse_model(NET)
    for value in model.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), value.name))
    onnx.save(model, path)
    return path


def plan(net: Path, folder: Path, rows: Sequence[Row], **options: Any) -> TrafficPlan:
    table = folder / "traffic.csv"
    lines = [f"{count},{','.join(map(str, sizes))}" for count, sizes in rows]
    table.write_text("\n".join(["count,n,h,w", *lines]) + "\n")
    return plan_profiles(PlanProfilesRequest(table, net, **options))


def dispatcher(folder: Path) -> Any:
    module = types.ModuleType("dispatch")
    exec(compile((folder / "dispatch.py").read_text(), "dispatch.py", "exec"), module.__dict__)
    return module


SIZES = st.tuples(st.integers(1, 4), st.integers(1, 200), st.integers(1, 200))
ROWS = st.lists(st.tuples(st.integers(1, 1000), SIZES), min_size=1, max_size=12)


@given(rows=ROWS, most=st.integers(1, 4))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_request_lands_in_a_profile_that_takes_it(net: Path, tmp_path: Path, rows: list[Row], most: int) -> None:
    found = plan(net, tmp_path, rows, profiles=most, output=tmp_path / "plan")
    assert 1 <= len(found.profiles) <= most
    assert found.cost.planned <= found.cost.one == 1
    assert found.requests == sum(count for count, _ in rows) == pytest.approx(sum(r.requests for r in found.runs))
    assert sum(each.cost for each in found.profiles) == pytest.approx(found.cost.planned, abs=1e-3)
    choose = dispatcher(tmp_path / "plan").choose
    for _, sizes in rows:
        profile, run, shapes = choose(dict(zip(DIMS, sizes, strict=True)))
        bounds = found.profiles[profile].dims
        assert all(bounds[name].min <= run[name] <= bounds[name].max for name in DIMS)
        assert all(run[name] >= size for name, size in zip(DIMS, sizes, strict=True))
        assert run["h"] % 4 == run["w"] % 4 == 0
        assert shapes == {"x": (run["n"], 3, run["h"], run["w"]), "m": (run["n"], 1)}
    for each in found.profiles:
        for name in ("h", "w"):
            assert {getattr(each.dims[name], pick) % 4 for pick in ("min", "opt", "max")} == {0}


def test_two_kinds_of_requests_get_a_profile_each(net: Path, tmp_path: Path) -> None:
    rows = [(100_000, (1, 64, 64)), (1000, (4, 1024, 1024))]
    found = plan(net, tmp_path, rows)
    assert [each.dims for each in found.profiles] == [
        {"n": Range(1, 1, 1), "h": Range(64, 64, 64), "w": Range(64, 64, 64)},
        {"n": Range(4, 4, 4), "h": Range(1024, 1024, 1024), "w": Range(1024, 1024, 1024)},
    ]
    assert found.cost.planned <= found.cost.auto < 1
    assert found.cost.auto_profiles > 2
    assert found.flags == ("--profile", "n=1,h=64,w=64", "--profile", "n=4,h=1024,w=1024")
    assert plan_text(found).endswith(build_command(found))
    assert len(plan(net, tmp_path, rows, profiles=1).profiles) == 1


def test_a_profile_that_saves_next_to_nothing_is_left_out(net: Path, tmp_path: Path) -> None:
    assert len(plan(net, tmp_path, [(100_000, (1, 64, 64)), (1, (1, 68, 64))], profiles=9).profiles) == 1


def test_sizes_that_are_not_accepted_are_padded_and_told(net: Path, tmp_path: Path) -> None:
    found = plan(net, tmp_path, [(3, (1, 61, 62)), (5, (1, 64, 64))])
    (run,) = found.runs
    assert (run.sizes, run.requests, run.padded) == ({"n": 1, "h": 64, "w": 64}, 8, 3)
    assert "padded to n 1, h 64, w 64: 3 of 8 requests" in plan_text(found)


def test_dimensions_that_are_kept(net: Path, tmp_path: Path) -> None:
    rows = [(10, (1, 64, 64)), (1, (2, 61, 64)), (10, (4, 64, 64))]
    found = plan(net, tmp_path, rows, keep=("n",), profiles=1, output=tmp_path / "plan")
    choose = dispatcher(tmp_path / "plan").choose
    assert [choose({"n": n, "h": 62, "w": 3})[1]["n"] for n in (1, 2, 4)] == [1, 2, 4]
    with pytest.raises(ValueError, match="no profile takes n 3, h 64, w 64"):
        choose({"n": 3, "h": 64, "w": 64})
    assert found.profiles[0].dims["n"].min == 1
    assert found.profiles[0].dims["n"].max == 4
    with pytest.raises(InputError, match=r"traffic\.csv:2: the network accepts nothing from h 61 on, with h as it is"):
        plan(net, tmp_path, [(1, (2, 61, 64))], keep=("h",))
    with pytest.raises(InputError, match="--keep q"):
        plan(net, tmp_path, rows, keep=("q",))


def test_memory_is_a_limit(net: Path, tmp_path: Path) -> None:
    rows = [(20_000, (1, 256, 256)), (1000, (1, 1024, 1024)), (60, (4, 2048, 2048))]
    free = plan(net, tmp_path, rows)
    assert len(free.profiles) == 3
    limited = plan(net, tmp_path, rows, memory=free.memory_bytes - 1)
    assert len(limited.profiles) == 2
    assert limited.memory_bytes < free.memory_bytes
    with pytest.raises(InputError, match="one profile takes about"):
        plan(net, tmp_path, rows, memory=1000)


def measured(folder: Path, name: str, times: dict[int, float]) -> Path:
    rows = [
        BenchRow(0, profile, size, {"x": (1, 3, n, n), "m": (1, 1)}, graph, False, 9, us * (1 if graph else 3))
        for profile, (n, us) in enumerate(times.items())
        for size in ("opt", "max")
        for graph in (True, False)
        if size == "opt" or graph
    ]
    path = folder / name
    path.write_text(json.dumps(BenchReport((), tuple(rows)).to_json()))
    return path


def test_times_that_were_measured(net: Path, tmp_path: Path) -> None:
    # A size that is as fast as one twice as large: requests of it are padded, at the cost of nothing.
    times = measured(tmp_path, "bench.json", {512: 100.0, 1024: 100.0, 2048: 400.0})
    rows = [(10, (1, 512, 512)), (1, (1, 1024, 1024)), (10, (1, 2048, 2048))]
    found = plan(net, tmp_path, rows, measured=(times,), profiles=2)
    assert found.cost.unit == "us"
    assert found.cost.per_request == pytest.approx((10 * 100 + 100 + 10 * 400) / 21, rel=0.01)
    assert [(run.sizes["h"], run.requests, run.padded, run.time) for run in found.runs] == [
        (1024, 11, 10, 100),
        (2048, 10, 0, 400),
    ]
    between = plan(net, tmp_path, [(1, (1, 1536, 1536))], measured=(times,))
    assert 100 < between.cost.per_request < 400
    beyond = plan(net, tmp_path, [(1, (1, 4096, 4096))], measured=(times,))
    assert beyond.cost.per_request == pytest.approx(1600, rel=0.2)


def ranged(folder: Path, name: str, rows: Sequence[tuple[str, int, float]], engine: int = 0) -> Path:
    """What bench says of one profile: the size's name, height and width, and microseconds."""
    found = [BenchRow(engine, 0, size, {"x": (1, 3, n, n), "m": (1, 1)}, True, False, 9, us) for size, n, us in rows]
    path = folder / name
    path.write_text(json.dumps(BenchReport((), tuple(found)).to_json()))
    return path


def test_what_other_sizes_take_is_measured(net: Path, tmp_path: Path) -> None:
    # The GPU is not full: four times the work takes hardly longer. Away from its opt a size takes twice as long.
    opts = measured(tmp_path, "opts.json", {64: 100.0, 128: 101.0, 256: 102.0})
    rows = [(100, (1, 256, 256)), (1, (1, 64, 64))]

    def small(*files: Path) -> float:
        runs = plan(net, tmp_path, rows, measured=(opts, *files), profiles=1, keep=("h",)).runs
        return next(run.time for run in runs if run.sizes["h"] == 64)

    costly = ranged(tmp_path, "costly.json", [("opt", 256, 102.0), ("min", 64, 200.0)])
    free = ranged(tmp_path, "free.json", [("opt", 256, 102.0), ("min", 64, 100.0)])
    assert small(costly) == pytest.approx(200, rel=0.02)
    assert small(free) == pytest.approx(100, rel=0.02)
    assert 110 < small() < 190
    # Another engine's row says nothing of this one's profile.
    other = ranged(tmp_path, "other.json", [("opt", 256, 102.0), ("min", 64, 900.0)], engine=1)
    with pytest.raises(InputError, match="no times at opt"):
        small(other)


def test_a_full_gpu_takes_other_sizes_as_fast(net: Path, tmp_path: Path) -> None:
    # Time grows as work does, so that no kernel suits one size better than another.
    times = measured(tmp_path, "full.json", {256: 100.0, 512: 400.0, 1024: 1600.0})
    found = plan(
        net,
        tmp_path,
        [(100, (1, 1024, 1024)), (100, (1, 256, 256))],
        measured=(times,),
        profiles=4,
    )
    assert len(found.profiles) == 1
    assert found.runs[0].time == pytest.approx(100, rel=0.05)


def test_every_further_profile_saves_its_share(net: Path, tmp_path: Path) -> None:
    rows = [(10, (1, size, size)) for size in range(64, 1024, 4)]
    few, many = (plan(net, tmp_path, rows, profiles=most) for most in (12, 64))
    assert len(few.profiles) == len(many.profiles) < 12
    fewer = plan(net, tmp_path, rows, profiles=len(many.profiles) - 1)
    assert fewer.cost.planned - many.cost.planned > 0.01


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not what bench writes"),
        ('{"schema": 1}', "is not what bench writes"),
        (json.dumps(BenchReport((), ()).to_json()), "has no times at opt"),
        (
            json.dumps(BenchReport((), (BenchRow(0, 0, "opt", {"q": (1,)}, True, False, 1, 5.0),)).to_json()),
            "is of another model",
        ),
    ],
)
def test_bad_measurements(net: Path, tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(InputError, match=what):
        plan(net, tmp_path, [(1, (1, 64, 64))], measured=(path,))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("count,n,h\n1,1,64\n", r"(?s)t\.csv:2: .*\bw\b"),
        ("count,n,h,w,q\n1,1,64,64,1\n", r"t\.csv:2: .*'q'"),
        ("time,n,h,w\n1,1,64,64\n", "no column 'count'"),
        ("count,n,h,w\n", "no requests"),
    ],
)
def test_bad_tables(net: Path, tmp_path: Path, text: str, what: str) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    with pytest.raises(InputError, match=what):
        plan_profiles(PlanProfilesRequest(table, net, output=tmp_path / "plan"))
    assert not (tmp_path / "plan").exists()


def test_what_is_written(net: Path, tmp_path: Path) -> None:
    rows = [(1000, (1, 64, 64)), (1000, (4, 1024, 1024))]
    folder = tmp_path / "deep" / "plan"
    found = plan(net, tmp_path, rows, output=folder)
    assert sorted(found.written) == sorted(str(path) for path in folder.iterdir())
    (model,) = read_toml(folder / "profiles.toml")["models"]
    assert (folder / model["path"]).resolve() == net.resolve()
    assert model["profiles"][1] == {"n": "4:4:4", "h": "1024:1024:1024", "w": "1024:1024:1024"}
    profile, padded = dispatcher(folder).pad({"x": np.ones((1, 3, 60, 64), np.float32), "m": np.ones((1, 1))})
    assert profile == 0
    assert padded["x"].shape == (1, 3, 64, 64)
    assert (padded["x"][:, :, :60] == 1).all()
    assert (padded["x"][:, :, 60:] == 0).all()
    with pytest.raises(InputError, match="is not a folder"):
        plan(net, tmp_path, rows, output=net)


MAIN = r"""
#include <cstdio>
#include <cstdlib>
#include "dispatch.hpp"
using namespace trtconv_dispatch;
int main(int count, char** words) {
  for (int i = 1; i + 2 < count; i += 3) {
    const Run* run = choose({std::atoll(words[i]), std::atoll(words[i + 1]), std::atoll(words[i + 2])});
    if (run == nullptr) { std::puts("none"); continue; }
    std::printf("%d", int(run->profile));
    for (auto size : run->sizes) std::printf(" %lld", (long long)size);
    for (auto size : shape_of(*run, 0)) std::printf(" %lld", (long long)size);
    std::puts("");
  }
  const std::vector<int> from{1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<int> to(2 * 3 * 3, 9);
  pad(from.data(), {2, 2, 2}, to.data(), {2, 3, 3});
  for (int value : to) std::printf("%d ", value);
  std::puts(inputs[1]);
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_header_does_what_the_module_does(net: Path, tmp_path: Path) -> None:
    rows = [(9, (1, 64, 64)), (5, (1, 64, 128)), (5, (2, 64, 64)), (9, (4, 300, 300)), (2, (4, 77, 500))]
    plan(net, tmp_path, rows, output=tmp_path, keep=("n",))
    (tmp_path / "main.cpp").write_text(MAIN)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O0"]
    subprocess.run(["g++", *flags, "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    choose = dispatcher(tmp_path).choose
    requests = [sizes for _, sizes in rows] + [(1, 1, 1), (3, 64, 64), (4, 301, 300), (2, 65, 64), (4, 5, 400)]
    words = [str(size) for sizes in requests for size in sizes]
    lines = subprocess.run([tmp_path / "main", *words], check=True, capture_output=True, text=True).stdout.splitlines()
    expected = []
    for sizes in requests:
        try:
            profile, run, shapes = choose(dict(zip(DIMS, sizes, strict=True)))
            expected.append(" ".join(map(str, (profile, *run.values(), *shapes["x"]))))
        except ValueError:
            expected.append("none")
    assert lines[:-1] == expected
    assert "none" in expected
    assert lines[-1] == "1 2 0 3 4 0 0 0 0 5 6 0 7 8 0 0 0 0 m"


def test_a_model_of_one_size(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Relu (x) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="no dynamic dimension"):
        plan(tmp_path / "m.onnx", tmp_path, [(1, (1, 1, 1))])
