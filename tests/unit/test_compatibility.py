"""docs/compatibility.md is what its generator writes, as far as that can be told without a TensorRT."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from support.paths import ROOT

HINT = "run `python bench/compatibility.py`"


@pytest.fixture(scope="module")
def compatibility() -> Iterator[ModuleType]:
    """The generator; it and its neighbours import each other as scripts do."""
    pytest.importorskip("onnxruntime")
    path, modules = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "gpu")]
    import compatibility

    yield compatibility
    sys.path[:] = path
    for name in ("compatibility", "cases", "judge", "trt86", "nets"):
        if name not in modules:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def document(compatibility: Any) -> str:
    return str(compatibility.DOCUMENT.read_text(encoding="utf-8"))


def cells(document: str, start: str) -> list[str]:
    """Returns the verdicts of the row that starts so."""
    lines = [line for line in document.splitlines() if line.startswith(start)]
    assert len(lines) == 1, f"{HINT}: no row, or several, for {start}"
    return [cell.strip() for cell in lines[0].removeprefix(start).rstrip("|").split(" | ")]


def test_every_case_has_its_row_and_there_are_no_others(compatibility: Any, document: str) -> None:
    rows = [line for line in document.splitlines() if "`) | " in line]
    starts = [compatibility.row_start(case) for case in compatibility.cases().values()]
    assert len(rows) == len(starts), HINT
    assert all(row.startswith(start) for row, start in zip(rows, starts, strict=True)), HINT


def test_every_table_has_the_columns(compatibility: Any, document: str) -> None:
    heading = f"| {' | '.join(compatibility.COLUMNS)} |"
    assert document.count(heading) == len(compatibility.SECTIONS), HINT


def test_the_gpu_column_is_that_of_the_results(compatibility: Any, document: str) -> None:
    assert compatibility.sources() in document, HINT
    ran = {row["name"]: row for row in compatibility.results()["cases"]}
    for name, case in compatibility.cases().items():
        found = cells(document, compatibility.row_start(case))[0]
        assert found == compatibility.cell_of_run(ran.get(name)), f"{name}: {HINT}"


def test_the_columns_by_rule_are_what_the_rules_say(compatibility: Any, document: str) -> None:
    for case in compatibility.cases().values():
        _, _, ten, eleven = cells(document, compatibility.row_start(case))
        assert ten == compatibility.cell_by_rule(case, "tensorrt-10"), f"{case.name}: {HINT}"
        assert eleven == compatibility.cell_by_rule(case, "tensorrt-11"), f"{case.name}: {HINT}"


def test_nothing_that_the_passes_may_mend_is_left_wrong(compatibility: Any, document: str) -> None:
    for case in compatibility.cases().values():
        for column, cell in zip(compatibility.COLUMNS[1:], cells(document, compatibility.row_start(case)), strict=True):
            if cell == "not run" or column == compatibility.COLUMNS[1]:
                continue
            end = cell.rpartition(compatibility.ARROW)[2]
            assert end == "ok" or end == f"refused by trtconv, {case.refused_by}", f"{case.name} on {column}: {cell}"
