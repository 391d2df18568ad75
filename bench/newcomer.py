"""What a newcomer meets: a fresh environment, the wheel, and five models of public packages, to engines and pages.

It knows of each model nothing but the file. `trtconv build MODEL` is called first; where dimensions lack bounds, the
example that the message proposes is copied, once. Commands and minutes are counted, those of pip as well, and written
to bench/results/newcomer.json. Needs a package index, and no GPU.

    python bench/newcomer.py
"""

from __future__ import annotations

import json
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "newcomer.json"
MODELS = {
    "rapidocr_onnxruntime==1.4.4": (
        "ch_PP-OCRv4_det_infer.onnx",
        "ch_PP-OCRv4_rec_infer.onnx",
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    ),
    "nudenet==3.4.2": ("320n.onnx",),
    "magika==1.0.3": ("model.onnx",),
}
"""A package whose wheel has models, to those that are taken."""
_EXAMPLE = re.compile(r"for example ((?:--dim (?:'[^']*'|\S+) ?)+)")


class Newcomer:
    """Calls commands, and keeps count.

    Args:
        folder: Where everything goes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[dict[str, Any]] = []

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command as it would be typed."""
        started = time.monotonic()
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        seconds = round(time.monotonic() - started, 1)
        said = shlex.join(words).replace(str(self.folder), ".").replace(sys.executable, "python")
        self.commands.append({"command": said, "exit_code": done.returncode, "seconds": seconds})
        sys.stdout.write(f"{seconds:7.1f} s  {done.returncode}  {said}\n")
        return done

    def engine_of(self, trtconv: str, model: str) -> dict[str, Any]:
        """Builds an engine and its page of a model; returns what came of it."""
        first = len(self.commands)
        stem = Path(model).stem
        engine, page = f"{stem}.engine", f"{stem}.html"
        done = self.call(trtconv, "build", model, "--page", page)
        proposed = _EXAMPLE.search(done.stderr)
        if done.returncode == 2 and proposed:
            done = self.call(trtconv, "build", model, *shlex.split(proposed[1]), "--page", page)
        if done.returncode:
            sys.stdout.write(done.stdout + done.stderr)
            return {"model": model, "built": False, "said": done.stderr or done.stdout}
        report = json.loads((self.folder / f"{engine}.json").read_text(encoding="utf-8"))
        return {
            "model": model,
            "built": True,
            "commands": len(self.commands) - first,
            "seconds": round(sum(each["seconds"] for each in self.commands[first:]), 1),
            "proof": {key: report["proof"][key] for key in ("agrees", "layers", "sizes", "max_relative_error")},
            "engine_bytes": report["engine"]["bytes"],
            "page_bytes": (self.folder / page).stat().st_size,
        }


def play(folder: Path) -> dict[str, Any]:
    """Plays the newcomer in an empty folder; returns what there is to report."""
    wheels = folder / "wheels"
    for package in MODELS:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), package]
        subprocess.run(pip, check=True)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if Path(name).name in {model for models in MODELS.values() for model in models}:
                    (folder / Path(name).name).write_bytes(archive.read(name))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(pip, check=True)
    (ours,) = folder.glob("trtconv-*.whl")
    newcomer = Newcomer(folder)
    newcomer.call(sys.executable, "-m", "venv", "env")
    installed = newcomer.call(str(folder / "env/bin/pip"), "install", "--quiet", ours.name)
    installed.check_returncode()
    trtconv = str(folder / "env/bin/trtconv")
    engines = [newcomer.engine_of(trtconv, model) for models in MODELS.values() for model in models]
    return {
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "minutes": round(sum(each["seconds"] for each in newcomer.commands) / 60, 1),
        "commands": newcomer.commands,
        "engines": engines,
    }


def main() -> int:
    """Writes the results; returns 1 where a model became no engine with a page of at most 300 kB."""
    with tempfile.TemporaryDirectory() as folder:
        found = play(Path(folder))
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    good = [each for each in found["engines"] if each["built"] and each["page_bytes"] <= 300_000]
    sys.stdout.write(
        f"{len(good)} of {len(found['engines'])} models to engines and pages:"
        f" {len(found['commands'])} commands, {found['minutes']} minutes\n"
    )
    return 0 if len(good) == len(found["engines"]) else 1


if __name__ == "__main__":
    sys.exit(main())
