"""Runs pieces of a model on ONNX Runtime, in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from trtconv.core import process
from trtconv.graph.arrays import Array
from trtconv.graph.checker import attribute_names
from trtconv.graph.light_file import light_model
from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import all_nodes, constant_of, reads
from trtconv.runtimes.foreign_nodes import foreign_nodes
from trtconv.runtimes.light_session import give_values, large_weights
from trtconv.runtimes.onnxruntime import first_line, import_runtime
from trtconv.runtimes.proof import rewritten_runs
from trtconv.runtimes.proof.feeds import CALM, InputKind, make
from trtconv.runtimes.proof.reference import Wanted, has_shape, runs, serve, typed
from trtconv.runtimes.proof.shaken import shaken, steps, take_magnitudes, widen_interpolations
from trtconv.runtimes.proof.task import Look, Task, adds
from trtconv.runtimes.proof.tolerance import PERTURBATION
from trtconv.runtimes.tensorrt.readback.types import numpy_type

Computes = Callable[[Mapping[str, Array]], Array]

_MOST_DRAWS = 400
"""How many values are tried of integers that decide sizes."""
_EXACT = frozenset(
    (  # noqa: SIM905
        "Abs And ArgMax ArgMin Cast CastLike Ceil Clip Concat Constant ConstantOfShape DepthToSpace Equal Expand "
        "Flatten Floor Gather GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual Identity IsInf IsNaN Less "
        "LessOrEqual Max MaxPool Min Neg Not OneHot Or Pad ReduceMax ReduceMin Relu Reshape Round Shape Sign Size "
        "Slice SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unsqueeze Where Xor"
    ).split()
)
"""Operators that round nothing, but as they are defined to."""
_SHAKES = 2
"""How often the weights of a piece are moved, beside its inputs, to measure the condition."""
_FEW_UNITS = 4
_MOST_ELEMENTS = 1 << 16
"""Of the sources of a piece that is run without threads."""


def share() -> None:
    """Loads what the process that starts this one needs too, before it is forked."""
    # ONNX makes all its operators when it is first asked for one.
    attribute_names("Identity", 1)


def prepare() -> None:
    """Loads what `Models` needs, in a process that is started before it is asked for."""
    import_runtime()


class Models:
    """The process: runs the whole model, pieces of it, and those that passes changed; keeps the model from one call to
    the next."""

    def __init__(self) -> None:
        self._model: OnnxModel | None = None
        self._file: OnnxModel | None = None

    def __call__(
        self,
        argument: tuple[str, bytes | None, Sequence[Task], str] | tuple[Wanted, str, float] | rewritten_runs.Pairs,
        tell: process.Tell,
    ) -> None:
        """Runs the whole model, as `reference.serve`, or pieces, and tells of each as soon as it is done.

        Args:
            argument: What the whole is wanted for; or where the model lies, the model where it is not the file, the
                pieces, a folder for arrays; or what passes changed, for `rewritten_runs.serve`.
            tell: Hears {"event": "begin", "number"} and {"event": "piece", "number", "file", "arrays", "calm", "why"};
                the file has the values of the arrays one behind the other.
        """
        if isinstance(argument, rewritten_runs.Pairs):
            rewritten_runs.serve(argument, tell)
        elif len(argument) == 3:
            goal = argument[0]
            # Inner tensors are made outputs of the model.
            serve(argument, tell, None if goal.inner or goal.model is not None else self._read(goal.path))
        else:
            self._run_pieces(*argument, tell)
            return
        # Graphs and what is known of them refer to each other.
        gc.collect()

    def _read(self, path: str) -> OnnxModel:
        """Returns the model of a file, the same in each call, which is read once."""
        if self._file is None:
            self._file = light_model(Path(path))
        return self._file

    def _run_pieces(
        self, path: str, data: bytes | None, tasks: Sequence[Task], folder: str, tell: process.Tell
    ) -> None:
        if self._model is None:
            proto = None if data is None else onnx.load_model_from_string(data)
            self._model = self._read(path) if proto is None else OnnxModel(proto, Path(path))
        for task in tasks:
            tell({"event": "begin", "number": task.number})
            arrays, calm, why = _run(self._model, task)
            path_of_arrays = Path(folder, f"{task.number}-{int(task.look)}.bin")
            with path_of_arrays.open("wb") as file:
                for values in arrays.values():
                    # Not `tofile`, which does not tell of a disk that is full.
                    file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            kinds = {name: [_plain(values.dtype), str(values.dtype), values.shape] for name, values in arrays.items()}
            answer = {"number": task.number, "file": str(path_of_arrays), "arrays": kinds, "calm": calm, "why": why}
            tell({"event": "piece", **answer})


def load(event: Mapping[str, Any]) -> dict[str, Array]:
    """Returns the arrays that an answer of `Models` tells of."""
    with Path(event["file"]).open("rb") as file:
        return {
            name: typed(np.fromfile(file, plain, math.prod(shape)).reshape(shape), dtype)
            for name, (plain, dtype, shape) in event["arrays"].items()
        }


def _plain(dtype: np.dtype[Any]) -> str:
    """Returns the type as which a file holds values: those of ml_dtypes are raw bytes."""
    return dtype.str if dtype.kind in "fiub" else f"V{dtype.itemsize}"


def _run(model: OnnxModel, task: Task) -> tuple[dict[str, Array], dict[str, int], str]:
    """Returns arrays by "value 0" for the kind, "terms 0", "moved 0 1"; how calm each kind had to be; why none."""
    part = _cut(model, task)
    if isinstance(part, str):
        return {}, {}, part
    weights = _weights(part, model)
    computes = _computes(part, model.path, task, weights)
    if isinstance(computes, str):
        return {}, {}, computes
    arrays: dict[str, Array] = {}
    calms: dict[str, int] = {}
    inputs: dict[InputKind, Mapping[str, Array]] = {}
    why = "no inputs were found that it takes"
    ways: Sequence[int] = range(CALM[-1] + 1 + _MOST_DRAWS) if task.sizing else CALM
    for kind in task.kinds:
        run = _first(computes, task, kind, (task.calms[kind],) if kind in task.calms else ways)
        if isinstance(run, str):
            why = run
            continue
        calm, feeds, value = run
        if value.dtype.kind in "OUS":
            return {}, {}, "its result is not a tensor of numbers"
        if calm > CALM[-1]:
            ways = (calm, *CALM)
        arrays[f"value {int(kind)}"], calms[str(int(kind))], inputs[kind] = value, calm, feeds
        if task.look is Look.MOVED:
            steps = {"moved": PERTURBATION, **({"beside": _FEW_UNITS * task.eps} if _rounds(part) else {})}
            arrays.update(_nearby(computes, feeds, kind, steps))
            arrays.update(_shaken(part, model, task, feeds, kind))
    # What the next session takes comes in its place.
    del computes
    if task.look is not Look.VALUES:
        arrays.update(_terms(part, model, task, inputs, weights))
    return arrays, calms, "" if calms else why


def _terms(
    part: onnx.ModelProto,
    model: OnnxModel,
    task: Task,
    inputs: Mapping[InputKind, Mapping[str, Array]],
    weights: dict[str, Array],
) -> Iterator[tuple[str, Array]]:
    """Yields what a sum of products computes of the magnitudes of its inputs and weights, which become that."""
    if not inputs or not adds(part.graph.node):
        return
    computes = _computes(_absolute(part, model, weights), model.path, task, weights)
    if isinstance(computes, str):
        return
    for kind, feeds in inputs.items():
        with contextlib.suppress(Exception):
            terms = computes({n: _magnitude(v) for n, v in feeds.items()})
            yield f"terms {int(kind)}", terms * np.asarray(steps(part, terms), terms.dtype)


def _first(
    computes: Computes, task: Task, kind: InputKind, ways: Sequence[int]
) -> tuple[int, Mapping[str, Array], Array] | str:
    """Returns the first inputs that a piece takes, as (how calm, inputs, result); why there are none."""
    why = ""
    for calm in ways:
        feeds = make(task.sources, task.shapes, kind, task.limits, task.largest, calm)
        try:
            value = np.asarray(computes(feeds))
        except Exception as error:  # ONNX Runtime raises its own types, one for each status.
            why = why or first_line(error)
            continue
        if not task.sizing or has_shape(value, task.result):
            return calm, feeds, value
        why = "no values were found for which the result has the shape that it is known to have"
    return why


def _rounds(part: onnx.ModelProto) -> bool:
    """Whether anything in a piece rounds: what only compares or moves the values that it is fed has no border that
    rounding might cross."""
    return any(node.op_type not in _EXACT for node in all_nodes(part.graph.node))


def _nearby(
    computes: Computes, feeds: Mapping[str, Array], kind: InputKind, steps: Mapping[str, float]
) -> Iterator[tuple[str, Array]]:
    """Yields the results on inputs that are moved by steps: to both sides, for there may be a border on one of them; of
    several inputs, with each other and against each other."""
    random = np.random.default_rng(int(kind))
    signs = {name: random.choice([-1.0, 1.0], values.shape) for name, values in feeds.items()}
    floats = [name for name, values in feeds.items() if values.dtype.kind in "fV"]
    ways = [(), floats, *((floats[::2], floats[1::2]) if len(floats) > 1 else ())]
    for number, turned in enumerate(ways):
        for what, step in steps.items():
            by = {name: -step if name in turned else step for name in feeds}
            moved = {name: _moved(values, by[name] * signs[name]) for name, values in feeds.items()}
            with contextlib.suppress(Exception):
                yield f"{what} {int(kind)} {number}", computes(moved)


def _shaken(
    part: onnx.ModelProto, model: OnnxModel, task: Task, feeds: Mapping[str, Array], kind: InputKind
) -> Iterator[tuple[str, Array]]:
    """Yields the results where weights and intermediate results are moved a little, as further moved inputs."""
    for number in range(_SHAKES):
        moved = shaken(part, model, PERTURBATION, number)
        computes = _computes(moved, model.path, task, None)
        if not isinstance(computes, str):
            with contextlib.suppress(Exception):
                yield f"moved {int(kind)} weights {number}", computes(feeds)


def _moved(values: Array, by: Array) -> Array:
    if values.dtype.kind not in "fV":
        return values
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        return np.asarray(wide * (1 + by)).astype(values.dtype)


def _magnitude(values: Array) -> Array:
    return np.abs(values) if values.dtype.kind in "fV" else values


def _cut(model: OnnxModel, task: Task) -> onnx.ModelProto | str:
    """Returns a piece as a model, or why it cannot be one."""
    scope = model.main
    nodes = [scope.columns.nodes[index] for index in task.nodes]
    part = onnx.ModelProto(ir_version=max(4, model.proto.ir_version))
    part.opset_import.extend(model.proto.opset_import)
    part.functions.extend(model.proto.functions)
    part.graph.name = "piece"
    sources = {source.name for source in task.sources}
    for source in task.sources:
        own = int(onnx.helper.np_dtype_to_tensor_dtype(numpy_type(source.dtype)))
        # NumPy has not all types: ONNX Runtime is given wider values, which it casts.
        wider = own if np.dtype(numpy_type(source.dtype)).kind in "fiub" else onnx.TensorProto.FLOAT
        name = source.name if wider == own else f"{source.name}:wide"
        kind = part.graph.input.add(name=name).type.tensor_type
        kind.elem_type = wider
        # Of a part of a shape of no known rank ONNX Runtime makes no sizes at all, and refuses who reads them.
        for _ in task.shapes[source.name]:
            kind.shape.dim.add()
        if wider != own:
            part.graph.node.append(onnx.helper.make_node("Cast", [name], [source.name], to=own))
    part.graph.node.extend(nodes)
    computed = {name for node in nodes for name in node.output}
    sparse = {initializer.values.name: initializer for initializer in scope.graph.sparse_initializer}
    for name in sorted({name for node in nodes for name in reads(node)} - computed - sources):
        tensor = scope.initializer(name)
        if tensor is not None:
            part.graph.initializer.add().CopyFrom(tensor)
        elif name in sparse:
            part.graph.sparse_initializer.append(sparse[name])
        else:
            return f"it reads {name!r}, which nothing makes"
    result = task.target
    if task.narrow:
        result = f"{task.target}:wide"
        part.graph.node.append(onnx.helper.make_node("Cast", [task.target], [result], to=onnx.TensorProto.FLOAT))
    part.graph.output.add(name=result)
    return part


def _weights(part: onnx.ModelProto, model: OnnxModel) -> dict[str, Array]:
    """Returns the large weights of a piece, read once for all of its sessions."""
    if foreign_nodes(part):
        return {}
    return {name: model.array(tensor) for name, tensor in large_weights(OnnxModel(part, model.path)).items()}


def _computes(part: onnx.ModelProto, path: Path, task: Task, weights: Mapping[str, Array] | None) -> Computes | str:
    run = runs(OnnxModel(part, path), (), weights, small=task.elements <= _MOST_ELEMENTS)
    if isinstance(run, str):
        return run
    wide = {value.name for value in part.graph.input}
    (result,) = (value.name for value in part.graph.output)

    def computes(feeds: Mapping[str, Array]) -> Array:
        inputs = {
            name if name in wide else f"{name}:wide": values if name in wide else values.astype(np.float32)
            for name, values in feeds.items()
        }
        value: Array = dict(run(inputs))[result]
        return value

    return computes


def _absolute(part: onnx.ModelProto, model: OnnxModel, weights: dict[str, Array]) -> onnx.ModelProto:
    """Returns the piece with magnitudes for weights, the large ones in their dictionary, and sums for differences."""
    copy = onnx.ModelProto()
    copy.CopyFrom(part)
    widen_interpolations(copy, model)
    negative = {node.input[3] for node in copy.graph.node if node.op_type == "BatchNormalization"}
    for tensor in copy.graph.initializer:
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE):
            magnitudes = weights[tensor.name] if tensor.name in weights else model.array(tensor)
            # In their place, where they may be written: the largest weight is what the process takes most for.
            place = magnitudes if magnitudes.flags.writeable else None
            magnitudes = np.abs(magnitudes, out=place)
            if tensor.name in negative:
                magnitudes = np.negative(magnitudes, out=magnitudes)
            if tensor.name in weights:
                weights[tensor.name] = magnitudes
            else:
                give_values(tensor, magnitudes)
    for node in copy.graph.node:
        constant = constant_of(node)
        if node.op_type in ("Sub", "Mod"):
            _add_instead(node, model)
        elif constant is not None and constant.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            values = np.abs(model.array(constant))
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(values)))
        for attribute in node.attribute:
            if node.op_type == "Gemm" and attribute.name in ("alpha", "beta"):
                attribute.f = abs(attribute.f)
    take_magnitudes(copy.graph, model)
    return copy


def _add_instead(node: onnx.NodeProto, model: OnnxModel) -> None:
    """Makes a sum of a difference; and of a remainder what is divided, from which TensorRT subtracts a product."""
    if node.op_type == "Sub":
        node.op_type = "Add"
    elif "float" in (model.main.dtype(node.output[0]) or ""):
        node.op_type = "Max"
        del node.attribute[:]
