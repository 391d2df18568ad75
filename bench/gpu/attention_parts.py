"""Which layer of an attention over one query TensorRT 8.6 computes wrongly: each part alone, and the whole otherwise.

    python bench/gpu/attention_parts.py [--model FILE.onnx] [--jobs 14] [--minutes 1] [--out FOLDER] [--family rtx]

ONNX's node test attention_4d_gqa_causal_nonpad_decode_expanded is parsed as it should be (the proof agrees) and
computed wrongly (bench/results/gpu-node-suite-8.6.json), as nothing with two queries or more is. Written are:

- node-N-OP: one node of it alone, fed with what ONNX Runtime makes of the nodes before it;
- up-to-N-OP: all nodes up to one, with that one's output alone;
- whole-*: the whole as it is, with finite masks, with two queries of which one is cut off, with other batches and
  heads, without mask, without the Where behind the softmax, with its products as sums, and at other levels.

All are built and run by a plain script and compared with ONNX Runtime. The first part that is wrong alone names the
layer; where none is, the builder fuses something, and the first up-to that is wrong says what. Writes
FOLDER/gpu-attention-parts-8.6.json and prints a table. With --model, the parts are those of that file, as it is and as
trtconv writes it, fed as the FILE.pickle of exports.py beside it says; the results are gpu-FILE-parts-8.6.json.
Exit status: 0.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(HERE)]

import node_suite  # noqa: E402

TEST = "test_attention_4d_gqa_causal_nonpad_decode_expanded"
Case = tuple[onnx.ModelProto, dict[str, Any]]


def main() -> int:
    """Writes the parts, runs them and prints what came of each."""
    options = _options()
    if options.worker:
        node_suite.serve(lambda: Bench(options.family))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, (model, feeds) in parts() if options.model is None else parts_of_file(options.model):
            outputs = _run(model, feeds)
            levels = (0, 3, 5) if name in ("whole", "whole-constant", "whole-two-queries") else (0,)
            for level in levels:
                names.append(f"{name}@{level}")
                data = model.SerializeToString()
                Path(folder, f"{names[-1]}.pickle").write_bytes(pickle.dumps((data, feeds, outputs, level)))
        pool = node_suite.Pool(Path(__file__), options, Path(folder))
        jobs = [(name, "raw") for name in names]
        rows = {row["test"]: row for row in pool.run(jobs, time.monotonic() + 60 * options.minutes)}
    options.out.mkdir(parents=True, exist_ok=True)
    of = "attention" if options.model is None else options.model.stem
    file = options.out / f"gpu-{of}-parts-{'8.6' if options.family == 'tensorrt' else 'rtx'}.json"
    report = {"gpu": node_suite.gpu(), "rows": [rows.get(name, {"test": name}) for name in names]}
    file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name in names:
        row = rows.get(name, {"verdict": "left"})
        print(f"{name:44}{row['verdict']:>10}  {str(row.get('why', ''))[:110]}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--family", choices=("tensorrt", "rtx"), default="tensorrt")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


class Bench:
    """TensorRT in a worker."""

    def __init__(self, family: str) -> None:
        self._suite = node_suite.Bench(family)
        self._family = family

    def do(self, way: str, name: str, folder: Path) -> dict[str, Any]:
        """Builds and runs one part."""
        from trt86 import Options, Refused

        data, feeds, expected, level = pickle.loads((folder / f"{name}.pickle").read_bytes())
        try:
            plan = self._suite.plain.build(data, Options(level=level))
            if self._family == "rtx":
                return {"verdict": "built"}
            got = self._suite.execute(plan, feeds, expected)
        except Refused as error:
            return {"verdict": "refused", "why": error.message[: node_suite.TEXT]}
        verdict, why = node_suite.verdict_of(got, expected)
        first = {key: np.asarray(value).reshape(-1)[:8].tolist() for key, value in got.items()}
        return {"verdict": verdict, "why": why, "got": first if verdict != "right" else None}


def parts() -> Iterator[tuple[str, Case]]:
    """Yields every part by name."""
    import proof_suite

    case = next(case for case in proof_suite.cases() if case[0] == TEST)
    given = case[1]
    model, feeds = _lowered(given), dict(zip((each.name for each in given.graph.input), case[2], strict=True))
    fixed = proof_suite.constant_inputs(given, case[2])
    assert fixed is not None
    yield "whole", (model, feeds)
    yield "whole-constant", (_lowered(fixed), {"Q": feeds["Q"]})
    yield from _of_nodes(model, feeds)
    yield from _attentions()


def parts_of_file(file: Path) -> Iterator[tuple[str, Case]]:
    """Yields the parts of one exported network by name, as it is and as trtconv writes it."""
    _, runs = pickle.loads(file.with_suffix(".pickle").read_bytes())
    feeds = runs[0][0]
    for way, model in (("raw", _short(onnx.load(file))), ("written", _lowered(onnx.load(file)))):
        yield f"{way}-whole", (model, feeds)
        for name, case in _of_nodes(model, feeds):
            yield f"{way}-{name}", case


def _lowered(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns what trtconv writes of a model for TensorRT 8.6."""
    from trtconv.core.target import Target
    from trtconv.graph.model import OnnxModel
    from trtconv.passes import passes_for, run_passes

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    written = OnnxModel(copy, Path("model.onnx"))
    run_passes(written, passes_for("fp32"), Target("tensorrt", (8, 6)))
    return _short(written.proto)


def _short(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model whose tensors have short names, of an IR version that every reader takes."""
    model.ir_version = 8
    names: dict[str, str] = {}
    outside = {each.name for each in (*model.graph.input, *model.graph.output)}

    def short(name: str) -> str:
        return names.setdefault(name, name if name in outside or not name else name.rpartition("_function_")[2])

    for node in model.graph.node:
        node.input[:], node.output[:] = map(short, node.input), map(short, node.output)
        node.name = ""
    for tensor in model.graph.initializer:
        tensor.name = short(tensor.name)
    del model.graph.value_info[:]
    return model


def _of_nodes(model: onnx.ModelProto, feeds: dict[str, Any]) -> Iterator[tuple[str, Case]]:
    constants = {each.name: each for each in model.graph.initializer}
    every = onnx.ModelProto()
    every.CopyFrom(model)
    made = [name for node in model.graph.node for name in node.output]
    del every.graph.output[:]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    values = {**feeds, **_run(every, feeds)}
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Identity":
            continue
        fed = {name: values[name] for name in node.input if name and name not in constants}
        kept = [constants[name] for name in node.input if name in constants]
        yield f"node-{number:02}-{node.op_type}", (_model([node], fed, node.output[0], kept), fed)
        part = _model(list(model.graph.node[: number + 1]), feeds, node.output[0], list(constants.values()))
        cut = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(part))
        used = sorted(_reads(model, node.output[0]) & feeds.keys())
        if used:
            yield f"up-to-{number:02}-{node.op_type}", (cut.extract_model(used, [node.output[0]]), _of(feeds, used))


def _of(feeds: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: feeds[name] for name in names}


def _reads(model: onnx.ModelProto, name: str) -> set[str]:
    """Returns whatever a tensor is made of."""
    found = {name}
    for node in reversed(model.graph.node):
        if found & set(node.output):
            found |= set(node.input)
    return found


def _model(nodes: list[onnx.NodeProto], feeds: dict[str, Any], output: str, constants: list[Any]) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    graph = helper.make_graph(nodes, "part", inputs, [onnx.ValueInfoProto(name=output)], constants)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return onnx.shape_inference.infer_shapes(model)


def _attentions() -> Iterator[tuple[str, Case]]:
    """Yields attentions written down plainly, which differ from one another in one thing."""
    masked = np.zeros((2, 1, 1, 8), np.float32)
    masked[1, ..., 5:] = -np.inf
    finite = np.maximum(masked, -1e4)
    yield "whole-plain", attention(2, 4, 1, masked)
    yield "whole-plain-inputs", attention(2, 4, 1, masked, constant=False)
    yield "whole-finite-mask", attention(2, 4, 1, finite)
    yield "whole-no-mask", attention(2, 4, 1, None)
    yield "whole-no-mask-inputs", attention(2, 4, 1, None, constant=False)
    yield "whole-mask-alike", attention(2, 4, 1, masked[1:])
    yield "whole-mask-of-heads", attention(2, 4, 1, np.repeat(masked, 4, 1))
    yield "whole-no-where", attention(2, 4, 1, masked, where=False)
    yield "whole-one-batch", attention(1, 4, 1, masked[1:])
    yield "whole-one-head", attention(2, 1, 1, masked)
    yield "whole-two-queries-plain", attention(2, 4, 2, masked)
    yield "whole-two-queries", attention(2, 4, 1, masked, rewrite=_two_queries)
    yield "whole-two-rows-a-product", attention(2, 4, 1, masked, rewrite=_two_rows)
    yield "whole-sums", attention(2, 4, 1, masked, rewrite=_sums)
    yield "whole-flat-batch", attention(8, 1, 1, np.repeat(masked, 4, 0))
    for product, other in (("scores", (2, 4, 8, 16)), ("values", (2, 4, 8, 8))):
        random = np.random.default_rng(1)
        feeds = {"a": random.standard_normal((2, 4, 1, 8)).astype(np.float32)}
        b = random.standard_normal(other).astype(np.float32)
        node = helper.make_node("MatMul", ["a", "b"], ["y"])
        yield f"product-{product}-constant", (_model([node], feeds, "y", [numpy_helper.from_array(b, "b")]), feeds)
        both = {**feeds, "b": b}
        yield f"product-{product}-inputs", (_model([node], both, "y", []), both)


def attention(
    batch: int,
    heads: int,
    queries: int,
    mask: Any,
    *,
    constant: bool = True,
    where: bool = True,
    rewrite: Callable[[list[onnx.NodeProto]], list[onnx.NodeProto]] = list,
) -> Case:
    """Writes an attention over eight keys: product, mask, softmax, Where, product."""
    random = np.random.default_rng(5)
    feeds = {"q": random.standard_normal((batch, heads, queries, 8)).astype(np.float32)}
    others = {name: random.standard_normal((batch, heads, 8, 8)).astype(np.float32) for name in ("k", "v")}
    fixed = {} if mask is None else {"mask": mask}
    if where:
        fixed |= {"none": np.zeros((batch, 1, 1, 1), bool), "zero": np.zeros(1, np.float32)}
    (fixed if constant else feeds).update(others)
    nodes = [helper.make_node("MatMul", ["q", "k"], ["scores"])]
    nodes += [helper.make_node("Add", ["scores", "mask"], ["masked"])] if mask is not None else []
    nodes += [helper.make_node("Softmax", ["masked" if mask is not None else "scores"], ["shares"], axis=-1)]
    nodes += [helper.make_node("Where", ["none", "zero", "shares"], ["safe"])] if where else []
    nodes += [helper.make_node("MatMul", ["safe" if where else "shares", "v"], ["y"])]
    numbers = {"two": np.array([1, 1, 2, 1]), "0": np.array([0]), "1": np.array([1]), "-2": np.array([-2])}
    constants = [numpy_helper.from_array(value, name) for name, value in {**fixed, **numbers}.items()]
    return _model(rewrite(nodes), feeds, "y", constants), feeds


def _two_queries(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The one query twice through everything."""
    nodes[0].input[0], nodes[-1].output[0] = "twice", "both"
    cut = helper.make_node("Slice", ["both", "0", "1", "-2"], ["y"])
    return [helper.make_node("Concat", ["q", "q"], ["twice"], axis=-2), *nodes, cut]


def _two_rows(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Each product with its row twice."""
    found = []
    for node in nodes:
        if node.op_type == "MatMul":
            row, result = node.input[0], node.output[0]
            node.input[0], node.output[0] = f"{row}.twice", f"{result}.both"
            found += [helper.make_node("Concat", [row, row], [f"{row}.twice"], axis=-2), node]
            found.append(helper.make_node("Slice", [f"{result}.both", "0", "1", "-2"], [result]))
        else:
            found.append(node)
    return found


def _sums(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Each product as a sum of products."""
    found = []
    for number, node in enumerate(nodes):
        if node.op_type == "MatMul":
            column, wide = f"column{number}", f"wide{number}"
            found.append(helper.make_node("Transpose", [node.input[0]], [column], perm=[0, 1, 3, 2]))
            found.append(helper.make_node("Mul", [column, node.input[1]], [wide]))
            found.append(helper.make_node("ReduceSum", [wide, "-2"], [node.output[0]], keepdims=1))
        else:
            found.append(node)
    return found


def _run(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """Returns what ONNX Runtime makes of a model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


if __name__ == "__main__":
    sys.exit(main())
