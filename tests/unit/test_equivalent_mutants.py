"""The list of mutants that do what the code does names lines that there are."""

from __future__ import annotations

import sys

from support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_lines_of_the_list_stand_in_their_files() -> None:
    entries = tomllib.loads((ROOT / "tests/mutation/equivalent.toml").read_text("utf-8"))["mutant"]
    assert entries
    lines = {file: (ROOT / file).read_text("utf-8").splitlines() for file in {entry["file"] for entry in entries}}
    codes = {file: {line.strip() for line in read} for file, read in lines.items()}
    assert [entry for entry in entries if entry["before"] not in codes[entry["file"]]] == []
