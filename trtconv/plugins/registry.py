"""The references: for an operator that is not ONNX's, a function over NumPy arrays that says what it computes.

    @trtconv.reference("my.domain::SwishBeta")
    def swish_beta(x, beta=1.0):
        return x / (1 + np.exp(-beta * x))

It is given the node's inputs in their order, None for one that is left out, and its attributes by name, and returns an
array for each output, or one array where there is one output. Those of NVIDIA's standard plugins are built in; a file
of the user's (`--reference`, or an extension) counts before them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from trtconv.core import foreign
from trtconv.core.agreement import AgreedCode
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen

Function = TypeVar("Function", bound=Callable[..., Any])

STANDARD: Mapping[str, str] = {
    **dict.fromkeys(
        ("EfficientNMS_TRT", "EfficientNMS_ONNX_TRT", "EfficientNMS_Explicit_TF_TRT", "EfficientNMS_Implicit_TF_TRT"),
        "efficient_nms",
    ),
    **dict.fromkeys(("BatchedNMS_TRT", "BatchedNMSDynamic_TRT"), "batched_nms"),
    "ROIAlign_TRT": "roi_align",
    "PyramidROIAlign_TRT": "pyramid_roi_align",
    **dict.fromkeys(("CropAndResize", "CropAndResizeDynamic"), "crop_and_resize"),
    "MultiscaleDeformableAttnPlugin_TRT": "deformable_attention",
    "InstanceNormalization_TRT": "instance_normalization",
    "GroupNormalizationPlugin": "group_normalization",
    **dict.fromkeys(("ScatterND", "ScatterElements"), "scatter"),
    "ModulatedDeformConv2d": "deformable_convolution",
    "DisentangledAttention_TRT": "disentangled_attention",
    **dict.fromkeys(("GridAnchor_TRT", "GridAnchorRect_TRT"), "grid_anchor"),
    "PriorBox_TRT": "prior_box",
}
"""Name of each standard plugin that has a reference to the module of `standard` that has it."""

_ONNX = ("", "ai.onnx")


@frozen
class OperatorReference:
    """A function that says what an operator computes.

    Args:
        name: "Domain::Op"; without a domain where that of the node does not matter.
        function: The function.
        file: The user's file that it is from; empty for one that is built in.
    """

    name: str
    function: Callable[..., Any]
    file: str = ""

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns the outputs as arrays.

        Args:
            inputs: Arrays, None for those that are left out; the function cannot write into them, since others read
                them too.
            attributes: By name.

        Raises:
            Exception: Whatever the function raises; RuntimeError where it would end the program, TypeError where it
                returns something else than arrays of numbers.
        """
        import numpy as np

        try:
            result = self.function(*map(_read_only, inputs), **attributes)
        except SystemExit as error:
            raise RuntimeError(f"it called for the end of the program ({error.code})") from error
        arrays = tuple(np.asarray(value) for value in (result if isinstance(result, (tuple, list)) else (result,)))
        for array in arrays:
            if array.dtype.kind in "OUS":
                raise TypeError(f"it returned {array.dtype} {str(array)[:40]!r}, which is no array of numbers")
        return arrays


def _read_only(values: Any) -> Any:
    import numpy as np

    if values is None:
        return None
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view


_entering: list[dict[str, OperatorReference]] = []
"""Where `reference` enters functions: those of the files that are being run."""
_entries: dict[AgreedCode, Mapping[str, OperatorReference]] = {}
"""What files entered that were run for what else is in them."""
_of_program: dict[str, OperatorReference] = {}
"""Those that a program entered that calls trtconv from Python."""


def reference(name: str) -> Callable[[Function], Function]:
    """Enters a function as what an operator computes; see the module.

    Args:
        name: "Domain::Op"; "Op" alone for ONNX's own domain, as some exporters write plugins.

    Raises:
        InputError: It is no such name.
    """
    domain, separator, op = name.rpartition("::")
    if not op or (separator and not domain):
        raise InputError(f"{name!r} is not the name of an operator", 'Write @trtconv.reference("Domain::Op").')

    def enter(function: Function) -> Function:
        table = _entering[-1] if _entering else _of_program
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        table[f"{'' if domain in _ONNX else domain}::{op}"] = OperatorReference(name, function, str(file))
        return function

    return enter


def find(domain: str, op: str) -> OperatorReference | None:
    """Returns what says what an operator computes: the user's own, else a built-in one, whatever its domain.

    Raises:
        InputError: A file of the user's does not run.
    """
    key = f"{'' if domain in _ONNX else domain}::{op}"
    code = foreign.current()
    for table in (_of_files(code.references, code.extensions), _of_program):
        if key in table:
            return table[key]
    return _standard(op) if op in STANDARD else None


@functools.cache
def _standard(op: str) -> OperatorReference:
    return OperatorReference(op, importlib.import_module(f"trtconv.plugins.standard.{STANDARD[op]}").REFERENCES[op])


@contextlib.contextmanager
def entering() -> Iterator[Mapping[str, OperatorReference]]:
    """Yields where the references are entered of a file that is run inside."""
    table: dict[str, OperatorReference] = {}
    _entering.append(table)
    try:
        yield table
    finally:
        _entering.pop()


@functools.lru_cache(maxsize=8)
def _of_files(files: tuple[AgreedCode, ...], extensions: tuple[AgreedCode, ...]) -> Mapping[str, OperatorReference]:
    """Runs the user's files, once a process; returns what they enter, of the same operator the last."""
    references: dict[str, OperatorReference] = {}
    for file in (*extensions, *files):
        entered = _entries[file] if file in _entries else _entered(file)
        if not entered and file not in extensions:
            hint = 'Mark a function with @trtconv.reference("Domain::Op").'
            raise InputError(f"{file.path} has no reference in it", hint)
        references |= entered
    return references


def hold(file: AgreedCode, entered: Mapping[str, OperatorReference]) -> None:
    """Takes what a file entered, which is then not run again for it."""
    _entries[file] = entered


def _entered(file: AgreedCode) -> Mapping[str, OperatorReference]:
    with entering() as entered:
        _run(file)
    return entered


def _run(file: AgreedCode) -> None:
    try:
        source = file.read()
        exec(compile(source, str(file.path), "exec"), {"__name__": file.path.stem, "__file__": str(file.path)})
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # It is the user's code.
        raise InputError(f"{file.path} does not run: {type(error).__name__}: {error}", "Correct the file.") from error
