"""What sets fast and slow builds of one network apart, layer by layer, on TensorRT 8.6.

    python bench/gpu/luck_layers.py [--row "384-192-k2 int8"] [--builds 12] [--seconds 100] [--out FOLDER]
                                                                       needs TensorRT 8.6 and a GPU

A row of luck.py is rewritten by trtconv and built several times without a timing cache, with all that TensorRT tells
of its layers. All engines are timed whole, in turns, as CUDA graphs; then each layer of each by TensorRT's profiler.
Layers are grouped by kernel, so that one sees which kernels the slow builds have in place of the fast ones', and
whether one kernel takes longer in some builds than in others.

Writes FOLDER/gpu-luck-layers-8.6.json. Exit status: 0 at least two builds were timed; 1 not.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE)]

import luck  # noqa: E402
import onnx  # noqa: E402

RUNS = 200
Row = dict[str, Any]


def rewritten(case: luck.Case) -> tuple[bytes, dict[str, Any]]:
    """Returns the model that trtconv gives to TensorRT 8.6 for a row, serialized, and its inputs."""
    import trtconv
    from trtconv.core.target import Target

    model, feeds = luck.sample_of(case)
    with tempfile.TemporaryDirectory() as folder:
        path, new = Path(folder) / "m.onnx", Path(folder) / "new.onnx"
        onnx.save(model, path)
        trtconv.rewrite(trtconv.RewriteRequest(path, new, target=Target("tensorrt", (8, 6))))
        return new.read_bytes(), feeds


def telling(trt: Any) -> Any:
    """Returns a builder whose engines tell all of their layers."""
    from trt86 import TensorRT

    class Telling(TensorRT):
        def _configure(self, config: Any, network: Any, options: Any) -> None:
            super()._configure(config, network, options)
            config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED

    return Telling(trt)


def layer_times(trt: Any, engine: Any) -> dict[str, float]:
    """Returns the mean microseconds of each layer, by its name."""
    spent: dict[str, float] = collections.defaultdict(float)

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def report_layer_time(self, layer_name: str, ms: float) -> None:
            spent[layer_name] += ms * 1000 / RUNS

    profiler = Profiler()
    for _ in range(20):
        engine.enqueue()
    engine.stream.wait()
    engine._context.profiler = profiler
    for _ in range(RUNS):
        engine.enqueue()
        engine.stream.wait()
    return {name: round(us, 2) for name, us in spent.items()}


def layers_of(trt: Any, engine: Any) -> list[Row]:
    """Returns what TensorRT tells of each layer: name, kind, kernel, formats."""
    inspector = engine._engine.create_engine_inspector()
    document = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    return [
        {
            "name": layer["Name"],
            "kind": layer.get("LayerType"),
            "kernel": layer.get("TacticName", ""),
            "tactic": layer.get("TacticValue", ""),
            "formats": [each["Format/Datatype"] for each in (*layer.get("Inputs", []), *layer.get("Outputs", []))],
        }
        for layer in document["Layers"]
        if isinstance(layer, dict)
    ]


def measured(name: str, builds: int, seconds: float) -> Row:
    """Builds a row several times, as long as there is time, and times engines and layers."""
    import tensorrt as trt
    from trt86 import Options, race

    case = next(each for each in luck.cases() if each.name == name)
    data, feeds = rewritten(case)
    maker, until = telling(trt), time.monotonic() + seconds
    options = Options(flags=luck._FLAGS[case.precision])
    engines: list[Any] = []
    while len(engines) < builds and time.monotonic() < until:
        engines.append(maker.engine(maker.build(data, options, keep_timings=False)))
    for engine in engines:
        engine.load(feeds)
    times = [each.us for each in race(engines, rounds=40, budget_us=4e6, warm_up_us=2e4)[0]]
    rows = []
    for us, engine in sorted(zip(times, engines, strict=True), key=lambda pair: pair[0]):
        spent = layer_times(trt, engine)
        rows.append({"us": us, "layers": [{**each, "us": spent.get(each["name"])} for each in layers_of(trt, engine)]})
    for engine in engines:
        engine.free()
    return {"name": name, "builds": rows}


def shown(row: Row) -> str:
    """Returns a row as text: the time of each build, and of each of its layers."""
    lines = [row["name"]]
    for build in row["builds"]:
        parts = "; ".join(f"{each['us']} {each['kernel'][-48:]} {each['tactic']}" for each in build["layers"])
        lines.append(f"{build['us']:8.2f} us: {parts}")
    return "\n".join(lines)


def main() -> int:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", default="384-192-k2 int8")
    parser.add_argument("--builds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=100, help="start no build after that")
    parser.add_argument("--out", type=Path, default=Path())
    given = parser.parse_args()
    row = measured(given.row, given.builds, given.seconds)
    print(shown(row))
    (given.out / "gpu-luck-layers-8.6.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return 0 if len(row["builds"]) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
