"""Engines of TensorRT 8.6 that take images, beside the same networks with Pillow and NumPy in front of them.

    python bench/gpu/images.py [--jobs 3] [--seconds 60] [--only NAME] [--out FOLDER]      needs TensorRT 8.6 and a GPU

Each row is a network built twice: with `--images`, and as it is. Both are run on the same random images; the results
have to agree within float16's rounding, relative to the largest. Times are those of the GPU for one inference in a CUDA
graph, with the copy of its inputs from the host ("host_us") and without; "outside_us" is what Pillow and NumPy take for
the float path on one core of the processor. An engine of several sizes is run at each of them.

Writes FOLDER/gpu-images-8.6.json and prints a table. Exit status: 0 three networks ran and all agree; 1 not.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests")]

from children import Row, options, run_script, serve  # noqa: E402
from formats import FLOAT, HALF, TEXT, Bench  # noqa: E402

NAME = "gpu-images-8.6.json"
_LEAST = 3
_HEAD = '<ir_version: 8, opset_import: ["": 17]> g'
CLASSIFIER = f"""{_HEAD} (float[1, 3, 224, 224] x) => (float[1, 16] y)
<float[32, 3, 7, 7] w0, float[64, 32, 3, 3] w1, float[16, 64, 1, 1] w2>
{{
  a = Conv <pads = [3, 3, 3, 3], strides = [4, 4]> (x, w0)
  b = Relu (a)
  c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, w1)
  d = Relu (c)
  e = Conv (d, w2)
  f = GlobalAveragePool (e)
  y = Flatten (f)
}}
"""
SEGMENTER = f"""{_HEAD} (float[1, 3, 256, 256] x) => (float[1, 8, 256, 256] y)
<float[16, 3, 3, 3] w0, float[32, 16, 3, 3] w1, float[32, 8, 4, 4] w2>
{{
  a = Conv <pads = [1, 1, 1, 1]> (x, w0)
  b = Relu (a)
  c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, w1)
  d = Relu (c)
  y = ConvTranspose <pads = [1, 1, 1, 1], strides = [2, 2]> (d, w2)
}}
"""
DETECTOR = FLOAT.replace("float[4, 16, 96, 96] x", "float[1, 3, 640, 640] x").replace("[32, 16, 3, 3]", "[32, 3, 3, 3]")
DETECTOR = DETECTOR.replace("float[4, 32, 48, 48] y", "float[1, 32, 320, 320] y")
TEXTS = {"classifier": CLASSIFIER, "segmenter": SEGMENTER, "detector": DETECTOR}
_IMAGENET = "scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"
ROWS = (
    ("classifier", _IMAGENET, {}),
    ("classifier", f"image=480x640,crop,filter=bilinear,{_IMAGENET}", {"y": "softmax"}),
    ("segmenter", "color=bgr,pixels=rgba,mean=104:117:123", {}),
    ("segmenter", "image=512x512,filter=nearest,scale=1/255", {"y": "softmax"}),
    ("detector", "letterbox=114,image=1080x1920,pixels=bgr,filter=linear,scale=1/255", {}),
    ("detector", "letterbox=114,image=1080x1920+720x1280+480x640,scale=1/255", {"y": "sigmoid"}),
    ("detector", "letterbox=114,image=1080x1920+480x640,pixels=nv12,scale=1/255", {}),
)
"""Network, what becomes of images, and of the output."""


def main() -> int:
    given = options(__doc__, len(ROWS))
    if given.worker:
        return serve(Images)
    tasks: list[Row] = [
        {"net": net, "images": images, "results": results} for net, images, results in ROWS if given.only in (net, "")
    ]
    rows = run_script(__file__, tasks, given, NAME)
    for row in rows:
        what = f"{row['net']} {row['images']}"
        print(f"{'' if row.get('right') else '! '}{what}: {row.get('failed') or row.get('why') or ''}")
        for each in row.get("sizes", ()):
            times = f"{each['us']:.0f} us ({each['host_us']:.0f} with its copy)"
            plain = f"{each['plain_us']:.0f} ({each['plain_host_us']:.0f}) and {each['outside_us']:.0f} outside"
            print(f"    {each['size']}: error {each['error']:.1e}; {times} for {plain}")
    nets = {row["net"] for row in rows if row.get("right")}
    count = sum(bool(row.get("right")) for row in rows)
    print(f"{count} of {len(rows)} ran and agree, networks {', '.join(sorted(nets))}")
    return 0 if len(nets) >= _LEAST and all(row.get("right") for row in rows) else 1


class Images(Bench):
    """Builds with and without images, runs both on the same images, and times both."""

    def _measure(self, task: Row, folder: Path, row: Row) -> None:
        import numpy as np
        import onnx
        from refit import text_model

        from trtconv.core.interface import read_results
        from trtconv.core.preprocessing import PIXELS, parse_images
        from trtconv.precision.quantize.images import of_pixels, of_planes

        path = folder / "m.onnx"
        onnx.save(text_model(TEXTS[task["net"]], 86), path)
        how = parse_images(task["images"])
        results = read_results([f"{name}={what}" for name, what in task["results"].items()])
        report = self._build(path, folder / "images.engine", images=how, results=results)
        plain = self._build(path, folder / "plain.engine", results=results)
        if report.exit_code or plain.exit_code:
            row["why"] = next(iter((*report.findings, *plain.findings))).message[:TEXT]
            return
        row["difference"], row["sizes"] = report.images.difference, []
        random = np.random.default_rng(86)
        for number, size in enumerate(report.images.sizes):
            pixels = random.integers(0, 256, (*size, PIXELS[how.pixels]), np.uint8)
            chroma = random.integers(0, 256, (size[0] // 2, size[1] // 2, 2), np.uint8)
            feeds, outside = {"x": pixels[np.newaxis]}, []
            if report.images.chroma is not None:
                feeds[report.images.chroma] = chroma[np.newaxis]
            for _ in range(5):
                start = time.perf_counter()
                if report.images.chroma is None:
                    floats = of_pixels(pixels, how, report.images.resized_to)
                else:
                    floats = of_planes(pixels, chroma, how, report.images.resized_to)
                outside.append((time.perf_counter() - start) * 1e6)
            got, us, host = self._run(folder / "images.engine", feeds, number)
            wanted, plain_us, plain_host = self._run(folder / "plain.engine", {"x": floats}, 0)
            error = float(np.abs(got.astype(np.float32) - wanted).max()) / max(float(np.abs(wanted).max()), 1e-30)
            row["sizes"].append(
                {"size": f"{size[0]}x{size[1]}", "error": error, "us": us, "host_us": host, "plain_us": plain_us}
                | {"plain_host_us": plain_host, "outside_us": statistics.median(outside)}
            )
        row["right"] = all(each["error"] <= HALF for each in row["sizes"])

    def _build(self, model: Path, engine: Path, **interface: Any) -> Any:
        import trtconv
        from trtconv.core.builder_options import BuilderOptions

        options = BuilderOptions(optimization_level=2, tf32=False)
        request = trtconv.BuildRequest(
            model, engine=engine, target=self._target, precision="fp16", options=options, **interface
        )
        return trtconv.build(request)

    def _run(self, engine: Path, feeds: Row, profile: int) -> tuple[Any, float, float]:
        """Returns the output, and the microseconds of an inference without and with the copies to and from the host."""
        loaded = self._runtime.engines().load(engine.read_bytes())
        with contextlib.closing(loaded.open(profile)) as execution:
            execution.feed(feeds)
            output = execution.run()["y"]
            medians = []
            for copies in (False, True):
                launch = execution.launcher(graph=True, copies=copies) or execution.launcher(graph=False, copies=copies)
                execution.microseconds(launch, 20)
                medians.append(statistics.median(execution.microseconds(launch, 50) / 50 for _ in range(9)))
        return output, medians[0], medians[1]


if __name__ == "__main__":
    sys.exit(main())
