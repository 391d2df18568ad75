"""Runs models on ONNX Runtime, the reference for what a model means, and compares two of them."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core import budget, process
from trtconv.core.decode import decoded
from trtconv.core.dims import InputSpec, elements_of
from trtconv.core.documents.rewrite import Comparison
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import dtype_name
from trtconv.graph.views import quantizes
from trtconv.graph.walk import all_nodes
from trtconv.runtimes.assumed import Shapes, assumed_shapes
from trtconv.runtimes.compare import SHARE_STEP, relative_error, same_network
from trtconv.runtimes.definition import write_out
from trtconv.runtimes.foreign_nodes import foreign_nodes, with_foreign_bodies
from trtconv.runtimes.hybrid import HybridSession
from trtconv.runtimes.light_session import LightSession, large_weights, make_inputs, without_values

_MOST_ELEMENTS = 1 << 26
"""Elements of all inputs together beyond which nothing is run."""
_PATIENCE_SECONDS = 15.0
"""How long sizes are looked for that a model takes."""
_MOST_THREADS = 16
"""Of a session: it would start one a core, each with a stack of 8 MB, and wait for ever where memory ends before."""
_NEWEST_IR = 10
"""IR versions above are read by newer ONNX Runtimes only, and mean the same for what is compared here."""


def tolerance(model: OnnxModel) -> float:
    """Returns how far an exact rewrite of a model may be from it, by the coarsest type of its weights and inputs."""
    return same_network(element_types(model), quantizes(model))


def element_types(model: OnnxModel) -> set[str]:
    """Returns the types of a model's weights and inputs, as ONNX names them in lower case."""
    codes = {tensor.data_type for tensor in model.proto.graph.initializer}
    return {dtype_name(code) for code in codes} | {spec.dtype for spec in model.inputs}


_SMALLEST_HALF = 2.0**-24


def output_steps(model: OnnxModel) -> dict[str, float]:
    """Returns by how much outputs may be off besides: those of a DequantizeLinear with one constant scale by that,
    shares of 1 by `SHARE_STEP`, and all by the smallest float16 where there are some: ONNX Runtime has no kernels for
    it here and computes chains of them in float32."""
    half = onnx.TensorProto.FLOAT16 in model.main.types.values()
    steps = dict.fromkeys(model.outputs, _SMALLEST_HALF) if half else {}
    for name in model.outputs:
        maker = model.main.producer(name)
        if maker is not None and maker.op_type in ("Sigmoid", "Tanh", "Softmax"):
            steps[name] = SHARE_STEP
        if maker is not None and maker.op_type == "DequantizeLinear":
            scale = model.main.values(maker.input[1])
            if scale is not None and scale.size == 1:
                steps[name] = float(scale.reshape(-1)[0])
    return steps


def compare_models(
    original: OnnxModel,
    rewritten: OnnxModel,
    *,
    resized: bool = False,
    traced: Sequence[Shapes] = (),
    further: Sequence[Shapes] = (),
) -> Comparison:
    """Runs a model and its rewrite on the same random inputs.

    Args:
        original: The model as it was read.
        rewritten: The model after the passes.
        resized: Sizes that were baked into the original were taken out, so that its results have other shapes wherever
            the inputs have other sizes than those: sizes at which the shapes agree are looked for.
        traced: The input shapes at which the original is known to be right, where they are; no others are then tried.
        further: Input shapes at which the rewritten model must run, by itself, where it was compared.
    """
    before, after = session(original), session(rewritten)
    if isinstance(before, str):
        return _unknown(f"ONNX Runtime does not load the model: {before}")
    if isinstance(after, str):
        return _unknown(f"ONNX Runtime does not load the rewritten model: {after}", math.inf)
    foreign = [spec.name for spec in original.inputs if spec.dtype == "undefined"]
    if foreign:
        return _unknown(f"input {foreign[0]!r} is not a tensor")
    result = _compare(original, before, after, resized, traced)
    error = result.max_relative_error
    if further and error is not None and math.isfinite(error):
        return _alone(original, after, further, result)
    return result


def _compare(original: OnnxModel, before: Any, after: Any, resized: bool, traced: Sequence[Shapes]) -> Comparison:
    # Loaded only here, with what knows of sizes.
    from trtconv.runtimes.proof.places import apart

    result = _unknown("no input sizes were found that the model accepts")
    started, steps = time.monotonic(), output_steps(original)
    for shapes in traced or assumed_shapes(original):
        if time.monotonic() - started > _PATIENCE_SECONDS:
            break
        if _is_large(shapes):
            outcome: _Run | str = "its inputs are too large"
        else:
            outcome = _run_both(before, after, apart(original, random_feeds(original.inputs, shapes)), steps)
        if isinstance(outcome, str):
            result = result if result.inputs else _unknown(outcome)
            continue
        if not resized or outcome.same_shapes:
            return outcome.result
        result = result if result.inputs else outcome.result
    return result


def _is_large(shapes: Shapes) -> bool:
    return elements_of(shapes) > _MOST_ELEMENTS


def _alone(original: OnnxModel, after: Any, further: Sequence[Shapes], result: Comparison) -> Comparison:
    """Runs the rewritten model at sizes that the original does not accept; returns the result with what came of it."""
    from trtconv.runtimes.proof.places import apart

    ran, started = list[Shapes](), time.monotonic()
    for shapes in further:
        if _is_large(shapes) or time.monotonic() - started > _PATIENCE_SECONDS:
            continue
        try:
            after.run(None, apart(original, random_feeds(original.inputs, shapes)))
        except Exception as error:
            raise_if_starved(error)
            why = f"ONNX Runtime does not run the rewritten model at {_listed(shapes)}: {first_line(error)}"
            return _unknown(why, math.inf, shapes)
        ran.append(shapes)
    return dataclasses.replace(result, alone=tuple(ran))


@frozen
class _Run:
    """What came of running two models on the same inputs."""

    result: Comparison
    same_shapes: bool = False


def _run_both(before: Any, after: Any, feeds: dict[str, NDArray[Any]], steps: Mapping[str, float]) -> _Run | str:
    """Runs two models; returns why not where the first does not run."""
    inputs = {name: values.shape for name, values in feeds.items()}
    try:
        expected = before.run(None, feeds)
    except Exception as error:
        raise_if_starved(error)
        return f"ONNX Runtime does not run the original: {first_line(error)}"
    try:
        got = after.run(None, feeds)
    except Exception as error:
        raise_if_starved(error)
        why = f"ONNX Runtime does not run the rewritten model: {first_line(error)}"
        return _Run(_unknown(why, math.inf, inputs))
    outputs = zip(before.get_outputs(), expected, got, strict=True)
    worst = max((relative_error(a, b, steps.get(output.name, 0.0)) for output, a, b in outputs), default=0.0)
    same = [np.shape(a) for a in expected] == [np.shape(b) for b in got]
    if worst == 0 and expected and not any(_is_telling(values) for values in expected):
        return _Run(_unknown("the model returns nothing but NaN and infinities", None, inputs), same)
    return _Run(Comparison(worst, None, inputs), same)


def _is_telling(values: Any) -> bool:
    """Whether an output shows anything: one that is all NaN is equal to any other that is."""
    is_float = isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.size > 0
    return not is_float or bool(np.isfinite(values).any())


def compare_safely(
    original: OnnxModel,
    rewritten: OnnxModel,
    *,
    resized: bool = False,
    traced: Sequence[Shapes] = (),
    further: Sequence[Shapes] = (),
) -> Comparison:
    """Does as `compare_models` in a process of its own: some models end the process that ONNX Runtime runs in.

    Raises:
        BudgetExceeded: The model asks for more time or memory than it may have.
    """
    options = {"resized": resized, "traced": list(traced), "further": list(further)}
    task = (str(original.path), options, original.serialize(), rewritten.serialize())
    seconds, megabytes = budget.allowance(original.nbytes + rewritten.nbytes)
    try:
        answer = process.call("trtconv.runtimes.onnxruntime:serve", task, seconds, megabytes=megabytes)
    except process.Lost as lost:
        # The sizes were chosen here, and are small where the file lets them be.
        blame_file(lost, original, seconds, megabytes, fixed=True)
        why = {
            "time": f"took longer than {seconds:.0f} s over the models ({budget.current().flag} seconds=N)",
            "memory": "ran out of memory on the models",
            "file": f"broke down: {lost.why}",
            "crash": f"broke down on the models ({lost.why})",
        }
        return _unknown(f"ONNX Runtime {why[lost.cause]}")
    except process.WorkerBug as bug:
        return _unknown(f"ONNX Runtime broke down on the models ({bug.summary})")
    return decoded(Comparison, answer)


def blame_file(lost: process.Lost, model: OnnxModel, seconds: float, megabytes: float, *, fixed: bool) -> None:
    """Tells a file that asks for too much from a process that was lost for another reason.

    Args:
        lost: What became of the process that ran the model.
        model: The model.
        seconds: How long it was allowed to take.
        megabytes: How much memory it was allowed to take.
        fixed: Whether the file says at which sizes it runs, and not the user.

    Raises:
        BudgetExceeded: The file's own sizes take too much memory, or its own loops too much time.
    """
    if lost.cause == "memory" and fixed:
        raise budget.exceeded("megabytes", f"running it on ONNX Runtime takes more than {megabytes:.0f} MB of memory")
    loop = next((scope.location(index) for scope, index, _ in model.whole.nodes("Loop", "Scan")), None)
    if lost.cause == "time" and loop is not None:
        raise budget.exceeded("seconds", f"running it on ONNX Runtime takes longer than {seconds:.0f} s", loop)


def serve(task: tuple[str, dict[str, Any], bytes, bytes], _: process.Tell) -> dict[str, object]:
    """Compares the models of `compare_safely`, in a process of its own."""
    path, options, *models = task
    original, rewritten = (OnnxModel(onnx.load_model_from_string(data), Path(path)) for data in models)
    return compare_models(original, rewritten, **options).to_json()


def _unknown(why: str, error: float | None = None, inputs: Shapes | None = None) -> Comparison:
    return Comparison(error, why, inputs or {})


def _listed(shapes: Shapes) -> dict[str, list[int]]:
    return {name: list(shape) for name, shape in shapes.items()}


_REFUSED_MEMORY = ("ailed to allocate memory", "bad_alloc", "would require more than")


def raise_if_starved(error: Exception) -> None:
    """Tells a want of memory from what else ONNX Runtime raises, for which it has one type.

    Raises:
        MemoryError: It was that.
    """
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in _REFUSED_MEMORY):
        raise MemoryError from error


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, cut where it is long."""
    return str(error).strip().partition("\n")[0][:300]


def session(
    model: OnnxModel, late: bool = False, weights: Mapping[str, NDArray[Any]] | None = None, *, small: bool = False
) -> Any:
    """Returns a model in ONNX Runtime as an InferenceSession, or, as a text, why that does not load it.

    Nodes of other operators than ONNX's are run by their references (`plugins`).

    Args:
        model: The model.
        late: Whether weights are dequantised one by one, when they are needed, and not all at first.
        weights: Values of its `large_weights`, where they are not those of the model or were read before; it has no
            nodes of other operators then. None: the model's are read.
        small: Whether it is run on so little that threads take longer to start than they save.
    """
    holders = with_foreign_bodies(model.proto)
    if holders or foreign_nodes(model.proto):
        whole = onnx.ModelProto()
        whole.CopyFrom(model.proto)
        folder = Path(model.path).parent
        return HybridSession(
            whole, foreign_nodes(whole), holders, folder, lambda part: session(OnnxModel(part, model.path), small=small)
        )
    if weights is None:
        weights = {name: model.array(tensor) for name, tensor in large_weights(model).items()}
    copy = OnnxModel(without_values(model.proto, weights), model.path)
    copy.proto.ir_version = min(copy.proto.ir_version, _NEWEST_IR)
    write_out(copy)
    make_inputs(copy.proto, weights)
    # It refuses names that occur twice, as TensorRT does not; they mean nothing here.
    for node in all_nodes(copy.proto.graph.node):
        node.name = ""
    loaded = session_of(copy.proto.SerializeToString(), Path(model.path).parent, late, small=small)
    return loaded if isinstance(loaded, str) or not weights else LightSession(loaded, weights)


def import_runtime() -> None:
    """Imports ONNX Runtime, which is otherwise done where a model is first run."""
    import onnxruntime  # noqa: F401


def session_options() -> Any:
    """Returns the options of every session: what a model means is asked for, not how fast it can be."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # An arena would keep what a session took once, and there are many; most run once.
    options.enable_cpu_mem_arena = False
    # Optimizations may themselves change a deconvolution's pads.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if (os.cpu_count() or 1) > _MOST_THREADS:
        options.intra_op_num_threads = _MOST_THREADS
    return options


def session_of(
    model: Path | bytes, folder: Path, late: bool = False, *, small: bool = False, mapped: bool = False
) -> Any:
    """Does as `session` for a model as it is, in a file or serialized.

    Args:
        model: The model.
        folder: Where its external data lies.
        late: As for `session`.
        small: As for `session`.
        mapped: Leave external data in its file, mapped into memory, instead of copies arranged for many runs.
    """
    import onnxruntime

    options = session_options()
    if small:
        options.intra_op_num_threads = 1
    if mapped:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if late:
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=False)
    except Exception as error:  # It raises its own types, one for each status.
        return first_line(error)


def random_feeds(
    inputs: Sequence[InputSpec], shapes: Mapping[str, Sequence[int]], seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Makes inputs of a model.

    Args:
        inputs: The model's inputs.
        shapes: Input name to its shape.
        seed: The same seed makes the same inputs.

    Returns:
        Input name to values: normally distributed floats, integers that are 1, booleans.
    """
    random = np.random.default_rng(seed)
    feeds: dict[str, NDArray[Any]] = {}
    for spec in inputs:
        dtype, shape = numpy_type(spec), tuple(shapes[spec.name])
        if dtype.kind in "iu":
            # Ones: valid as index, token or divisor, where a random 0 may end the process inside ONNX Runtime.
            feeds[spec.name] = np.ones(shape, dtype)
        elif dtype.kind == "b":
            feeds[spec.name] = random.integers(0, 2, shape).astype(bool)
        else:
            feeds[spec.name] = random.standard_normal(shape).astype(dtype)
    return feeds


def numpy_type(spec: InputSpec) -> np.dtype[Any]:
    """Returns the NumPy type of an input.

    Raises:
        InputError: There is no such type.
    """
    try:
        return dtype_of(spec.dtype)
    except (KeyError, ValueError) as error:
        raise InputError(f"input {spec.name!r} has no known type: {spec.dtype}", "Export the model again.") from error


def dtype_of(name: str) -> np.dtype[Any]:
    """Returns the NumPy type of an element type that ONNX calls so; raises ValueError or KeyError for none."""
    dtype: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(name.upper()))
    return dtype
