"""What `trtconv export` costs beside torch.onnx.export alone, over models/.

    python bench/export.py [NAME...]

Each way runs in processes of its own, turn about, and the smallest of three is taken: processor time of the export
itself (import of torch left out of both, the proof and the check left out of ours and shown apart), and peak memory.
Needs torch and onnxscript. Ends with 1 where a limit is missed: 1.25 times the time in sum; memory at most one copy
of the weights more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.25
ROUNDS = 3
NAMES = ("unet", "unet3d", "super_resolution", "quantized_autoencoder", "vocoder", "gan_generator")

_SHARED = """
import importlib.util, json, os, resource, sys, tempfile, time, warnings
name, root = sys.argv[1], sys.argv[2]
sys.path.insert(0, root)
import torch, onnx, onnxscript
spec = importlib.util.spec_from_file_location(name, f"{root}/models/{name}.py")
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)
module = recipe.build()
axes = recipe.DYNAMIC_AXES[recipe.INPUT]
weights = sum(p.numel() * p.element_size() for p in module.state_dict().values())
warnings.simplefilter("ignore")
folder = tempfile.TemporaryDirectory()
path = f"{folder.name}/m.onnx"
example = torch.zeros(recipe.EXAMPLE)
started = time.process_time()
"""
_TORCH = """
if name == "quantized_autoencoder":  # only the tracing exporter can
    torch.onnx.export(module, (example,), path, input_names=[recipe.INPUT], dynamic_axes=recipe.DYNAMIC_AXES,
                      output_names=[recipe.OUTPUT], dynamo=False)
else:
    step = {"unet": 8, "super_resolution": 8, "unet3d": 4}.get(name, 1)
    dims = {axis: (1 if dim == "batch" else step) * torch.export.Dim(dim) for axis, dim in axes.items()}
    example = torch.zeros((4, *recipe.EXAMPLE[1:]))
    torch.onnx.export(module, (example,), path, input_names=[recipe.INPUT], output_names=[recipe.OUTPUT],
                      dynamic_shapes=(dims,), dynamo=True, verbose=False)
proof = 0.0
"""
_OURS = """
import trtconv
names = tuple(axes.get(a) for a in range(len(recipe.EXAMPLE)))
options = trtconv.ExportOptions(outputs=(recipe.OUTPUT,), check=False, proof=False)
trtconv.export(module, example, path, {recipe.INPUT: names}, None, options)
"""
_END = """
print(json.dumps({"seconds": time.process_time() - started, "weights": weights,
                  "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def measure(name: str, code: str) -> dict[str, Any]:
    """Runs one way in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _SHARED + code + _END, name, str(ROOT)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    names = parser.parse_args().names or NAMES
    print("model                   torch s  trtconv s  ratio   torch MB  trtconv MB  weights MB")
    theirs_sum = ours_sum = 0.0
    heavy = False
    for name in names:
        theirs, ours = [], []
        for _ in range(ROUNDS):
            theirs.append(measure(name, _TORCH))
            ours.append(measure(name, _OURS))
        a, b = (min(runs, key=lambda run: run["seconds"]) for runs in (theirs, ours))
        memory = [min(run["bytes"] for run in runs) / 1e6 for runs in (theirs, ours)]
        weights = a["weights"] / 1e6
        theirs_sum, ours_sum = theirs_sum + a["seconds"], ours_sum + b["seconds"]
        # 5 % of slack: what the process itself takes differs from run to run.
        heavy = heavy or memory[1] > memory[0] * 1.05 + weights
        ratio = b["seconds"] / a["seconds"]
        print(
            f"{name:22} {a['seconds']:8.2f} {b['seconds']:10.2f} {ratio:6.2f} {memory[0]:10.0f} {memory[1]:11.0f}"
            f" {weights:11.1f}"
        )
    ratio = ours_sum / theirs_sum
    print(f"{'sum':22} {theirs_sum:8.2f} {ours_sum:10.2f} {ratio:6.2f}   limit {LIMIT}")
    return 1 if ratio > LIMIT or heavy else 0


if __name__ == "__main__":
    sys.exit(main())
