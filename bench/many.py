"""Twenty models of a configuration: two processes against one, without the proof, which takes two by itself."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measuring import ROOT, TRTCONV, Comparison, in_turns, median, process_seconds

ROUNDS = 3
MODELS = 20
SIZES = 'dims = { batch = "1:1:4", height = "64:128:512", width = "64:128:512" }'


def measure() -> Iterator[Comparison]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = ['prove = "none"', 'targets = ["rtx"]']
        for number in range(MODELS):
            shutil.copy(ROOT / "models" / "unet.onnx", folder / f"m{number}.onnx")
            lines += ["[[models]]", f'path = "m{number}.onnx"', SIZES, "thorough = true"]
        config = folder / "trtconv.toml"
        config.write_text("\n".join(lines) + "\n")
        command = [TRTCONV, "check", "--config", str(config), "-q", "--jobs"]
        costs = in_turns({jobs: process_seconds([*command, jobs]) for jobs in ("2", "1")}, ROUNDS)
    name = f"trtconv check --thorough of {MODELS} U-Nets, --jobs 2 / --jobs 1"
    yield Comparison(name, median(costs["2"]), median(costs["1"]), "s", 1 / 1.7, f"median of {ROUNDS}")
