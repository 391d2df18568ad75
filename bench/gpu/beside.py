"""How fast the same network is elsewhere: ONNX Runtime on the CPU, PyTorch eager and compiled on the GPU.

    python bench/gpu/beside.py onnxruntime MODEL.onnx SHAPES.json
    python bench/gpu/beside.py torch RECIPE.py SHAPES.json

SHAPES.json is {input: shape}. Writes one JSON document, {way: median microseconds, or why there is none}, to stdout.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_SECONDS = 1.0


def median_us(run: Callable[[], Any]) -> float:
    """Returns the median time of a call that waits for its result."""
    for _ in range(3):
        run()
    times: list[float] = []
    until = time.perf_counter() + _SECONDS
    while time.perf_counter() < until or len(times) < 5:
        started = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - started))
    return round(statistics.median(times), 1)


def on_onnxruntime(model: str, shapes: dict[str, list[int]]) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {"onnxruntime cpu": median_us(lambda: session.run(None, feeds))}


def on_torch(recipe: str, shapes: dict[str, list[int]]) -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {"torch": "not installed"}
    if not torch.cuda.is_available():
        return {"torch": f"{torch.__version__} sees no GPU"}
    sys.path.insert(0, str(Path(recipe).parent))
    spec = importlib.util.spec_from_file_location(Path(recipe).stem, recipe)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = {"version": torch.__version__}
    for name, dtype in (("float32", torch.float32), ("float16", torch.float16)):
        network = module.build().eval().to("cuda", dtype)
        # The GPU's generator may not be used while another network's graph is being captured.
        inputs = [torch.randn(shape).to("cuda", dtype) for shape in shapes.values()]
        for way, run in (("eager", network), ("compile", torch.compile(network, mode="max-autotune"))):

            def call(run: Any = run, inputs: Any = inputs) -> None:
                with torch.no_grad():
                    run(*inputs)
                torch.cuda.synchronize()

            try:
                found[f"torch {way} {name}"] = median_us(call)
            except Exception as error:
                found[f"torch {way} {name}"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
    return found


if __name__ == "__main__":
    kind, path, shapes_file = sys.argv[1:]
    given = json.loads(Path(shapes_file).read_text())
    print(json.dumps({"onnxruntime": on_onnxruntime, "torch": on_torch}[kind](path, given)))
