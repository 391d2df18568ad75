"""What the page of a folder shows: its models, and what became of each for every target."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.cli.formats.page.gather import FailedEngine, PageSubject
from trtconv.cli.formats.page.views import is_proven, model_name, summarized, verdict


def matrix(subjects: Sequence[PageSubject], failures: Sequence[FailedEngine]) -> dict[str, object]:
    """Returns models by rows and targets by columns, the engines one by one, and the builds that failed."""
    engines = [
        {**summarized(subject), "number": number, "report": subject.path.name}
        for number, subject in enumerate(subjects)
    ]
    places = [(model_name(subject), _column(subject)) for subject in subjects]
    columns = list(dict.fromkeys(column for _, column in places))
    cells = {
        row: [[engine for engine, at in zip(engines, places, strict=True) if at == (row, column)] for column in columns]
        for row, _ in places
    }
    good = sum(verdict(subject.report).kind == "ok" for subject in subjects)
    proven = sum(map(is_proven, subjects))
    failed = {
        row: [failure for failure in failures if failure.model == row] for row in (*cells, *(f.model for f in failures))
    }
    return {
        "columns": columns,
        "rows": {**cells, **{row: [[] for _ in columns] for row in failed if row not in cells}},
        "failed": failed,
        "failures": failures,
        "engines": engines,
        "built": good,
        "proven": proven,
    }


def _column(subject: PageSubject) -> tuple[str, str, str]:
    plan = subject.report.plan
    return str(plan.target), plan.precision, subject.report.runtime.gpu or ""
