"""Does trtconv work with a real TensorRT 8.6? Runs its commands there and writes down what they do.

    python bench/gpu/adapter.py [--out FOLDER] [--date DATE] [--family tensorrt|rtx]

Writes FOLDER/gpu-adapter-8.6.json (default: bench/results): every command with its exit code and what it printed, what
the parser calls the deconvolutions of each kind of graph, and whether all of it is as it should be (exit code 0).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trt86 import Refused, TensorRT  # noqa: E402

from trtconv.core.errors import BuildFailed  # noqa: E402
from trtconv.core.target import Target  # noqa: E402
from trtconv.graph.model import OnnxModel  # noqa: E402
from trtconv.pipeline.audit import audit  # noqa: E402
from trtconv.runtimes import tensorrt  # noqa: E402

Row = dict[str, Any]

NAME = "gpu-adapter-8.6.json"
_MODULES = {"tensorrt": "tensorrt", "rtx": "tensorrt_rtx"}
_SECONDS = 240
_TEXT = 3000
UNET = ("--dim", "batch=1", "--dim", "height=64:128:256", "--dim", "width=64:128:256")
NARROW = ("--dim", "batch=1", "--dim", "height=64:128:128", "--dim", "width=64:128:128")
UNFIT = ("--dim", "batch=1", "--dim", "height=60:128:256", "--dim", "width=64:128:256")


@dataclasses.dataclass(frozen=True)
class Command:
    """A call of trtconv.

    Args:
        name: What it is to show.
        arguments: Of the command line; {tmp} is a temporary folder with the models made here.
        exit_code: As it should end.
        expect: Texts that stdout and stderr must have between them.
    """

    name: str
    arguments: tuple[str, ...]
    exit_code: int
    expect: tuple[str, ...] = ()


def commands(target: str) -> list[Command]:
    """Returns the calls; `target` is the version that is installed."""
    family = target.partition("-")[0]
    quantized = "models/quantized_autoencoder.onnx"
    json_ = ("--format", "json", "-q")
    checked = ("--format", "json")
    calls = [
        Command("doctor", ("doctor", "--format", "json"), 0, (f'"{family}"',)),
        Command("build-unet", ("build", "models/unet.onnx", *UNET, "-o", "{tmp}/unet.engine", *json_), 0),
        Command("build-quantized", ("build", quantized, *NARROW, "-o", "{tmp}/quantized.engine", *json_), 0),
        Command("check-unet", ("check", "models/unet.onnx", *UNET, "--target", target, *checked), 0),
        Command("check-quantized", ("check", quantized, *NARROW, "--target", target, *checked), 0),
        Command("check-refused", ("check", "{tmp}/refused.onnx", "--target", target, *checked), 1, _REFUSED),
        Command("build-refused", ("build", "{tmp}/refused.onnx", "-o", "{tmp}/refused.engine", *json_), 1, _REFUSED),
        Command("build-misread", ("build", "{tmp}/misread.onnx", "-o", "{tmp}/misread.engine", *json_), 0),
        Command(
            "build-misread-raw",
            ("build", "{tmp}/misread.onnx", "--no-rewrite", "--fail-on", "never", "-o", "{tmp}/raw.engine", *json_),
            1,
            ("TC402",),
        ),
        Command(
            "build-bad-profile",
            ("build", "models/unet.onnx", *UNFIT, "-o", "{tmp}/bad.engine", *json_),
            1,
        ),
        Command("build-unbounded", ("build", "models/unet.onnx", "-o", "{tmp}/none.engine"), 2, ("height",)),
        Command(
            "build-other-version", ("build", "models/unet.onnx", *UNET, "--target", "tensorrt-11", "-o", "{tmp}/o"), 4
        ),
        Command("build-bf16", ("build", "models/unet.onnx", *NARROW, "--precision", "bf16", "-o", "{tmp}/b"), 4),
    ]
    for place in ("if", "loop", "function"):
        calls.append(
            Command(f"build-{place}", ("build", f"{{tmp}}/{place}.onnx", "-o", f"{{tmp}}/{place}.engine", *json_), 0)
        )
    if family == "tensorrt":
        calls += [
            Command(
                "build-unet-fp16",
                ("build", "models/unet.onnx", *NARROW, "--precision", "fp16", "-o", "{tmp}/fp16.engine", *json_),
                0,
            ),
            Command(
                "build-quantized-int8",
                ("build", quantized, *NARROW, "--precision", "int8", "-o", "{tmp}/int8.engine", *json_),
                0,
            ),
        ]
    return calls


_REFUSED = ("det", "unique", "foreign")


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, model in models().items():
            onnx.save(model, folder / f"{place}.onnx")
        trt = TensorRT(importlib.import_module(_MODULES[options.family]))
        target = f"{options.family}-{'.'.join(trt.version.split('.')[:2])}"
        with concurrent.futures.ThreadPoolExecutor(max(1, min(6, (os.cpu_count() or 2) // 2))) as pool:
            ran = list(pool.map(lambda command: run(command, folder), commands(target)))
        networks = [look(trt, options.family, place, folder / f"{place}.onnx") for place in models()]
    document = {
        "date": options.date,
        "target": target,
        "tensorrt": trt.version,
        "networks": networks,
        "commands": ran,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    name = NAME if options.family == "tensorrt" else NAME.replace("gpu", "rtx-only")
    (options.out / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for each in ran:
        print(f"{each['name']:<24} exit {each['exit_code']} in {each['seconds']:6.1f} s  {each['verdict']}")
    for each in networks:
        print(f"{each['name']:<24} {each.get('problem') or 'ok'}")
    good = all(each["verdict"] == "ok" for each in ran) and not any(each.get("problem") for each in networks)
    return 0 if good else 1


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--family", choices=list(_MODULES), default="tensorrt")
    return parser.parse_args()


def run(command: Command, folder: Path) -> Row:
    """Calls trtconv and judges how it ended."""
    arguments = [argument.replace("{tmp}", str(folder)) for argument in command.arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "trtconv", *arguments],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        code: int | str = done.returncode
        out, err = scrub(done.stdout, folder), scrub(done.stderr, folder)
    except subprocess.TimeoutExpired:
        code, out, err = "too long", "", ""
    missing = [text for text in command.expect if text not in out + err]
    verdict = (
        "ok" if code == command.exit_code and not missing else f"expected exit {command.exit_code} {missing or ''}"
    )
    return {
        "name": command.name,
        "arguments": list(command.arguments),
        "exit_code": code,
        "verdict": verdict.strip(),
        "seconds": round(time.perf_counter() - started, 2),
        "stdout": document_in(out),
        "stderr": err[-_TEXT:],
    }


def scrub(text: str, folder: Path) -> str:
    """Takes the paths of this machine out."""
    for path, by in ((str(folder), "{tmp}"), (str(ROOT), "."), (sys.prefix, "{python}"), (str(Path.home()), "~")):
        text = text.replace(path, by)
    return text


def document_in(text: str) -> Any:
    """Returns the JSON that a command printed, or the start of what is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text[:_TEXT]


def look(trt: TensorRT, family: str, name: str, path: Path) -> Row:
    """Writes down what the plain parser calls the layers, and what trtconv's adapter and audit make of it."""
    row: Row = {"name": name}
    model = OnnxModel.load(path)
    model.name_nodes("ConvTranspose")
    try:
        network, parser = trt.parse(model.serialize())
        row["layers"] = [layer_of(network.get_layer(i)) for i in range(network.num_layers)]
        del parser
    except Refused as error:
        row["refused"] = error.message[:_TEXT]
    try:
        parsed = tensorrt.load(Target(family)).parse(model.serialize(), path)
    except BuildFailed as error:
        return {**row, "problem": f"the adapter's parser broke down: {error.message}"}
    if isinstance(parsed, tuple):
        row["issues"] = [dataclasses.asdict(issue) for issue in parsed]
        # 8.6 knows no functions; the command inlines them.
        row["problem"] = "" if name in ("refused", "function") else "refused"
        return row
    row["deconvolutions"] = [dataclasses.asdict(layer) for layer in parsed.deconvolutions]
    row["audit"] = [finding.message for finding in audit(model, parsed)]
    # The command inlines functions before it audits.
    good = name in ("refused", "function") or bool(row["audit"]) == (name == "misread")
    row["problem"] = "" if good else f"audit: {row['audit']}"
    return row


def layer_of(layer: Any) -> Row:
    """Describes a layer as TensorRT does."""
    return {"type": layer.type.name, "name": layer.name, "metadata": layer.metadata}


def models() -> dict[str, onnx.ModelProto]:
    """Returns small models: a deconvolution in each kind of graph, one that is misread, and one that is refused."""
    return {
        "main": main_graph(),
        "unnamed": main_graph(names=False),
        "twice": main_graph(twice=True),
        "misread": main_graph(auto_pad="SAME_UPPER", output_padding=[1, 1]),
        "if": in_if(),
        "loop": in_loop(),
        "function": in_function(),
        "refused": refused(),
    }


X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
WEIGHT = numpy_helper.from_array(np.random.default_rng(1).standard_normal((4, 4, 3, 3)).astype(np.float32), "w")
BIAS = numpy_helper.from_array(np.linspace(-1, 1, 4, dtype=np.float32), "b")
SAME = {"strides": [1, 1], "pads": [1, 1, 1, 1]}


def deconv(source: str, output: str, name: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node("ConvTranspose", [source, "w", "b"], [output], name, **attrs)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    more: list[TensorProto] | None = None,
    **kwargs: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [Y], [WEIGHT, BIAS, *(more or [])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets, **kwargs)


def main_graph(*, names: bool = True, twice: bool = False, **attrs: Any) -> onnx.ModelProto:
    first = deconv("x", "a" if twice else "y", "up/ConvTranspose" if names else "", strides=[2, 2], **attrs)
    second = [deconv("a", "y", "up/ConvTranspose_1", strides=[2, 2], pads=[1, 1, 1, 1])] if twice else []
    return model_of([first, *second], [X])


def in_if() -> onnx.ModelProto:
    result = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, None)
    then = helper.make_graph([deconv("x", "inner", "up", **SAME)], "then", [], [result])
    otherwise = helper.make_graph([deconv("x", "other", "down", **SAME)], "otherwise", [], [other])
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    choice = helper.make_node("If", ["flag"], ["y"], "choice", then_branch=then, else_branch=otherwise)
    return model_of([choice], [X, flag])


def in_loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"], "still"), deconv("state", "next", "up", **SAME)],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 4, 8, 8]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, 4, 8, 8]),
        ],
    )
    counts = [numpy_helper.from_array(np.array(2, np.int64), "count"), numpy_helper.from_array(np.array(True), "start")]
    return model_of([helper.make_node("Loop", ["count", "start", "x"], ["y"], "repeat", body=body)], [X], counts)


def in_function() -> onnx.ModelProto:
    node = helper.make_node("ConvTranspose", ["a", "k", "c"], ["r"], "up", strides=[2, 2])
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "Up", ["a", "k", "c"], ["r"], [node], opsets)
    call = helper.make_node("Up", ["x", "w", "b"], ["y"], "block", domain="local")
    return model_of([call], [X], functions=[function])


def refused() -> onnx.ModelProto:
    """Det and Unique in the main graph, a foreign operator in a branch: three refusals."""
    inner = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, None)
    then = helper.make_graph(
        [helper.make_node("Foreign", ["x"], ["inner"], "foreign", domain="local")], "then", [], [inner]
    )
    otherwise = helper.make_graph([helper.make_node("Neg", ["x"], ["other"], "neg")], "otherwise", [], [other])
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    nodes = [
        helper.make_node("Det", ["x"], ["d"], "det"),
        helper.make_node("Unique", ["d"], ["u"], "unique"),
        helper.make_node("If", ["flag"], ["c"], "choice", then_branch=then, else_branch=otherwise),
        deconv("c", "up", "up", **SAME),
        helper.make_node("ReduceMax", ["u"], ["m"], "max", keepdims=0),
        helper.make_node("Add", ["up", "m"], ["y"], "add"),
    ]
    return model_of(nodes, [X, flag])


if __name__ == "__main__":
    raise SystemExit(main())
