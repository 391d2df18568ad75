"""What the page of a folder shows: its models, and what became of each for every target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trtconv.cli.formats.page.gather import PageSubject
from trtconv.cli.formats.page.views import summarized


def matrix(subjects: Sequence[PageSubject]) -> dict[str, Any]:
    """Returns models by rows and targets by columns, and the engines one by one."""
    engines = [{**summarized(each), "number": number, "report": each.path.name} for number, each in enumerate(subjects)]
    columns = list(dict.fromkeys(map(_column, engines)))
    rows = list(dict.fromkeys(engine["model"] for engine in engines))
    cells = {
        row: [[e for e in engines if e["model"] == row and _column(e) == column] for column in columns] for row in rows
    }
    built = sum(engine["verdict"].kind == "ok" for engine in engines)
    proven = sum(engine["proof"].kind == "ok" for engine in engines)
    return {"columns": columns, "rows": cells, "engines": engines, "built": built, "proven": proven}


def _column(engine: dict[str, Any]) -> tuple[str, str, str]:
    return engine["target"], engine["precision"], engine["runtime"].gpu or ""
