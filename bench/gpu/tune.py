"""What `trtconv build --tune` gains on single deconvolutions, on TensorRT 8.6: raw, default, tuned and the bound.

    python bench/gpu/tune.py --prepare      makes the models, bench/gpu/.quantized/tune.tar.xz; no TensorRT
    python bench/gpu/tune.py [--models FILE] [--out FOLDER] [--budget SECONDS] [--resume]      needs TensorRT 8.6

One process does everything, layer by layer: builds that run at the same time slow each other down as much as they save.
The engines of a layer are raced in turns, with CUDA graphs.

raw: the ONNX file through a plain TensorRT script. bound: the same deconvolution without output_padding, likewise. The
first three layers are those of candidates.py, which the rules of thumb were made for; no other is anywhere else in
bench/. Those called "between" have a convolution before and behind. Writes FOLDER/gpu-tune-8.6.json after every layer.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from candidates import FLAGS, Row, feed, rms, table  # noqa: E402

ARCHIVE = ROOT / "bench" / "gpu" / ".quantized" / "tune.tar.xz"
NAME = "gpu-tune-8.6.json"
WAYS = ("raw", "bound", "default", "tuned")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ARCHIVE, metavar="FILE")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--budget", type=float, default=200, metavar="SECONDS", help="end after that")
    parser.add_argument("--prepare", action="store_true", help="make the models and end")
    parser.add_argument("--resume", action="store_true", help="keep the layers that FOLDER has times of, and go on")
    options = parser.parse_args()
    return prepare(options.models) if options.prepare else measure(options)


def measure(options: argparse.Namespace) -> int:
    """Builds and races the engines of every layer, and prints a table."""
    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    document: Row = {"rows": []}
    if options.resume and (options.out / NAME).exists():
        document = json.loads((options.out / NAME).read_text())
    document["rows"] = [row for row in document["rows"] if "failed" not in row]
    known = {row["name"] for row in document["rows"]}
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(options.models) as archive:
            archive.extractall(folder)
        work = Tuning(Path(folder))
        if document.get("gpu") not in (None, work.gpu):
            raise SystemExit(f"{options.out / NAME} is of another GPU: {document['gpu']}")
        spent = 0.0
        for row in json.loads((Path(folder) / "rows.json").read_text()):
            begun = time.monotonic()
            if row["name"] in known:
                continue
            if begun + 1.2 * spent > started + options.budget:
                print("out of time", flush=True)
                break
            try:
                row |= work.layer(row)
                print(table(row), row["form"], row["forms_us"], flush=True)
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:400]
                print(row["name"], row["failed"], flush=True)
            spent = time.monotonic() - begun
            document["rows"].append(row | {"seconds": round(spent, 1)})
            document |= {
                "date": datetime.date.today().isoformat(),
                "tensorrt": work.version,
                "gpu": work.gpu,
                "seconds": round(sum(row["seconds"] for row in document["rows"]), 1),
            }
            (options.out / NAME).write_text(json.dumps(document, indent=1) + "\n")
            print(f"{document['seconds']:5.1f} s  {row['name']}", flush=True)
    return 0


class Tuning:
    """TensorRT in this process, behind a plain script and behind trtconv.

    Args:
        folder: Of the models.
    """

    def __init__(self, folder: Path) -> None:
        from trt86 import TensorRT

        from trtconv.runtimes.tensorrt.gpu import gpu_name

        self._folder = folder
        self._driver = TensorRT(importlib.import_module("tensorrt"))
        self.version = self._driver.version
        self.gpu = gpu_name()

    def layer(self, row: Row) -> Row:
        """Builds and races the engines of a layer."""
        from trt86 import Options, race

        name, kind = row["name"], row["kind"]
        plans = {}
        found = self._trtconv(name, kind, plans)
        for way in ("raw", "bound"):
            model = (self._folder / f"{name}.{way}.onnx").read_bytes()
            plans[way] = bytes(memoryview(self._driver.build(model, Options(FLAGS[kind]))))
        engines, ways = [], {}
        wanted = None
        for way in WAYS:
            engine = self._driver.engine(plans[way])
            engine.load({"x": feed(row["shape"])})
            (got,) = engine.run()
            wanted = got if wanted is None else wanted
            ways[way] = {"error": rms(wanted, got), "layers": engine.layers}
            engines.append(engine)
        latencies, how = race(engines, rounds=40, warm_up_us=30_000)
        for engine, way, each in zip(engines, WAYS, latencies, strict=True):
            engine.free()
            ways[way] |= {"us": each.us, "low": each.low, "high": each.high}
        return found | {"ways": ways, "race": how}

    def _trtconv(self, name: str, precision: str, plans: dict[str, bytes]) -> Row:
        from trtconv import BuildRequest, build

        found: Row = {}
        for way in ("tuned", "default"):
            begun = time.monotonic()
            engine = self._folder / f"{name}.{way}.engine"
            given = {"precision": precision, "prove": "none", "timing_cache": self._folder / "timing"}
            report = build(BuildRequest(self._folder / f"{name}.raw.onnx", engine, tune=way == "tuned", **given))
            if report.exit_code:
                raise RuntimeError("; ".join(finding.message for finding in report.findings))
            plans[way] = engine.read_bytes()
            found |= {f"{way}_seconds": round(time.monotonic() - begun, 1), way: [e.what for e in report.edits]}
            for tuned in report.to_json()["tuned"]:
                found |= {"form": tuned["form"], "usual": tuned["usual"], "forms_us": tuned["us"]}
        return {"form": "", "forms_us": {}} | found


def prepare(path: Path) -> int:
    """Writes the raw models and those of the bounds in one archive, the most telling ones first."""
    import onnx
    from candidate_models import KINDS, SHAPES, Shape, build

    own = {
        "96-48-k3-s2-56-b4": Shape((96, 48), 3, 2, (0, 0), 1, 56, 4),
        "1024-512-k2-s2-12-b1": Shape((1024, 512), 2, 2, (0, 0), 1, 12, 1),
        "192-96-k5-s2-p1+0-40-b1": Shape((192, 96), 5, 2, (1, 0), 1, 40, 1),
        "128-128-k5-s3-op2-1d-1500-b2": Shape((128, 128), 5, 3, (0, 0), 2, 1500, 2, 1),
        "64-24-k3-s3-op2-72-b1": Shape((64, 24), 3, 3, (0, 0), 2, 72, 1),
        "32-32-k2-s2-160-b1": Shape((32, 32), 2, 2, (0, 0), 1, 160, 1),
        "40-32-k3-s2-3d-12-b2": Shape((40, 32), 3, 2, (0, 0), 1, 12, 2, 3),
    }
    depthwise = Shape((80, 80), 4, 2, (1, 1), 0, 48, 1, group=80)
    known = dict(list(SHAPES.items())[:3])
    jobs = [(name, shape, kind, False) for name, shape in known.items() for kind in KINDS]
    jobs += [("80-depthwise-k4-s2-p1-48-b1", depthwise, "fp16", False)]
    jobs += [(name, shape, kind, False) for name, shape in list(own.items())[:3] for kind in KINDS]
    jobs += [(f"{name}-between", shape, "fp16", True) for name, shape in list(known.items())[1:]]
    jobs += [(name, shape, "fp16", False) for name, shape in list(own.items())[3:]]
    jobs += [(name, shape, "int8", False) for name, shape in list(own.items())[3:]]
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, shape, kind, between in jobs:
            for way in ("raw", "bound"):
                model = build(shape, kind, way, between=between)
                onnx.save_model(model, Path(folder) / f"{name}@{kind}.{way}.onnx")
            dims = [shape.batch, 16 if between else shape.channels[0], *[shape.size] * shape.rank]
            rows.append({"name": f"{name}@{kind}", "kind": kind, "shape": dims})
        (Path(folder) / "rows.json").write_text(json.dumps(rows))
        with tarfile.open(path, "w:xz") as packed:
            for each in sorted(Path(folder).iterdir()):
                packed.add(each, each.name)
    print(f"{len(rows)} layers in {path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
