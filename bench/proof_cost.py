"""What the proof costs: time and peak memory of building networks that people deploy, raw, without it and with it.

    python bench/proof_cost.py [--networks ResNet-50,EDSR] [--rounds 3]

Random weights, 512x512 (bench/cost_networks.py). Raw is a script of a few lines (bench/bare.py), the others are
`trtconv build --prove none` and `trtconv build` as it is. Times are medians, memory is the peak of all processes
together, in each round. Writes bench/results/proof-cost.json. The proof may take half of a build again, or 2 s, and 1.3
times the memory.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import onnx
from cost_networks import NETWORKS
from measuring import PYTHON, ROOT, TRTCONV, in_turns, median, process_megabytes, process_seconds

import trtconv

RESULTS = ROOT / "bench" / "results" / "proof-cost.json"
TIMES, SECONDS, MEMORY = 1.5, 2.0, 1.3


def measure(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Returns what builds of a network cost, and whether it was proven."""
    path, engine = folder / "m.onnx", folder / "m.engine"
    onnx.save_model(NETWORKS[name](), path)
    build = [TRTCONV, "build", str(path), "-o", str(engine), "--force"]
    commands = {
        "raw": [PYTHON, str(ROOT / "bench" / "bare.py"), "build", str(path), str(engine)],
        "without": [*build, "--prove", "none"],
        "with": build,
    }
    tasks = {key: process_seconds(command) for key, command in commands.items()}
    seconds = {key: round(median(found), 2) for key, found in in_turns(tasks, rounds).items()}
    held = {key: process_megabytes(command) for key, command in commands.items()}
    rounded = {key: [round(each) for each in found] for key, found in in_turns(held, rounds).items()}
    megabytes = {key: max(found) for key, found in rounded.items()}
    proof = trtconv.check(trtconv.CheckRequest(path)).proof
    assert proof is not None
    limit = max(TIMES * seconds["without"], seconds["without"] + SECONDS)
    return {
        "network": name,
        "seconds": seconds,
        "megabytes": megabytes,
        "rounds": rounded,
        "proven": proof.agrees is True and not proof.missing,
        "pieces": [proof.pieces.proven, proof.pieces.of],
        "good": seconds["with"] <= limit and megabytes["with"] <= MEMORY * megabytes["without"],
    }


def main() -> None:
    """Measures the networks one after the other."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--networks", default=",".join(NETWORKS), help="names, joined by commas")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--output", type=Path, default=RESULTS)
    options = arguments.parse_args()
    rows = []
    print("| network | raw s | without s | with s | raw MB | without MB | with MB | proven | good |")
    print("|---" * 9 + "|")
    for name in options.networks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            row = measure(name, Path(folder), options.rounds)
        rows.append(row)
        cells = [name, *row["seconds"].values(), *row["megabytes"].values(), row["proven"], row["good"]]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    options.output.write_text(json.dumps({"rounds": options.rounds, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
