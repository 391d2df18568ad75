"""Peak memory and time of `trtconv.export` on 2.3 GB of weights, beside torch.onnx.export(dynamo=True).

    python bench/export_memory.py [--layers 14] [--rounds 3] [-o bench/results/export_memory.json]

Each export runs in a process of its own, in turns; the peak is that of the process and all that it starts, whose
imports and module count; the time is that of the export alone. The middle of the rounds is taken. Ends with 1 beyond
1.3 times the memory or 2 times the time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from measuring import PYTHON, ROOT, process_megabytes

OUTPUT = ROOT / "bench" / "results" / "export_memory.json"
MEMORY, TIME = 1.3, 2.0
_WIDTH = 6400
_MODULE = """
import json, sys, time, warnings
from pathlib import Path
import onnx, onnxscript, torch
import trtconv
warnings.simplefilter("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)
layers, width, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
parts = [part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
module, example = torch.nn.Sequential(*parts).eval(), torch.randn(2, width)
wall, processor = time.perf_counter(), time.process_time()
"""
_WAYS = {
    "torch.onnx.export": """
torch.onnx.export(module, (example,), folder / "plain.onnx", dynamic_shapes=({0: torch.export.Dim.AUTO},), dynamo=True,
                  external_data=True, verbose=False)
""",
    "trtconv.export": """
report = trtconv.export(module, example, folder / "ours.onnx", {"input": ("batch", None)}, {"batch": (1, 64)})
assert not report.exit_code and len(report.proof.runs) > 1, report
""",
}
_END = """
spent = {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
(folder / "spent.json").write_text(json.dumps(spent))
"""


def measure(code: str, layers: int) -> dict[str, float]:
    """Exports once, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [PYTHON, "-c", _MODULE + code + _END, str(layers), str(_WIDTH), folder]
        megabytes = process_megabytes(command)()
        spent: dict[str, float] = json.loads((Path(folder) / "spent.json").read_text())
    return {"megabytes": megabytes, **spent}


def main() -> int:
    """Prints a row for each way, and how they compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="ways that contain this text")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    args = parser.parse_args()
    ways = {name: code for name, code in _WAYS.items() if args.only in name}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, code in ways.items():
            runs[name].append(measure(code, args.layers))
            print(f"{name:20}", {key: round(value, 1) for key, value in runs[name][-1].items()}, flush=True)
    middle = {
        name: {key: round(statistics.median(run[key] for run in own), 1) for key in own[0]}
        for name, own in runs.items()
    }
    if len(middle) < len(_WAYS):
        return 0
    plain, ours = middle.values()
    ratios = {key: round(ours[key] / plain[key], 2) for key in plain}
    print("ratio", ratios)
    weights = round(args.layers * (_WIDTH + 1) * _WIDTH * 4 / 1e6)
    document = {"weights_megabytes": weights, "rounds": args.rounds, **middle, "ratio": ratios}
    args.output.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if ratios["megabytes"] <= MEMORY and ratios["seconds"] <= TIME else 1


if __name__ == "__main__":
    sys.exit(main())
