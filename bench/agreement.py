"""Does `trtconv check` say what `trtconv build` does? Over ONNX's backend node tests and models/, in four counts.

    python bench/agreement.py [--only TEXT] [--jobs N]

Check and build get the same arguments. They agree where both end with 0 or both do not; findings that check keeps as
errors although build mends them (rules.STANDING) are told apart. Writes bench/results/agreement.json.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import functools
import json
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "bench" / "results" / "agreement.json"
MODELS = {
    "gan_generator": {},
    "quantized_autoencoder": {"batch": "1:1:4", "height": "64:64:128", "width": "64:64:128"},
    "super_resolution": {"batch": "1:1:4", "height": "32:64:64", "width": "32:64:64"},
    "unet": {"batch": "1:1:4", "height": "64:64:128", "width": "64:64:128"},
    "unet3d": {"batch": "1:1:2", "depth": "16:16:32", "height": "32:32:64", "width": "32:32:64"},
    "vocoder": {"batch": "1:1:4", "frames": "16:32:64"},
}


def verdicts(path: Path, dims: Mapping[str, str]) -> dict[str, Any]:
    """Returns the exit codes of check and build, and why where they differ."""
    from trtconv import pipeline
    from trtconv.core.dims import Range, dynamic_dims
    from trtconv.core.errors import TrtconvError
    from trtconv.core.requests.build import BuildRequest
    from trtconv.core.requests.check import CheckRequest
    from trtconv.core.target import Target
    from trtconv.graph.model import OnnxModel
    from trtconv.rules import STANDING

    target = Target("rtx")
    known = set(dynamic_dims(OnnxModel.load(path).inputs))
    given = {name: Range.parse(text) for name, text in dims.items()}
    bounds = {name: given.get(name, Range(2, 3, 4)) for name in known}
    codes: list[str] = []
    try:
        checked = pipeline.check(CheckRequest(path, bounds, target=target))
        codes = [f.code for f in checked.findings if f.severity.value == "error"]
        check = checked.exit_code
    except TrtconvError as error:
        check = error.exit_code
    why = ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            built = pipeline.build(BuildRequest(path, Path(folder) / "e.engine", bounds, target=target))
        build = built.exit_code
        why = next((f.message for f in built.findings if f.severity.value == "error"), "")
    except TrtconvError as error:
        build, why = error.exit_code, error.message
    standing = check == 1 and bool(codes) and STANDING.issuperset(codes)
    return {"name": path.stem, "check": check, "build": build, "codes": codes, "why": why[:200], "standing": standing}


def suite(folder: Path, only: str) -> list[Path]:
    """Writes the models of ONNX's backend node tests."""
    from onnx.backend.test.case.node import collect_testcases

    paths = []
    for case in collect_testcases():
        if case.model is not None and only in case.name:
            path = folder / f"{case.name}.onnx"
            path.write_bytes(case.model.SerializeToString())
            paths.append(path)
    return paths


def table(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Counts: agreed either way, and the two ways to be wrong."""
    counts: collections.Counter[str] = collections.Counter()
    for row in rows:
        passes, builds = row["check"] == 0, row["build"] == 0
        if row["standing"] and builds:
            counts["mended by build, kept as an error by check"] += 1
        else:
            counts[f"check {'ok' if passes else 'fails'}, build {'ok' if builds else 'fails'}"] += 1
    return dict(sorted(counts.items(), reverse=True))


def main() -> int:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="take tests with this in their name")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = suite(Path(folder), arguments.only)
        with concurrent.futures.ProcessPoolExecutor(arguments.jobs) as pool:
            rows = list(pool.map(functools.partial(verdicts, dims={}), paths, chunksize=16))
            own = [ROOT / "models" / f"{name}.onnx" for name in MODELS if arguments.only in name]
            mine = list(pool.map(verdicts, own, [MODELS[path.stem] for path in own]))
    wrong = [row for row in rows + mine if (row["check"] == 0) != (row["build"] == 0) and not row["standing"]]
    result = {"backend node tests": table(rows), "models/": table(mine), "disagreements": wrong}
    print(json.dumps(result, indent=2))
    if not arguments.only:
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
