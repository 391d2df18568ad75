"""The rows of suite.py, counted and as the table that is printed."""

from __future__ import annotations

import statistics
from typing import Any

Row = dict[str, Any]


def summary(rows: list[Row]) -> Row:
    """Returns counts, and the ratios of the fastest way to run: CUDA graphs without copies."""
    ratios = {f"{r['network']} {r['precision']}": case_ratio(r) for r in rows}
    best = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    return {
        "cases": len(rows),
        "built": sum(r["build"]["code"] == 0 for r in rows),
        "verified": sum(bool(r["verify"]["verified"]) and r["verify"].get("ran") == "engine" for r in rows),
        "timed": sum(bool(r.get("latency")) for r in rows),
        "raw_refused": [f"{r['network']} {r['precision']}" for r in rows if r["raw_build"]["code"]],
        "raw_not_verified": [
            f"{r['network']} {r['precision']}" for r in rows if r["raw_verify"] and not r["raw_verify"]["verified"]
        ],
        "ratios": best,
        "median_ratio": round(statistics.median(best.values()), 4) if best else None,
    }


def case_ratio(row: Row) -> float | None:
    """Returns the median over the sizes of trtconv's time over the raw engine's."""
    found = [r["ratio"] for r in row.get("ratios", ()) if r["graph"] and not r["copies"]]
    found = found or [r["ratio"] for r in row.get("ratios", ()) if not r["copies"]]
    return round(statistics.median(found), 4) if found else None


def table(rows: list[Row]) -> str:
    """Returns the table that is printed."""
    lines = [
        ("network", "precision", "built", "raw", "verified", "max rel", "raw max rel", "us at opt", "raw us", "ratio")
    ]
    for row in rows:
        us = {
            each["engine"]: each["median_us"]
            for each in row.get("latency", ())
            if each["size"] in ("opt", "min") and each["graph"] and not each["copies"]
        }
        ratio = case_ratio(row)
        lines.append(
            (
                row["network"],
                row["precision"],
                f"{row['build']['wall']} s" if row["build"]["code"] == 0 else "FAILED",
                f"{row['raw_build']['wall']} s" if row["raw_build"]["code"] == 0 else "refused",
                "yes" if row["verify"]["verified"] else "NO",
                error_text(row["verify"]),
                error_text(row["raw_verify"]),
                str(us.get("trtconv", "-")),
                str(us.get("raw", "-")),
                "-" if ratio is None else f"{ratio:.3f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def error_text(verified: Row | None) -> str:
    worst = (verified or {}).get("worst")
    return "-" if not worst else f"{float(worst['max_rel']):.1e}"
