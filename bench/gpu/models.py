"""Every model of a folder through `trtconv build` and `trtconv verify` on a real GPU.

    python bench/gpu/models.py FOLDER [--out FOLDER] [--jobs 14] [--minutes 8] [--family tensorrt|rtx]

Each is built with the quick proof, and its engine run against the model. Writes FOLDER/gpu-models-8.6.json (of RTX:
models-rtx.json; default: bench/results) and prints a line each. The results there are of exports of small networks of
transformers and, gpu-models-h200-8.6.json and gpu-models-more-8.6.json, of monai, spandrel and others too, by both of
torch's exporters.
Exit status: 0 what was proven is right where it was run; 1 some is not.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trtconv.cli.versions import versions  # noqa: E402
from trtconv.runtimes.tensorrt.gpu import gpu_name  # noqa: E402

Row = dict[str, Any]
SECONDS = 240
COMMAND = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); from trtconv.cli import run; run()"]


def main() -> int:
    """Builds and runs all models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--family", default="tensorrt")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.minutes * 60
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        models = sorted(arguments.folder.glob("*.onnx"), key=lambda path: -path.stat().st_size)
        rows = list(pool.map(lambda path: _row(path, arguments.family, end), models))
    for row in rows:
        print(*row.values(), sep="  ")
    wrong = [row["model"] for row in rows if row["proof"] == "proven" and row["verify"] not in (0, 4, "time", None)]
    document = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "gpu": gpu_name(),
        "versions": versions(),
        "wrong": wrong,
        "rows": rows,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / ("gpu-models-8.6.json" if arguments.family == "tensorrt" else "models-rtx.json")).write_text(
        json.dumps(document, indent=1) + "\n", encoding="utf-8"
    )
    print(f"{len(rows)} models, {sum(row['verify'] == 0 for row in rows)} verified, wrong: {wrong or 'none'}")
    return 1 if wrong else 0


def _row(model: Path, family: str, end: float) -> Row:
    row: Row = {
        "model": model.stem,
        "build": None,
        "proof": "",
        "pieces": "",
        "verify": None,
        "ran": None,
        "error": None,
        "why": "",
    }
    if time.monotonic() > end:
        return {**row, "why": "no time left"}
    with tempfile.TemporaryDirectory() as name:
        engine = Path(name, "m.engine")
        build = _called("build", str(model), "--target", family, "-o", str(engine), "--format", "json", "-q")
        row["build"] = build["exit_code"]
        if proof := build.get("proof"):
            pieces = proof["pieces"]
            shown = "in part" if proof["missing"] else "proven"
            row["proof"] = {True: shown, False: "differs"}.get(proof["agrees"], "in part")
            row["pieces"] = f"{pieces['defined']} of {pieces['of']} by definition"
        if not engine.exists():
            findings = build.get("findings") or [{"message": build.get("why", "")}]
            return {**row, "why": findings[0]["message"][:160]}
        verify = _called("verify", str(model), str(engine), "--format", "json", "-q")
        row["verify"] = verify["exit_code"]
        row["ran"], row["error"] = verify.get("ran"), (verify.get("worst") or {}).get("max_rel")
    return row


def _called(*words: str) -> Row:
    try:
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=SECONDS)
        document = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"exit_code": "time", "why": f"longer than {SECONDS} s"}
    except ValueError:
        return {"exit_code": done.returncode, "why": done.stderr.strip()[-160:]}
    return {**document, "exit_code": done.returncode}


if __name__ == "__main__":
    raise SystemExit(main())
