"""Peak memory of `trtconv build` on 1.5 GB of external data against a script that only parses and builds."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator

from measuring import PYTHON, ROOT, TRTCONV, Comparison, in_turns, process_megabytes

ROUNDS = 2
MEGABYTES = 1500


def measure() -> Iterator[Comparison]:
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/heavy.onnx"
        # In a process of its own: a child's peak cannot be below what its parent held when it started.
        subprocess.run([PYTHON, str(ROOT / "bench" / "networks.py"), "heavy", str(MEGABYTES), model], check=True)
        bare = [PYTHON, str(ROOT / "bench" / "bare.py"), "build", model, f"{folder}/bare.engine"]
        ours = [TRTCONV, "build", model, "--target", "rtx", "--force", "-o", f"{folder}/ours.engine"]
        costs = in_turns({"trtconv": process_megabytes(ours), "bare": process_megabytes(bare)}, ROUNDS)
    name = "peak memory, trtconv build / parse and build, 1.5 GB external data"
    yield Comparison(name, max(costs["trtconv"]), max(costs["bare"]), "MB", 1.2, f"maximum of {ROUNDS}")
