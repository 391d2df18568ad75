"""Writes docs/compatibility.md: every way to spell a transposed convolution, on every TensorRT, raw and rewritten.

    python bench/compatibility.py            # about half a minute, no GPU; needs tensorrt-rtx

The verdicts for TensorRT-RTX are made here and now; those for TensorRT 8.6 are read from the results of
bench/gpu/deconv.py; those for TensorRT 10 and 11 are what trtconv's rules say.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "gpu")]

from cases import Case, all_cases  # noqa: E402
from judge import Bench, Row, error_codes, rewrite  # noqa: E402

DOCUMENT = ROOT / "docs" / "compatibility.md"
RESULTS = ROOT / "bench" / "results" / "gpu-deconv-8.6.json"
COLUMNS = ("Case", "TensorRT 8.6", "TensorRT-RTX 1.7", "TensorRT 10", "TensorRT 11")
SECTIONS = {"parser": "Float", "quantized": "Q/DQ"}
SAME_MODEL = ("dilation-2-kernel",)
"""Cases that are another rewrite of the model of another case; here each column has its own rewrite anyway."""
ARROW = " → "

_INTRODUCTION = """\
# What each TensorRT makes of a transposed convolution

Written by `python bench/compatibility.py`; do not edit.

Each cell says what becomes of the model as it is, then, behind the arrow, of what trtconv's passes make of it for that
version. One verdict alone: the passes leave the model as it is.

| verdict | meaning |
|---|---|
| ok | right: TensorRT 8.6 ran it, within 1e-5 (float32) or 1e-2 (int8) of ONNX Runtime; TensorRT-RTX accepted and built it, and the parsed network is what the model says; for 10 and 11 no rule objects |
| wrong numbers, wrong shape | it builds and runs and returns something else, without a message |
| refused by parser, by builder | TensorRT itself says no |
| refused by trtconv | the model makes no sense, and trtconv says so before TensorRT sees it |
| audit refuses | TensorRT accepts it, and trtconv's audit finds that the network is not what the model says |
| TCnnn | by rule: `trtconv rule TCnnn` says what is wrong; TensorRT may accept it |
| not run | the results have no such row |

"""  # noqa: E501


def main() -> None:
    document = render(cases(), columns())
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document, encoding="utf-8")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


def cases() -> dict[str, Case]:
    """Returns the rows: single layers, by name."""
    every = all_cases()
    return {name: case for name, case in every.items() if case.section in SECTIONS and name not in SAME_MODEL}


def columns() -> dict[str, Callable[[Case], str]]:
    """Returns how the cells of each column are made."""
    bench = Bench("rtx")
    ran = {row["name"]: row for row in results()["cases"]}
    return {
        COLUMNS[1]: lambda case: cell_of_run(ran.get(case.name)),
        COLUMNS[2]: lambda case: cell_of_build(bench.examine(dataclasses.replace(case, target="rtx"))),
        COLUMNS[3]: lambda case: cell_by_rule(case, "tensorrt-10"),
        COLUMNS[4]: lambda case: cell_by_rule(case, "tensorrt-11"),
    }


def results() -> Row:
    """Returns the document of the GPU run, one without rows where there is none."""
    if not RESULTS.exists():
        return {"cases": []}
    document: Row = json.loads(RESULTS.read_text(encoding="utf-8"))
    return document


def render(rows: Mapping[str, Case], makers: Mapping[str, Callable[[Case], str]]) -> str:
    """Returns the document."""
    text = _INTRODUCTION + sources()
    for section, heading in SECTIONS.items():
        text += f"\n## {heading}\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
        for case in rows.values():
            if case.section == section:
                text += row_start(case) + " | ".join(maker(case) for maker in makers.values()) + " |\n"
    return text


def row_start(case: Case) -> str:
    """Returns a row up to its first verdict; the case's name finds it in the results and in `bench/gpu/cases.py`."""
    return f"| {case.title} (`{case.name}`) | "


def sources() -> str:
    """Says where the verdicts of each column come from."""
    ran = results()
    gpu = f"run on {ran['gpu']}, driver {ran['driver']}, {ran['date']}" if ran["cases"] else "not run yet"
    return (
        f"- TensorRT 8.6: {gpu} (`bench/gpu/deconv.py`).\n"
        "- TensorRT-RTX 1.7: parsed, audited and built without a GPU, not run.\n"
        "- TensorRT 10 and 11: by the rules of trtconv, neither built nor run.\n"
    )


def cell(raw: str, rewritten: str | None) -> str:
    """Returns a cell; `rewritten` is None where the passes change nothing."""
    return raw if rewritten is None else f"{raw}{ARROW}{rewritten}"


def cell_of_run(row: Row | None) -> str:
    """Returns the cell of a case that ran, or did not."""
    if row is None or "raw" not in row:
        return "not run" if row is None or "failure" not in row else str(row["failure"])
    if row.get("refused"):
        return refused(row["findings"])
    return cell(_ran(row["raw"]), _ran(row["rewritten"]) if row["edits"] else None)


def _ran(side: Mapping[str, Any]) -> str:
    verdict = str(side["verdict"])
    differs = isinstance(side["audit"], list) and bool(side["audit"])
    if verdict.startswith("wrong"):
        return verdict + (", audit refuses" if differs else "")
    return _refusal(verdict) or ("audit refuses" if differs else "ok")


def _refusal(verdict: str) -> str:
    words = {"parse error": "refused by parser", "build error": "refused by builder", "run error": "fails when run"}
    return words.get(verdict, "")


def refused(codes: list[str]) -> str:
    """Returns the verdict on a model that trtconv itself refuses."""
    return f"refused by trtconv, {', '.join(codes)}"


def cell_of_build(row: Row) -> str:
    """Returns the cell of a case that was built and not run."""
    if row.get("refused"):
        return refused(row["findings"])
    raw = _built(row["raw"], row["findings"])
    return cell(raw, _built(row["rewritten"], row["findings_after"]) if row["edits"] else None)


def _built(side: Mapping[str, Any], codes: list[str]) -> str:
    if side["verdict"] == "parse error":
        return _refusal("parse error")
    if side["audit"]:
        return "audit refuses"
    # Of the geometry (TC1xx) the audit has seen what the rules only expect.
    doubts = [code for code in codes if not code.startswith("TC1")]
    return _refusal(str(side["verdict"])) or ", ".join(doubts) or "ok"


def cell_by_rule(case: Case, target: str) -> str:
    """Returns what trtconv's rules say for a version that is not here."""
    original, rewritten, done = rewrite(case.make(), target, case.precision)
    raw, mended = error_codes(original, target), error_codes(rewritten, target)
    if case.refused_by in mended:
        return refused(mended)
    return cell(", ".join(raw) or "ok", ", ".join(mended) or "ok" if done.edits else None)


if __name__ == "__main__":
    main()
