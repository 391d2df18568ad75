"""What each TensorRT-RTX makes of models/ and of ONNX's node tests, beside the newest: `trtconv upgrade` over versions.

    for v in 1.4 1.5 1.6; do python -m venv rtx-$v && rtx-$v/bin/pip install . "tensorrt-rtx==$v.*"; done
    python bench/upgrade.py rtx-1.4 rtx-1.5 rtx-1.6        # about 10 minutes, no GPU

The newest is the one that this Python has. Of the node tests of an operator four are taken, spread over its list; those
that the parsers of two versions treat alike are not proven a second time, since the same network has the same numbers.
Findings of rules stop nothing, so that the proof has its say on what advisories tell. Writes
bench/results/upgrade-rtx.json and the table in docs/upgrading.md.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trtconv.core.codes import PARSED_OTHERWISE  # noqa: E402
from trtconv.core.dims import Range  # noqa: E402
from trtconv.core.documents.upgrade import BuildTrial, Effect, ModelUpgrade  # noqa: E402
from trtconv.core.requests.build import BuildRequest  # noqa: E402
from trtconv.pipeline.upgrading.environments import Environment, interpreter_of  # noqa: E402
from trtconv.pipeline.upgrading.judging import Allowance, judged  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "upgrade-rtx.json"
DOCUMENT = ROOT / "docs" / "upgrading.md"
MARKS = ("<!-- versions: begin -->", "<!-- versions: end -->")
ALLOWED = Allowance(0.05)
SECONDS = 120.0
TESTS_EACH = 4
SHOWN = 10
ONE = Range(1, 1, 1)
IMAGE = {"batch": ONE, "height": Range(64, 128, 256), "width": Range(64, 128, 256)}
MODELS: Mapping[str, Mapping[str, Range]] = {
    "gan_generator": {"batch": ONE},
    "quantized_autoencoder": IMAGE,
    "super_resolution": IMAGE,
    "unet": IMAGE,
    "unet3d": {"batch": ONE, "depth": Range(8, 16, 16), "height": Range(16, 32, 32), "width": Range(16, 32, 32)},
    "vocoder": {"batch": ONE, "frames": Range(16, 64, 256)},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("environments", nargs="+", type=Path, help="with older versions")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.monotonic()
    with contextlib.ExitStack() as ends, tempfile.TemporaryDirectory() as folder:
        places = [interpreter_of(each) for each in arguments.environments]
        sides = [ends.enter_context(Environment(place, None, SECONDS)) for place in (*places, None)]
        versions = [side.identity().version for side in sides]
        rows = {version: [] for version in versions[:-1]}  # type: dict[str, list[ModelUpgrade]]
        for name, build, proven in builds(Path(folder)):
            for version, row in zip(versions, compared(name, build, sides, always=proven), strict=False):
                rows[version].append(row)
            print(name, *(each[-1].change.value for each in rows.values()), flush=True)
    document = {
        "newest": versions[-1],
        "seconds": round(time.monotonic() - started),
        "models": {version: [kept(row) for row in found] for version, found in rows.items()},
    }
    RESULTS.write_text(json.dumps(document) + "\n", encoding="utf-8")
    write_table(document)


def builds(folder: Path) -> Iterator[tuple[str, BuildRequest, bool]]:
    """Yields name and build of each model, and whether all versions prove it."""
    for name, dims in MODELS.items():
        yield f"models/{name}.onnx", BuildRequest(model=ROOT / "models" / f"{name}.onnx", dims=dims), True
    for name, model in node_tests():
        path = folder / f"{name}.onnx"
        onnx.save(model, path)
        yield name, BuildRequest(model=path, fail_on=None), False


def node_tests() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yields some of the tests of each operator."""
    from onnx.backend.test.case.node import collect_testcases

    by_operator: dict[str, list[Any]] = collections.defaultdict(list)
    for case in collect_testcases(None):
        if "_expanded" not in case.name:
            by_operator[case.model.graph.node[0].op_type].append(case)
    for cases in by_operator.values():
        step = max(1, len(cases) // TESTS_EACH)
        yield from ((case.name, case.model) for case in cases[::step][:TESTS_EACH])


def compared(name: str, build: BuildRequest, sides: Sequence[Environment], *, always: bool) -> list[ModelUpgrade]:
    """Returns what the last side means for a model beside each of the others."""
    level = build.prove if always else "none"
    *older, newest = [side.attempt(dataclasses.replace(build, prove=level)) for side in sides]
    if always or all(alike(each, newest) for each in older):
        return [judged(name, each, newest, ALLOWED) for each in older]
    newest = sides[-1].attempt(build)
    return [
        judged(name, side.attempt(build) if not alike(each, newest) else newest, newest, ALLOWED)
        for side, each in zip(sides, older, strict=False)
    ]


def alike(one: BuildTrial, other: BuildTrial) -> bool:
    """Whether two versions made the same of a model, as far as nothing is proven."""
    row = judged("", one, other, ALLOWED)
    return not row.layers and one.fate.good == other.fate.good and (one.fate.good or one.fate is other.fate)


def kept(row: ModelUpgrade) -> dict[str, Any]:
    """Returns what the results have of a model."""
    document = row.to_json()
    if row.change is Effect.SAME:
        return {"model": row.model, "change": row.change.value, "fate": row.after.fate.value}
    return {key: document[key] for key in ("model", "change", "before", "after", "findings")}


def write_table(document: Mapping[str, Any]) -> None:
    """Writes what is otherwise into the page: a row for the models of which all versions tell the same."""
    versions: Mapping[str, Any] = document["models"]
    groups: dict[tuple[str, ...], list[str]] = collections.defaultdict(list)
    for rows in zip(*versions.values(), strict=True):
        what = next((found for row in rows if (found := otherwise(row))), "")
        cells = (*map(summary, rows), what)
        groups[cells].append(rows[0]["model"].removeprefix("test_"))
    lines = [f"| beside {document['newest']} | {' | '.join(versions)} | parsed otherwise |", f"|{'---|' * 5}"]
    for cells, names in sorted(groups.items(), key=lambda each: (-len(each[1]), each)):
        shown = ", ".join(names) if len(names) <= SHOWN else f"{len(names)} models"
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    DOCUMENT.write_text("\n".join([before + MARKS[0], *lines, MARKS[1] + after]), encoding="utf-8")


def summary(row: Mapping[str, Any]) -> str:
    """Returns in words what became of a model."""
    if row["change"] == Effect.SAME.value:
        return "same"
    fates = dict.fromkeys(row[side]["fate"] for side in ("before", "after"))
    return " -> ".join(fates)


def otherwise(row: Mapping[str, Any]) -> str:
    """Returns the first layer that is parsed otherwise, without its sizes."""
    told = [each["message"] for each in row.get("findings", ()) if each["code"] == PARSED_OTHERWISE.code]
    text = told[0].partition(": ")[2].partition("; ")[0] if told else ""
    return re.sub(r" \[[-\d, ]*\]", "", text)


if __name__ == "__main__":
    main()
