"""What an inference takes at a size, of what was measured at some: between them, beyond them, and away from opts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from support.sizes import parse
from trtconv.core.documents.bench import BenchReport, BenchRow
from trtconv.core.errors import InputError
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.planning.choosing import surcharge
from trtconv.shapes.planning.timing import Measurement, Timing, measurements

NET = parse("g (float[1,h,512] x, float[1,512,512] w) => (float[a,b,c] y) { y = MatMul (x, w) }")
SIZES = Sizes(NET)
POINTS = [{"h": n} for n in (4_096, 8_192, 16_384, 65_536)]
WORK = Timing(SIZES).work(POINTS)


def timing(*us: float, away: Sequence[tuple[int, int, float]] = ()) -> Timing:
    """Returns times of the points in turn, and of a point in a profile for another one."""
    at_opt = [Measurement(point, time) for point, time in zip(POINTS, us, strict=False)]
    return Timing(SIZES, [*at_opt, *(Measurement(POINTS[i], time, POINTS[opt]) for i, opt, time in away)])


def test_without_measurements_work_is_the_time() -> None:
    plain = Timing(SIZES)
    assert plain.unit == "estimate"
    assert (np.diff(WORK) > 0).all()
    assert np.array_equal(plain.times(WORK), WORK)
    assert plain.away(WORK, WORK) == pytest.approx(WORK[:, None] * (1 + surcharge(WORK, WORK)))


def test_what_was_measured_is_told_again() -> None:
    made = timing(100, 150, 400, 900)
    assert made.unit == "us"
    assert made.times(WORK) == pytest.approx([100, 150, 400, 900])
    # Between two, by a power: as far along in factors of time as of work.
    middle = np.sqrt(WORK[:-1] * WORK[1:])
    assert made.times(middle) == pytest.approx(np.sqrt([100 * 150, 150 * 400, 400 * 900]))
    # Beyond, in proportion to the work; less than the least takes as long.
    assert made.times(WORK[-1:] * 3) == pytest.approx([2_700])
    assert made.times(WORK[:1] / 3) == pytest.approx([100])


def test_more_work_never_takes_less_and_of_several_times_the_middle_counts() -> None:
    assert timing(100, 90, 400).times(WORK[:3]) == pytest.approx([100, 100, 400])
    several = [Measurement(POINTS[0], us) for us in (300, 10, 20)] + [Measurement(POINTS[1], 50)]
    assert Timing(SIZES, several).times(WORK[:2]) == pytest.approx([20, 50])
    one = timing(100)
    assert one.times(WORK) == pytest.approx(100 * WORK / WORK[0])


@pytest.mark.parametrize(("power", "idle"), [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0), (2.0, 0.0)])
def test_a_gpu_that_is_full_pays_nothing_for_other_kernels(power: float, idle: float) -> None:
    made = timing(*(100 * (WORK / WORK[0]) ** power))
    beside = made.away(WORK, WORK[:1]) / made.times(WORK)[:, None] - 1
    assert beside == pytest.approx(1.4 * idle * surcharge(WORK, WORK[:1]), abs=1e-9)


@pytest.mark.parametrize("factor", [0.0, 0.5, 3.0])
def test_surcharges_are_fitted_to_what_was_measured_away_from_opts(factor: float) -> None:
    shares = factor * surcharge(WORK, WORK)
    away = [(i, j, 100 * (1 + shares[i, j])) for i in range(4) for j in range(4) if i != j]
    made = timing(100, 100, 100, 100, away=away)
    assert made.away(WORK, WORK) == pytest.approx(100 * (1 + shares))
    # Of times that do not agree, by the least squares.
    mixed = timing(100, 100, 100, 100, away=[(0, 3, 130.0), (3, 0, 170.0), (1, 2, 101.0)])
    own = np.array([surcharge(WORK, WORK)[i, j] for i, j in ((0, 3), (3, 0), (1, 2))])
    best = np.linalg.lstsq(own[:, None], np.array([0.3, 0.7, 0.01]), rcond=None)[0][0]
    assert mixed.away(WORK, WORK) == pytest.approx(100 * (1 + best * surcharge(WORK, WORK)))


def test_times_beyond_the_opts_fit_nothing() -> None:
    """Nothing tells what such a size takes at best."""
    usual = timing(100, 100)
    beyond = timing(100, 100, away=[(2, 0, 900.0), (3, 1, 900.0)])
    assert beyond.away(WORK, WORK) == pytest.approx(usual.away(WORK, WORK))
    faster = timing(100, 100, away=[(0, 1, 50.0)])
    assert faster.away(WORK[:2], WORK[:2]) == pytest.approx(np.full((2, 2), 100.0))


def row(size: str, h: int, us: float | None, **changes: object) -> BenchRow:
    kept = {"engine": 0, "profile": 0, "graph": True, "copies": False, **changes}
    shapes = kept.pop("shapes", {"x": (1, h, 512), "w": (1, 512, 512)})
    return BenchRow(kept["engine"], kept["profile"], size, shapes, kept["graph"], kept["copies"], 9, us)  # type: ignore[arg-type]


def read(folder: Path, *rows: BenchRow) -> list[tuple[int, float, int | None]]:
    path = folder / "bench.json"
    path.write_text(json.dumps(BenchReport((), rows).to_json()))
    made = measurements([path], NET.inputs, ["h"])
    return [(each.point["h"], each.us, None if each.opt is None else each.opt["h"]) for each in made]


def test_rows_of_bench_that_count(tmp_path: Path) -> None:
    opt = row("opt", 64, 5.0)
    assert read(tmp_path, opt) == [(64, 5.0, None)]
    assert read(tmp_path, opt, row("min", 8, 3.0)) == [(64, 5.0, None), (8, 3.0, 64)]
    assert read(tmp_path, row("given", 40, 4.0)) == [(40, 4.0, None)]
    # Of another profile, whose opt was not timed, nothing is known.
    assert read(tmp_path, opt, row("max", 99, 9.0, profile=1)) == [(64, 5.0, None)]
    assert read(tmp_path, opt, row("opt", 80, 8.0, profile=1), row("max", 99, 9.0, profile=1))[1:] == [
        (80, 8.0, None),
        (99, 9.0, 80),
    ]
    for other in ({"engine": 1}, {"copies": True}, {"graph": False}):
        assert read(tmp_path, opt, row("opt", 32, 1.0, **other)) == [(64, 5.0, None)]
    # Without CUDA graphs at an opt, the times without them.
    assert read(tmp_path, row("opt", 32, 1.0, graph=False), row("min", 8, 1.0)) == [(32, 1.0, None)]
    for none in (None, 0.0, -1.0):
        assert read(tmp_path, opt, row("opt", 32, none)) == [(64, 5.0, None)]


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"x": (1, 64, 512)},
        {"x": (1, 64), "w": (1, 512, 512)},
        {"x": (1, 64, 511), "w": (1, 512, 512)},
        {"x": (1, 0, 512), "w": (1, 512, 512)},
    ],
)
def test_rows_of_another_model(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(InputError):
        read(tmp_path, row("opt", 64, 5.0, shapes=shapes))


def test_a_file_without_times_at_opt(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no times at opt"):
        read(tmp_path, row("min", 8, 3.0))
