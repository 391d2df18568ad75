"""What counts: built-in metrics, a function of the user's, and what a limit means."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.onnx_models import parse, wrap
from trtconv.core.documents.metric_result import MetricResult
from trtconv.core.errors import InputError
from trtconv.precision.quantize.measure import Reference
from trtconv.precision.quantize.metrics import BUILT_IN, Goal, Metric, cosine, iou, psnr, top1

RANDOM = np.random.default_rng(4)
IMAGE = RANDOM.standard_normal((2, 3, 5, 4)).astype(np.float32)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("shape", [(2, 7), (1, 3, 4, 4), (1, 1, 4, 4), (5,), ()])
def test_nothing_is_better_than_the_reference_itself(name: str, shape: tuple[int, ...]) -> None:
    wanted = RANDOM.standard_normal(shape).astype(np.float32)
    best = BUILT_IN[name](wanted, wanted)
    assert best == pytest.approx({"psnr": 100}.get(name, 1))
    assert BUILT_IN[name](-wanted, wanted) < best


def test_psnr_is_that_of_the_range_of_the_reference() -> None:
    wanted = np.array([0.0, 255.0, 100.0, 50.0])
    assert psnr(wanted + 5, wanted) == pytest.approx(20 * math.log10(255 / 5))


def test_iou_is_the_mean_over_the_classes_of_either() -> None:
    wanted = np.array([0, 0, 1, 1, 2])
    # Of class 0 two of three, of 1 one of two, of 2 one of one; and none of 3.
    assert iou(np.array([0, 0, 0, 1, 2]), wanted) == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    assert iou(np.array([0, 0, 1, 1, 3]), wanted) == pytest.approx((1 + 1 + 0 + 0) / 4)


def test_classes_are_the_largest_channel_where_images_and_where_tokens_have_it() -> None:
    other = IMAGE.copy()
    other[0, :, 0, 0] = np.roll(other[0, :, 0, 0], 1)
    assert top1(other, IMAGE) == pytest.approx(1 - 1 / 40)
    tokens = RANDOM.standard_normal((1, 6, 4)).astype(np.float32)
    changed = tokens.copy()
    changed[0, 2] = np.roll(changed[0, 2], 1)
    assert top1(changed, tokens) == pytest.approx(1 - 1 / 6)


@pytest.mark.parametrize(("values", "moved", "same"), [([0.2, 0.9], [0.4, 0.6], 1.0), ([-2.0, 3.0], [0.4, 0.6], 0.5)])
def test_one_channel_is_a_mask_of_shares_or_of_logits(values: list[float], moved: list[float], same: float) -> None:
    assert top1(np.array([moved]).T, np.array([values]).T) == same


@pytest.mark.parametrize(
    ("reference", "limit"),
    [
        ([0.0, 1.0], 0.5),
        ([0.2, 0.4], 0.5),
        ([-0.1, 0.4], 0.0),
        ([0.2, 1.1], 0.0),
        ([-3.0, 3.0], 0.0),
        ([-2.0, -1.0], 0.0),
    ],
)
def test_values_of_one_channel_are_shares_only_if_all_are_from_0_to_1(reference: list[float], limit: float) -> None:
    wanted = np.array([reference]).T
    for place in (0, 1):
        for moved in (limit - 0.01, limit + 0.01):
            got = wanted.copy()
            got[place] = moved
            same = (reference[place] > limit) == (moved > limit)
            assert top1(got, wanted) == (1.0 if same else 0.5)


@given(st.floats(1e-3, 1e3), st.integers(0, 99))
def test_cosine_does_not_see_a_factor(factor: float, seed: int) -> None:
    wanted = np.random.default_rng(seed).standard_normal(20)
    assert cosine(factor * wanted, wanted) == pytest.approx(1)
    assert cosine(np.zeros(20), wanted) == 0


def test_of_several_outputs_the_worst_counts_and_none_that_is_not_finite_passes() -> None:
    wanted = {"a": np.array([1.0, 0.0]), "b": np.array([0.0, 1.0])}
    metric = Metric("cosine")
    assert metric.of({**wanted, "b": np.array([1.0, 0.0])}, wanted) == 0
    assert metric.of({**wanted, "b": np.array([math.nan, 1.0])}, wanted) == -math.inf
    assert metric.of({**wanted, "b": np.array([0.0, 1.0, 0.0])}, wanted) == -math.inf


@pytest.mark.parametrize(
    ("own", "limit", "value", "met"),
    [
        (1.0, 0.9, 0.95, True),
        (1.0, 0.9, 0.85, False),
        (1.0, 0.9, 0.9, True),
        (1.0, 0.9, 1.1, True),
        (0.0, 0.1, 0.05, True),
        (0.0, 0.1, 0.15, False),
        (0.0, 0.1, 0.1, True),
        (0.7, 0.8, 0.2, True),
        (1.0, 1.0, 1.0, True),
        (1.0, 1.0, 0.999, False),
        (1.0, 0.9, -math.inf, False),
    ],
)
def test_a_limit_is_on_the_worse_side_of_what_the_float_network_has(
    own: float, limit: float, value: float, met: bool
) -> None:
    assert MetricResult("any", value, None, own, limit, 1).met == met


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=9))
def test_the_told_value_is_the_mean_with_its_standard_error(values: list[float]) -> None:
    metric = Metric("cosine")
    metric.of = lambda outputs, reference: float(outputs["y"][0])  # type: ignore[method-assign]
    pairs = [({"y": np.array([value])}, {}) for value in values]
    judged = Goal(metric, 0.5).judged(pairs, 1.0)
    assert judged.value == pytest.approx(np.mean(values), abs=1e-6)
    assert judged.standard_error == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), abs=1e-6)


def written(folder: Path, body: str) -> str:
    path = folder / "own.py"
    path.write_text(f"import numpy as np\ndef f(outputs, reference):\n    {body}\n")
    return f"{path}:f"


def test_a_function_may_write_into_what_it_gets(tmp_path: Path) -> None:
    metric = Metric(written(tmp_path, "reference['y'][:] = 0; outputs['y'][:] = 0; return outputs['y'].sum()"))
    wanted = {"y": np.ones(3)}
    assert metric.of(wanted, wanted) == 0
    assert wanted["y"].all()


@pytest.mark.parametrize(
    "body", ["return float('nan')", "return float('inf')", "return 'x'", "1 / 0", "raise SystemExit"]
)
def test_a_function_that_makes_no_number_is_an_error_that_names_it(body: str, tmp_path: Path) -> None:
    text = written(tmp_path, body)
    with pytest.raises(InputError) as told:
        Metric(text).of({"y": np.ones(1)}, {"y": np.ones(1)})
    assert text in str(told.value)


@pytest.mark.parametrize("text", ["psrn", "own.py", "none.py:f", ""])
def test_what_is_no_metric_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        Metric(text)


def test_a_function_is_known_by_its_content(tmp_path: Path) -> None:
    first = Goal(Metric(written(tmp_path, "return 1.0")), 0.5).identity
    assert Goal(Metric(written(tmp_path, "return 1.0")), 0.5).identity == first
    assert Goal(Metric(written(tmp_path, "return 2.0")), 0.5).identity != first


def test_budget_and_tolerance_are_on_one_side() -> None:
    model = wrap(parse('<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Relu (x) }'))
    samples = [{"x": np.array([1, 2, -3, 4], np.float32)}] * 2
    reference = Reference(model, samples, Goal(Metric("cosine"), 0.9))
    assert reference.allowed(0.75) == pytest.approx(0.25)
    with pytest.raises(InputError):
        reference.allowed(1.5)


@pytest.mark.parametrize(
    ("limit", "other", "fits"), [(0.5, 0.6, True), (0.5, 0.9, False), (0.9, 0.8, True), (0.9, 0.6, False)]
)
def test_of_a_function_limits_are_on_one_side_of_what_the_float_network_has(
    limit: float, other: float, fits: bool, tmp_path: Path
) -> None:
    goal = Goal(Metric(written(tmp_path, "return 0.7")), limit)
    assert goal.allowed(0.7, 0.7) == 0
    if fits:
        assert goal.allowed(other, 0.7) == pytest.approx(abs(other - 0.7))
    else:
        with pytest.raises(InputError, match="whichever way is better"):
            goal.allowed(other, 0.7)


@pytest.mark.parametrize(("name", "limit"), [("top1", 95), ("psnr", 300), ("cosine", 1.01), ("iou", 2)])
def test_a_built_in_metric_cannot_be_asked_for_more_than_the_float_network_has(name: str, limit: float) -> None:
    held = [{"y": IMAGE}]
    with pytest.raises(InputError, match=f"{limit:g} is asked for"):
        Goal(Metric(name), limit).own(held)
    best = Goal(Metric(name), {"psnr": 100}.get(name, 1))
    own = best.own(held)
    with pytest.raises(InputError, match=f"{limit:g} is asked for"):
        best.allowed(limit, own)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_float_network_that_makes_nan_is_no_measure(name: str) -> None:
    wanted = IMAGE.copy()
    wanted[0, 0, 0, 0] = math.nan
    with pytest.raises(InputError, match="not finite"):
        Goal(Metric(name), 0.5).own([{"y": IMAGE}, {"y": wanted}])


_COUNT = 24
"""Of samples; the network runs on each once for each that is left out."""


@given(st.lists(st.tuples(st.floats(0.5, 2), st.floats(0.01, 0.5)), min_size=3, max_size=6))
def test_the_standard_error_of_an_error_is_that_of_leaving_samples_out(scales: list[tuple[float, float]]) -> None:
    """Beside the jackknife, which knows no formula."""
    model = wrap(parse('<ir_version: 8, opset_import: ["": 17]> g (float[8] x) => (float[8] y) { y = Identity (x) }'))
    noise = np.random.default_rng(0).standard_normal((2, _COUNT, 8))
    samples, results = [], []
    for number in range(_COUNT):
        size, error = scales[number % len(scales)]
        samples.append({"x": (size * noise[0, number]).astype(np.float32)})
        results.append({"y": samples[-1]["x"] + np.float32(error) * noise[1, number].astype(np.float32)})
    told = Reference(model, samples).distances_of(results)["y"].standard_error
    rests = [
        Reference(model, samples[:i] + samples[i + 1 :]).distances_of(results[:i] + results[i + 1 :])["y"].rms
        for i in range(_COUNT)
    ]
    jackknife = math.sqrt((_COUNT - 1) / _COUNT * float(np.square(np.array(rests) - np.mean(rests)).sum()))
    assert told == pytest.approx(jackknife, rel=0.2)


def test_of_networks_that_a_metric_holds_for_equal_the_nearer_one_ranks_first() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) <float s = {FACTOR}> { y = Mul (x, s) }'
    )
    model, near, far = (wrap(parse(text.replace("FACTOR", each))) for each in ("1", "1.1", "3"))
    samples = [{"x": np.array([1, 2, -3, 4], np.float32)}] * 2
    by_metric = Reference(model, samples, Goal(Metric("top1"), 0.5))
    assert [by_metric.error(near), by_metric.error(far)] == [0, 0]
    assert by_metric.rank(near) < by_metric.rank(far)
    by_error = Reference(model, samples)
    assert by_error.rank(near)[0] == by_error.error(near) < by_error.error(far)


@pytest.mark.parametrize(("name", "limit"), [("top1", 95), ("iou", 1.5), ("psnr", 101), ("cosine", 1.01)])
def test_a_limit_that_the_float_network_does_not_reach_is_refused(name: str, limit: float) -> None:
    """As a percentage of top1 would be, which no network could then miss."""
    with pytest.raises(InputError, match="is asked for, and the float network itself has"):
        Goal(Metric(name), limit).own([{"y": IMAGE}])


def test_a_limit_that_only_the_float_network_reaches_can_be_given() -> None:
    for seed in range(50):
        wanted = {"y": np.random.default_rng(seed).standard_normal(37).astype(np.float32)}
        goal = Goal(Metric("cosine"), 1.0)
        own = goal.own([wanted])
        assert goal.judged([(wanted, wanted)], own).met
        assert not goal.judged([({"y": -wanted["y"]}, wanted)], own).met


def test_a_float_network_with_infinite_outputs_has_no_value() -> None:
    with pytest.raises(InputError, match="outputs of the float network on the samples are not finite"):
        Goal(Metric("cosine"), 0.9).own([{"y": np.array([1, -np.inf], np.float32)}])


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_sample_without_values_does_not_hide_another(name: str) -> None:
    nothing, wanted = {"y": np.zeros((0, 4), np.float32)}, {"y": IMAGE}
    goal = Goal(Metric(name), 0.9)
    own = goal.own([nothing, wanted])
    assert own == BUILT_IN[name](IMAGE, IMAGE)
    assert not goal.judged([(nothing, nothing), ({"y": IMAGE * np.inf}, wanted)], own).met


def test_without_samples_the_float_network_has_nothing() -> None:
    assert Goal(Metric("top1"), 95).own([]) == 0
