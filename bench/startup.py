"""`trtconv --help` and `--version` against `import click` alone: whole processes."""

from __future__ import annotations

from collections.abc import Iterator

from measuring import PYTHON, TRTCONV, Comparison, in_turns, median, process_seconds

ROUNDS = 31


def measure() -> Iterator[Comparison]:
    costs = in_turns(
        {
            "click": process_seconds([PYTHON, "-c", "import click"]),
            "--help": process_seconds([TRTCONV, "--help"]),
            "--version": process_seconds([TRTCONV, "--version"]),
        },
        ROUNDS,
    )
    for flag in ("--help", "--version"):
        name = f"trtconv {flag} / python -c 'import click'"
        yield Comparison(name, median(costs[flag]), median(costs["click"]), "s", 1.5, f"median of {ROUNDS}")
