"""NVIDIA's standard plugins on TensorRT 8.6, beside trtconv's references of them; and a detector that ends in one.

    python bench/gpu/plugins.py [--jobs 14] [--seconds 150] [--only NAME] [--out FOLDER]      needs TensorRT 8.6

Of each plugin ten random configurations (`plugin_cases.py`) are nodes of one model, which `trtconv.build` makes an
engine of: its proof runs every node beside its reference without the GPU, then builds each node alone, runs it on the
GPU and compares. The engine of all ten is run here too, and every output compared. Where the ten together fail, each is
built by itself, so that one that TensorRT refuses does not hide the others.

"faults": configurations that the plugins themselves compute wrongly, without a word; builds have to say so (TC005 or
TC402). "mistakes": references that are wrong on purpose, in one point each; every build has to fail (TC402).
"detector": a small network with random weights, three scales, decoded boxes and EfficientNMS_TRT at its end.

Writes FOLDER/gpu-plugins-8.6.json and prints a table. Exit status: 0 all is equal, and every mistake is found; 1 not.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE)]

from children import Children, Row, serve  # noqa: E402

NAME = "gpu-plugins-8.6.json"
COUNT = 10
_RELATIVE = 2e-4
_TEXT = 300
DETECTOR = "detector"
MISTAKES = {
    "EfficientNMS_TRT": ("iou_threshold=0.5", "iou_threshold=0.9"),
    "ROIAlign_TRT": ("spatial_scale=1.0", "spatial_scale=0.5"),
    "MultiscaleDeformableAttnPlugin_TRT": ("- np.float32(0.5)", "- np.float32(0.0)"),
    "InstanceNormalization_TRT": ("wide.mean(axes", "wide.max(axes"),
    "CropAndResizeDynamic": ("np.float32(size - 1)", "np.float32(size - 2)"),
}
"""Plugin to a point of its reference, and what stands there in the wrong one."""


def main() -> int:
    """Runs everything; returns the exit status."""
    given = _options()
    if given.worker:
        return serve(lambda: Bench(given.family))
    from plugin_cases import CASES, FAULTS

    tasks: list[Row] = [{"kind": DETECTOR, "plugin": DETECTOR}]
    tasks += [{"kind": "cases", "plugin": name} for name in CASES]
    tasks += [{"kind": "mistake", "plugin": name} for name in MISTAKES]
    tasks += [{"kind": "fault", "plugin": name} for name in FAULTS]
    tasks = [task for task in tasks if given.only in task["plugin"]]
    rows = _run(tasks, given)
    print(table(rows))
    return 0 if all(map(_is_right, rows)) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--family", default="tensorrt", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(tasks: list[Row], given: argparse.Namespace) -> list[Row]:
    """Has tasks done; returns them with their answers, and keeps them in a file as they come."""
    started = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []

    def done(task: Row, answer: Row) -> None:
        rows.append({**task, **answer})
        document = {"date": str(datetime.date.today()), "rows": rows, "seconds": time.monotonic() - started}
        (given.out / NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    end = started + given.seconds
    command = [sys.executable, __file__, "--worker", "--family", given.family]
    with Children(command, min(given.jobs, len(tasks))) as children:
        children.run(tasks, done, begin=end - 5, end=end)
    return rows


def _is_right(row: Row) -> bool:
    if row["kind"] in ("mistake", "fault"):
        return bool(row.get("found"))
    return "failed" not in row and not row.get("refused") and row.get("equal") == row.get("of")


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as text."""
    lines = [f"{'plugin':40} {'equal':>7} {'error':>8} {'proof':>7} {'seconds':>8}  what"]
    for row in sorted(rows, key=lambda each: (each["kind"], each["plugin"])):
        if row["kind"] in ("mistake", "fault"):
            said = "found" if row.get("found") else "NOT FOUND"
            name = f"{row['kind']}: {row['plugin']}"
            lines.append(f"{name:40} {said:>7} {'':25}  {row.get('failed') or row.get('why', '')}")
            continue
        equal = f"{row.get('equal', 0)}/{row.get('of', 0)}"
        error = "" if row.get("error") is None else f"{row['error']:.1e}"
        what = row.get("failed") or "; ".join(row.get("refused", [])) or row.get("why", "")
        what = what or (f"each alone; together: {row['together']}" if row.get("together") else "")
        seconds = f"{row.get('seconds', 0):.1f}"
        lines.append(f"{row['plugin']:40} {equal:>7} {error:>8} {row.get('proof')!s:>7} {seconds:>8}  {what[:160]}")
    return "\n".join(lines)


class Bench:
    """TensorRT in a child."""

    def __init__(self, family: str) -> None:
        import trtconv
        from trtconv.core.target import Target
        from trtconv.runtimes import tensorrt

        self._trtconv = trtconv
        self._target = Target(family)
        self._runtime = tensorrt.load(self._target)

    def __call__(self, task: Row) -> Row:
        """Does a task."""
        import numpy as np
        from plugin_cases import CASES, FAULTS

        started = time.monotonic()
        if task["kind"] == DETECTOR:
            return {**self._detector(), "seconds": time.monotonic() - started}
        if task["kind"] == "fault":
            case = FAULTS[task["plugin"]](np.random.default_rng(86), 0)
            row = self._told([case], ("TC005", "TC402"))
            return {**row, "seconds": round(time.monotonic() - started, 1)}
        make = CASES[task["plugin"]]
        cases = [make(np.random.default_rng([number, 86]), number) for number in range(COUNT)]
        if task["kind"] == "mistake":
            row = self._told(cases[:4], ("TC402",), mistaken(task["plugin"]))
        else:
            row = self._cases(cases)
        return {**row, "seconds": round(time.monotonic() - started, 1)}

    def _cases(self, cases: Sequence[Any]) -> Row:
        row = self._together(cases, range(len(cases)))
        if "why" not in row:
            return row
        rows = [self._together([case], [number]) for number, case in enumerate(cases)]
        refused = [f"{number}: {each['why']}" for number, each in enumerate(rows) if each["equal"] < each["of"]]
        errors = [each["error"] for each in rows if each["error"] is not None]
        of = sum(each["of"] for each in rows)
        equal = sum(each["equal"] for each in rows)
        proofs = [each["proof"] for each in rows]
        proof = next((each for each in proofs if each is not True), True)
        counts = {"equal": equal, "of": of, "error": max(errors, default=None), "proof": proof}
        return {**counts, "refused": refused, "together": row["why"]}

    def _together(self, cases: Sequence[Any], numbers: Sequence[int]) -> Row:
        """Builds cases as one model, runs it, and compares every output; "equal" and "of" count cases."""
        model, feeds = model_of(cases, numbers)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.onnx"
            path.write_bytes(model)
            blank = {"equal": 0, "of": len(cases), "error": None, "proof": None}
            try:
                report = self._build(path)
                if report.exit_code:
                    return {**blank, "why": report.findings[0].message[:_TEXT]}
                got = self._run(path.with_suffix(".engine"), feeds)
            except self._trtconv.TrtconvError as error:
                return {**blank, "why": error.message[:_TEXT]}
            expected = _expected(path, feeds)
        proof = report.proof
        errors = {number: _error(number, expected, got) for number in numbers}
        equal = sum(each <= _RELATIVE for each in errors.values())
        row = {**blank, "equal": equal, "error": max(errors.values()), "proof": proof.agrees if proof else None}
        row["missing"] = [f"{each.where}: {each.reason}"[:_TEXT] for each in proof.missing] if proof else []
        wrong = [f"configuration {number} is off by {each:.2g}" for number, each in errors.items() if each > _RELATIVE]
        return {**row, "why": "; ".join(wrong)} if wrong else row

    def _told(self, cases: Sequence[Any], codes: Sequence[str], reference: str = "") -> Row:
        """Builds what has to be refused, or told of, by one of some codes; with a reference in place of ours."""
        model, _ = model_of(cases, range(len(cases)))
        with tempfile.TemporaryDirectory() as folder:
            path, file = Path(folder) / "m.onnx", Path(folder) / "wrong.py"
            path.write_bytes(model)
            file.write_text(reference, encoding="utf-8")
            try:
                report = self._build(path, references=(str(file),) if reference else ())
            except self._trtconv.TrtconvError as error:
                return {"found": False, "why": error.message[:_TEXT]}
        said = [f"{each.code}: {each.message}" for each in report.findings if each.code in codes]
        other = f"refused: {report.findings[0].message}" if report.exit_code else "it was built"
        return {"found": bool(said), "why": ("; ".join(said) or other)[:_TEXT]}

    def _build(self, path: Path, references: Sequence[str] = ()) -> Any:
        from trtconv.core.agreement import CodeFile
        from trtconv.core.builder_options import BuilderOptions

        files = CodeFile.named(references)
        options = BuilderOptions(optimization_level=0, tf32=False)
        asked = {"references": files, "prove_time": 10.0, "options": options}
        request = self._trtconv.BuildRequest(path, target=self._target, **asked)
        return self._trtconv.build(request)

    def _run(self, engine: Path, feeds: dict[str, Any]) -> dict[str, Any]:
        execution = self._runtime.engines().load(engine.read_bytes()).open()
        with contextlib.closing(execution):
            execution.feed(feeds)
            return execution.run()

    def _detector(self) -> Row:
        import numpy as np

        model, feeds = detector()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "yolo.onnx"
            path.write_bytes(model)
            report = self._build(path)
            if report.exit_code:
                return {"equal": 0, "of": 1, "error": None, "why": report.findings[0].message[:_TEXT]}
            got, expected = self._run(path.with_suffix(".engine"), feeds), _expected(path, feeds)
        counts = [values["count"].reshape(-1).tolist() for values in (expected, got)]
        errors = [
            float(np.abs(np.asarray(expected[name], float) - np.asarray(got[name], float)).max())
            for name in ("boxes", "scores", "classes")
        ]
        equal = counts[0] == counts[1] and max(errors) <= 1e-2
        why = "" if equal else f"counts {counts}, boxes, scores and classes off by {errors}"
        proof = report.proof.agrees if report.proof else None
        return {"equal": int(equal), "of": 1, "error": max(errors), "proof": proof, "counts": counts[0], "why": why}


def model_of(cases: Sequence[Any], numbers: Sequence[int]) -> tuple[bytes, dict[str, Any]]:
    """Returns cases as one model, and values of its inputs; outputs are called y<case>_<output>."""
    from onnx import ModelProto, TensorProto, helper, numpy_helper
    from plugin_cases import ORDER

    model, feeds = ModelProto(ir_version=8), {}
    model.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("TRT", 1)])
    graph = model.graph
    graph.name = "cases"
    for number, case in zip(numbers, cases, strict=True):
        given = {f"x{number}_{index}": values for index, values in enumerate(case.inputs)}
        held = {f"w{number}_{index}": values for index, values in enumerate(case.constants)}
        for name, values in given.items():
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            graph.input.append(helper.make_tensor_value_info(name, kind, values.shape))
        graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in held.items())
        names = [*given, *held]
        inputs = [names[index] for index in ORDER.get(case.op, range(len(names)))]
        outputs = [f"y{number}_{index}" for index in range(case.outputs)]
        graph.node.append(helper.make_node(case.op, inputs, outputs, f"node{number}", domain="TRT", **case.attributes))
        for name in outputs:
            graph.output.add(name=name).type.tensor_type.elem_type = TensorProto.UNDEFINED
        feeds.update(given)
    if not feeds:
        # A network needs an input.
        import numpy as np

        feeds["x"] = np.ones((1, 4), np.float32)
        graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4)))
        graph.node.append(helper.make_node("Abs", ["x"], ["y"]))
        graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4)))
    return model.SerializeToString(), feeds


def _expected(path: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """Runs the model itself: ONNX Runtime and the references."""
    from trtconv.graph.model import OnnxModel
    from trtconv.runtimes.onnxruntime import session

    model = OnnxModel.load(path)
    return dict(zip(model.outputs, session(model).run(None, feeds), strict=True))


def _error(number: int, expected: dict[str, Any], got: dict[str, Any]) -> float:
    """Returns the largest relative error of a case's outputs; infinite where integers, or sizes, differ."""
    import numpy as np

    worst = 0.0
    for name, values in expected.items():
        if not name.startswith(f"y{number}_"):
            continue
        other = got[name]
        if values.size != other.size or (values.dtype.kind == "i") != (other.dtype.kind == "i"):
            return float("inf")
        one, two = values.reshape(-1).astype(np.float64), other.reshape(-1).astype(np.float64)
        off = np.abs(one - two).max(initial=0) / max(np.abs(one).max(initial=0), 1e-6)
        worst = max(worst, float("inf") if values.dtype.kind == "i" and off else float(off))
    return worst


def mistaken(plugin: str) -> str:
    """Returns the source of a built-in reference with a mistake in it."""
    from trtconv.plugins.registry import STANDARD

    source = (ROOT / "trtconv" / "plugins" / "standard" / f"{STANDARD[plugin]}.py").read_text(encoding="utf-8")
    right, wrong = MISTAKES[plugin]
    marker = "REFERENCES = {"
    if right in ("iou_threshold=0.5", "spatial_scale=1.0"):
        # The attribute is read, and another number is taken.
        name, value = wrong.split("=")
        body = f"{source}\n\n_right = REFERENCES[{plugin!r}]\n"
        body += (
            f"def _wrong(*inputs, **attributes):\n    return _right(*inputs, **{{**attributes, {name!r}: {value}}})\n"
        )
    else:
        assert right in source and marker in source
        body = source.replace(right, wrong) + f"\n\n_wrong = REFERENCES[{plugin!r}]\n"
    return f"{body}\nimport trtconv\ntrtconv.reference('TRT::{plugin}')(_wrong)\n"


def detector() -> tuple[bytes, dict[str, Any]]:
    """Returns a detector of three scales with random weights, and a picture."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    random = np.random.default_rng(8)
    nodes, weights = [], []

    def constant(values: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(values), f"w{len(weights)}"))
        return str(weights[-1].name)

    def node(op: str, *inputs: str, count: int = 1, domain: str = "", **attributes: Any) -> Any:
        outputs = [f"t{len(nodes)}_{index}" for index in range(count)]
        nodes.append(helper.make_node(op, list(inputs), outputs, f"n{len(nodes)}", domain=domain, **attributes))
        return outputs[0] if count == 1 else outputs

    def conv(x: str, inner: int, outer: int, kernel: int, stride: int = 1, gain: float = 1.4) -> str:
        scale = gain / np.sqrt(inner * kernel * kernel)
        weight = (random.standard_normal((outer, inner, kernel, kernel)) * scale).astype(np.float32)
        bias = (random.standard_normal(outer) * 0.2).astype(np.float32)
        return str(node("Conv", x, constant(weight), constant(bias), strides=[stride] * 2, pads=[kernel // 2] * 4))

    def block(x: str, inner: int, outer: int) -> str:
        y = conv(x, inner, outer, 3, 2)
        return str(node("Mul", y, node("Sigmoid", y)))

    classes, side = 8, 96
    x, channels, boxes, scores = "images", 3, [], []
    for level, width in enumerate((16, 24, 32, 48, 64)):
        x, channels = block(x, channels, width), width
        if level < 2:
            continue
        cells, stride = side >> (level + 1), 2 ** (level + 1)
        head = conv(x, channels, 4 + classes, 1)
        flat = node("Transpose", node("Reshape", head, constant(np.array([1, 4 + classes, -1]))), perm=[0, 2, 1])
        ends = constant(np.array([4, classes]))
        box, score = node("Split", flat, ends, count=2, axis=2)
        middle, size = node("Split", box, constant(np.array([2, 2])), count=2, axis=2)
        grid = np.stack(np.meshgrid(np.arange(cells), np.arange(cells)), -1).reshape(1, -1, 2) + 0.5
        middle = node("Mul", node("Add", middle, constant(grid.astype(np.float32))), constant(np.float32(stride)))
        size = node("Mul", node("Exp", node("Tanh", size)), constant(np.float32(stride * 3)))
        half = node("Mul", size, constant(np.float32(0.5)))
        boxes.append(node("Concat", node("Sub", middle, half), node("Add", middle, half), axis=2))
        scores.append(node("Sigmoid", score))
    attributes = {"score_threshold": 0.6, "iou_threshold": 0.45, "max_output_boxes": 50, "background_class": -1}
    every, rated = node("Concat", *boxes, axis=1), node("Concat", *scores, axis=1)
    outputs = ["count", "boxes", "scores", "classes"]
    nodes.append(
        helper.make_node(
            "EfficientNMS_TRT",
            [every, rated],
            outputs,
            "nms",
            domain="TRT",
            score_activation=0,
            box_coding=0,
            **attributes,
        )
    )
    shapes = {"count": (6, (1, 1)), "boxes": (1, (1, 50, 4)), "scores": (1, (1, 50)), "classes": (6, (1, 50))}
    infos = [helper.make_tensor_value_info(name, *shapes[name]) for name in outputs]
    picture = helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, (1, 3, side, side))
    graph = helper.make_graph(nodes, "yolo", [picture], infos, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("TRT", 1)]
    model = helper.make_model(graph, ir_version=8, opset_imports=opsets)
    return model.SerializeToString(), {"images": random.standard_normal((1, 3, side, side)).astype(np.float32)}


if __name__ == "__main__":
    sys.exit(main())
