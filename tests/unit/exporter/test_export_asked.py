"""What Python asks of sizes while torch.export traces: the example's region, without another run of the module."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.compiler import is_compiling  # noqa: E402

from trtconv.core.documents.export import SizeRule  # noqa: E402
from trtconv.exporter.file.validate import Validated, export_program  # noqa: E402
from trtconv.exporter.inputs import InputDecl  # noqa: E402
from trtconv.exporter.module.torch_module import prepare  # noqa: E402
from trtconv.exporter.request import plan_axes  # noqa: E402
from trtconv.exporter.sizing.region import Region  # noqa: E402
from trtconv.exporter.sizing.regions import Regions  # noqa: E402
from trtconv.exporter.sizing.trials import Trials  # noqa: E402

RULES = [SizeRule("height", 16, min=8, max=40)]


class Plain(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).sum((2, 3))


class Asking(torch.nn.Module):
    def forward(self, x):
        if x.shape[2] * 2 == 74:
            return -x
        return x


class Compiling(torch.nn.Module):
    def forward(self, x):
        return -x if not is_compiling() and x.shape[2] == 37 else x


class Text(torch.nn.Module):
    def forward(self, x):
        return -x if "37" in f"{x.shape[2]}" else x


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.mean() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


def _trials(module: torch.nn.Module) -> Trials:
    subject = prepare(module.eval(), (InputDecl("x", (1, 1, 16, 16)),), (), (torch.ones(1, 1, 16, 16),))
    return Trials(subject, plan_axes(subject.inputs, {"x": (None, None, "height", None)}, {}))


def _told(module: torch.nn.Module) -> tuple[Region | None, Regions]:
    trials = _trials(module)
    found = export_program(trials.subject, trials.axes, RULES, {"height": 16}, 60.0)
    assert isinstance(found, Validated)
    return found.region, Regions(trials, RULES, traced=found.region)


def test_a_module_that_asks_nothing_runs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    region, regions = _told(Plain())
    assert region is not None
    monkeypatch.setattr(Regions, "_run", lambda *_: pytest.fail("runs again"))
    assert regions.complete
    assert regions.of({"height": 37}) == 0


def test_a_question_parts_the_sizes_and_has_its_line() -> None:
    region, regions = _told(Asking())
    assert region is not None
    assert region.takes({"height": 16})
    guard = region.parting({"height": 37})
    assert guard is not None
    assert guard.blame is not None
    assert guard.blame.code == "if x.shape[2] * 2 == 74:"
    assert regions.complete
    assert (regions.of({"height": 16}), regions.of({"height": 37})) == (0, 1)


@pytest.mark.parametrize("module", [Compiling(), Text(), Inner()])
def test_what_else_python_reads_leaves_the_region_untold(module: torch.nn.Module) -> None:
    assert _told(module)[0] is None


def test_a_branch_outside_of_an_export_is_found_by_another_run() -> None:
    regions = _told(Compiling())[1]
    assert regions.complete
    assert regions.of({"height": 37}) == 1


def test_what_was_replaced_is_as_before() -> None:
    code = torch.compiler.is_compiling.__code__
    _told(Plain())
    assert torch.compiler.is_compiling.__code__ is code


class Lenient(torch.nn.Module):
    """Reads that it is exported, and asks nothing of its sizes."""

    def forward(self, x):
        return torch.relu(x) if is_compiling() else torch.relu(x).clone()


def test_what_reads_the_flag_and_asks_nothing_runs_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    region, regions = _told(Lenient())
    assert region is None
    own, runs = Regions._run, []
    monkeypatch.setattr(Regions, "_run", lambda *arguments: runs.append(1) or own(*arguments))
    assert regions.complete
    assert regions.of({"height": 37}) == 0
    assert len(runs) == 1


class Keyed(torch.nn.Module):
    def forward(self, x):
        return {True: -x, False: x}[bool({24: 1, 31: 1}.get(x.shape[2], 0))]


@pytest.mark.parametrize(("module", "odd"), [(Keyed(), 31), (Text(), 37)])
def test_sizes_that_are_keys_or_text_are_questions_of_their_lines(module: torch.nn.Module, odd: int) -> None:
    regions = Regions(_trials(module), RULES)
    assert regions.is_examples({"height": 16})
    assert not regions.is_examples({"height": odd})
    blame = regions.blame({"height": odd})
    assert blame is not None
    assert blame.file.endswith("test_export_asked.py")
