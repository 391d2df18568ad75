"""Branches of every kind, generated: no file is right on one side only without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hypothesis import HealthCheck, given, settings  # noqa: E402

from support import branch_grammar as grammar  # noqa: E402
from support.branch_grammar import HIGH, LOW, Branching, SizeCondition, ValueCondition  # noqa: E402
from support.branch_modules import FORMS, Decides, Source, Verdict, outcome, sources  # noqa: E402
from trtconv.core.dims import Range  # noqa: E402
from trtconv.core.documents.export import SizeRule  # noqa: E402
from trtconv.exporter.inputs import InputDecl  # noqa: E402
from trtconv.exporter.module.torch_module import Subject, prepare  # noqa: E402
from trtconv.exporter.module.values import value_branches  # noqa: E402
from trtconv.exporter.request import plan_axes  # noqa: E402
from trtconv.exporter.sizing.regions import Regions  # noqa: E402
from trtconv.exporter.sizing.trials import Trials  # noqa: E402

BOUNDS = Range(LOW, 16, HIGH)
AXES = {"x": (None, None, "height", "width")}
NARROW = (
    "w >= 3 * h + 5",
    "w % 7 == 5 and h % 5 == 3",
    "w == 37",
    "h * w > 1500",
    "h == w == 39",
    "(h - w) % 11 == 7",
    "h // 9 == 4 and w < 9",
)
"""Conditions that few sizes meet."""


def _subject(module: torch.nn.Module) -> Subject:
    return prepare(module.eval(), (InputDecl("x", (1, 1, 16, 16)),), (), (torch.ones(1, 1, 16, 16),))


def _regions(condition: SizeCondition) -> Regions:
    subject = _subject(Branching(condition))
    axes = plan_axes(subject.inputs, AXES, {"height": BOUNDS, "width": BOUNDS})
    rules = [SizeRule(name, 16, asked=BOUNDS, min=LOW, max=HIGH) for name in axes.places]
    return Regions(Trials(subject, axes), rules)


def _parts_both_sides(condition: SizeCondition) -> None:
    """Every size is in a region, and no region has sizes of both sides."""
    regions, truth = _regions(condition), condition.truth()
    assert regions.complete
    sides: dict[int, set[bool]] = {}
    for (h, w), holds in truth.items():
        sides.setdefault(regions.of({"height": h, "width": w}), set()).add(holds)
    assert -1 not in sides
    assert all(len(side) == 1 for side in sides.values())
    assert {next(iter(side)) for side in sides.values()} == set(truth.values())


@pytest.mark.parametrize("text", NARROW)
def test_narrow_regions_of_sizes_are_found(text: str) -> None:
    _parts_both_sides(SizeCondition(text))


@given(grammar.size_conditions())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_generated_conditions_part_the_sizes(condition: SizeCondition) -> None:
    _parts_both_sides(condition)


@pytest.mark.parametrize("read", grammar.READS)
@pytest.mark.parametrize("number", grammar.NUMBERS)
def test_every_way_to_read_every_number_is_seen(number: str, read: str) -> None:
    assert value_branches(_subject(Branching(ValueCondition(number, read, 49.0, values=True))))
    assert not value_branches(_subject(Branching(ValueCondition(number, read, 49.0, values=False))))


@given(sources())
@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_generated_branch_is_kept_right_or_refused_with_its_line(tmp_path_factory, source: Source) -> None:
    found = outcome(source, tmp_path_factory.mktemp("branch"), "net")
    assert found.good, f"{found}\n{source.text}"


TOLD = {
    "an assertion that is caught": Source(FORMS["caught"], "mask.any()", "torch.cat([y, y], 1)", Decides.VALUES),
    "an exception that is caught": Source(FORMS["raised"], "mask.any()", "-y", Decides.VALUES),
    "a text that an assertion looks at": Source(
        FORMS["caught"], '"inf" in repr(x.flatten()[:1])', "y + x.mean()", Decides.VALUES
    ),
    "one that PyTorch refuses at the example itself": Source(
        FORMS["comprehension"], "w == 16", "torch.cat([y, y], 1)", Decides.SIZES
    ),
    "sizes tied by nothing": Source(FORMS["module"], "0 < min(h, w) < max(h, w)", "-y", Decides.SIZES),
}
"""Branches that an earlier exporter kept one side of, or refused without the line."""


@pytest.mark.parametrize("kind", TOLD)
def test_a_branch_is_refused_with_its_line(kind: str, tmp_path: Path) -> None:
    assert outcome(TOLD[kind], tmp_path, "net").verdict is Verdict.REFUSED


def test_one_size_by_other_code_costs_no_more_than_that_size(tmp_path: Path) -> None:
    found = outcome(Source(FORMS["if"], "w == 37", "-y", Decides.SIZES), tmp_path, "net")
    assert (found.verdict, found.kept) == (Verdict.RIGHT, 32 / 33)
