"""Every model of a folder through trtconv's `build` and `verify` on a real GPU.

    python bench/gpu/models.py FOLDER [--out FOLDER] [--jobs 14] [--minutes 8] [--seconds 240] [--family tensorrt|rtx]

Each is built with the quick proof, at the bounds that trtconv proposes where it wants some, and its engine run against
the model; the smallest come first. A few processes take many models each (a start of TensorRT 8.6 takes 9 s). What is
done is kept in OUT/models-FAMILY.jsonl, so that a call that ran out of time goes on where it stopped; each call writes
OUT/gpu-models-8.6.json anew (of RTX: models-rtx.json; default: bench/results) and prints a line each. The results there
are of exports of small networks of transformers and, gpu-models-h200-8.6.json, gpu-models-more-8.6.json and
gpu-models-unseen-8.6.json, of torchvision, diffusers, monai and others too, by both of torch's exporters.
Exit status: 0 what was proven is right where it was run; 1 some is not.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(HERE)]

from children import Row, serve, work_off  # noqa: E402
from measuring import kept_rows  # noqa: E402

import trtconv  # noqa: E402
from trtconv.cli.versions import versions  # noqa: E402
from trtconv.core.target import Target  # noqa: E402
from trtconv.runtimes.tensorrt.gpu import gpu_name  # noqa: E402

TEXT = 160
_BOUNDS = re.compile(r"--dim '?([^ '=]+)=(\d+:\d+:\d+)")
_NEW: Row = {"build": None, "proof": "", "pieces": "", "verify": None, "ran": None, "error": None, "why": ""}


def main() -> int:
    """Builds and runs all models; returns the exit status."""
    arguments = _arguments()
    if arguments.worker:
        return serve(lambda: lambda task: _row(Path(task["path"]), arguments.family))
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = arguments.out / f"models-{arguments.family}.jsonl"
    rows = kept_rows(kept, "model")
    models = sorted(arguments.folder.glob("*.onnx"), key=lambda path: path.stat().st_size)
    left = [{"model": path.stem, "path": str(path)} for path in models if (path.stem,) not in rows]
    print(f"{len(models)} models, {len(left)} to do", file=sys.stderr)
    command = [sys.executable, __file__, str(arguments.folder), "--worker", "--family", arguments.family]
    limits = {"jobs": arguments.jobs, "seconds": arguments.seconds, "minutes": arguments.minutes}
    return _write([*rows.values(), *work_off(command, left, kept, _told, **limits)], arguments.out, arguments.family)


def _told(task: Row, answer: Row) -> Row:
    """Returns the row of a model, whatever came of it."""
    if "failed" in answer:
        answer = {**_NEW, "build": answer["how"], "why": answer["failed"][:TEXT]}
    return {"model": task["model"], **answer}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--seconds", type=float, default=240.0, help="what one model may take")
    parser.add_argument("--family", choices=("tensorrt", "rtx"), default="tensorrt")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _write(rows: list[Row], out: Path, family: str) -> int:
    """Writes the result, prints a line each; returns the exit status."""
    for row in rows:
        print(*row.values(), sep="  ")
    wrong = [row["model"] for row in rows if row["proof"] == "proven" and row["verify"] not in (0, 4, None)]
    # Whose process died or hung, in its build or behind it.
    lost = [row["model"] for row in rows if isinstance(row["build"], str)]
    document = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "gpu": gpu_name(),
        "versions": versions(),
        "wrong": wrong,
        "lost": lost,
        "rows": sorted(rows, key=lambda row: str(row["model"])),
    }
    name = "gpu-models-8.6.json" if family == "tensorrt" else "models-rtx.json"
    (out / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    verified = sum(row["verify"] == 0 for row in rows)
    print(f"{len(rows)} models, {verified} verified, wrong: {wrong or 'none'}, lost: {lost or 'none'}")
    return 1 if wrong else 0


def _row(model: Path, family: str) -> Row:
    """Builds a model and runs its engine."""
    row, started = dict(_NEW), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        engine = Path(name, "m.engine")
        try:
            report = _built(trtconv.BuildRequest(model, engine=engine, target=Target(family))).to_json()
            row["build"] = report["exit_code"]
            row |= _proof(report["proof"])
            if not engine.exists():
                errors = (each for each in report["findings"] if each["severity"] == "error")
                return {**row, "why": next(map(_reason, errors), "")}
            row["built_s"] = round(time.monotonic() - started, 1)
            verified = trtconv.verify(trtconv.VerifyRequest(model, engine)).to_json()
        except trtconv.TrtconvError as error:
            stage = "build" if row["build"] is None else "verify"
            return {**row, stage: error.exit_code, "why": error.message[:TEXT]}
    worst = (verified.get("worst") or {}).get("max_rel")
    return {**row, "verify": verified["exit_code"], "ran": verified.get("ran"), "error": worst}


def _reason(finding: Row) -> str:
    """Returns what a finding says, at which node."""
    place = finding["location"]
    return f"{place['op']} {place['node']}: {finding['message']}"[:TEXT]


def _built(request: trtconv.BuildRequest) -> trtconv.BuildReport:
    """Builds; at the bounds that are proposed, where some are missing."""
    try:
        return trtconv.build(request)
    except trtconv.TrtconvError as error:
        bounds = dict(_BOUNDS.findall(error.hint.rpartition("for example")[2]))
        if not bounds:
            raise
        return trtconv.build(
            trtconv.BuildRequest(request.model, engine=request.engine, target=request.target, dims=bounds)
        )


def _proof(proof: Row | None) -> Row:
    """Returns what a report says of the proof."""
    if not proof:
        return {}
    whole = "in part" if proof["missing"] else "proven"
    pieces = f"{proof['pieces']['defined']} of {proof['pieces']['of']} by definition"
    return {"proof": {True: whole, False: "differs"}.get(proof["agrees"], "in part"), "pieces": pieces}


if __name__ == "__main__":
    raise SystemExit(main())
