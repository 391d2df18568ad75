"""The thing to export, made ready: a module in eval mode that takes tensors by position and returns tensors."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trtconv.core.documents.export import Blame
from trtconv.core.errors import InputError
from trtconv.exporter.inputs import InputDecl
from trtconv.exporter.module.random_inputs import inputs_that_run, random_inputs
from trtconv.exporter.module.source_line import blame_exception, blame_frame, first_line
from trtconv.exporter.module.spec import Loaded
from trtconv.exporter.module.state import restored, versions
from trtconv.exporter.patches.control_flow import control_flow_chosen
from trtconv.exporter.patches.fake_quantize import is_fake_quantize
from trtconv.exporter.request import Axes

_SENSITIVE = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd)
"""Modules that compute something else in train mode."""
TEXTS = frozenset({"__repr__", "__str__", "__format__"})
"""Functions that write a tensor as text."""


@dataclasses.dataclass
class Subject:
    """A module ready for export.

    Args:
        module: Takes the example's tensors by position; returns a tensor or a tuple of them.
        inputs: Its inputs.
        example: One tensor an input.
        outputs: Names of its outputs.
        expected: Its outputs for the example.
        program: The ExportedProgram it came from, if it did.
        scripted: Whether it is TorchScript, which torch.export does not take.
        fake_quantized: Whether it fake-quantises, which only the tracing exporter turns into Q/DQ nodes.
        symbolic: Names of its autograd functions that say which ONNX nodes they are, likewise.
        calls: Submodule path to the line that calls it.
        prefix: What the paths of the user's submodules begin with here.
        sized: How many transposed convolutions were last exported to a computed output size.
        text_blame: The first line that writes a tensor as text, which no exporter follows.
        notes: What was done to it that the user should know.
    """

    module: torch.nn.Module
    inputs: tuple[InputDecl, ...]
    example: tuple[torch.Tensor, ...]
    outputs: tuple[str, ...] = ()
    expected: tuple[torch.Tensor, ...] = ()
    program: torch.export.ExportedProgram | None = None
    scripted: bool = False
    fake_quantized: bool = False
    symbolic: tuple[str, ...] = ()
    calls: dict[str, Blame] = dataclasses.field(default_factory=dict)
    prefix: str = ""
    sized: int = 0
    text_blame: Blame | None = None
    notes: list[str] = dataclasses.field(default_factory=list)

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Runs the module in eager PyTorch."""
        with torch.no_grad(), restored(self.module), control_flow_chosen():
            return as_tuple(self.module(*copies(tensors)))


def copies(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Returns copies to run a module on, which may write into its inputs."""
    return tuple(tensor.clone() for tensor in tensors)


class Adapter(torch.nn.Module):  # type: ignore[misc]
    """Gives a module a plain calling convention.

    Args:
        module: Any module.
        keywords: Parameter names of the tensors that must be given by keyword; the others come first, by position.
    """

    def __init__(self, module: torch.nn.Module, keywords: Sequence[str]) -> None:
        super().__init__()
        self.inner = module
        self.keywords = tuple(keywords)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Calls the module and returns the tensors of its result."""
        return tuple(tensor for _, tensor in named_tensors(self.call(*tensors), ""))

    def call(self, *tensors: torch.Tensor) -> Any:
        """Calls the module and returns what it returns."""
        count = len(tensors) - len(self.keywords)
        return self.inner(*tensors[:count], **dict(zip(self.keywords, tensors[count:], strict=True)))


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    """Returns a module's result as a tuple of tensors."""
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


def named_tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every tensor of a nested result with a name made of keys and positions."""
    if isinstance(value, torch.Tensor):
        yield name or "output", value
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, Mapping):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_tensors(item, f"{name}_{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", None)
        stem = name or "output"
        several = sum(item is not None for item in value) > 1
        for index, item in enumerate(value):
            own = names[index] if names else f"{stem}_{index}" if several else stem
            yield from named_tensors(item, own)


def prepare(
    loaded: Loaded, inputs: Sequence[InputDecl], outputs: Sequence[str], tensors: Sequence[torch.Tensor] | None
) -> Subject:
    """Makes a subject of what a SPEC gave.

    Args:
        loaded: The module or program; put into eval mode.
        inputs: The example's inputs, in the caller's order; empty for a program that carries its own example.
        outputs: Names for the outputs; empty: its own.
        tensors: The example itself; None: random values.

    Raises:
        InputError: The inputs do not fit `forward`, or the module does not run on them.
    """
    module, program, scripted, notes = _unpack(loaded)
    if not inputs and program is not None:
        inputs, tensors = _program_example(program)
    if not inputs:
        raise InputError("no inputs were given", "Add --input NAME=1x3x64x64[:DTYPE], one for each input.")
    keywords = _bind(module, program, inputs)
    called = Adapter(module, keywords) if keywords else module
    subject = Subject(called, tuple(inputs), (), (), (), program, scripted, notes=notes)
    if isinstance(subject.module, Adapter):
        subject.prefix = "inner."
    subject.notes.extend(_renamed(module, program, subject.inputs))

    def run(example: tuple[torch.Tensor, ...]) -> None:
        subject.example = example
        _first_run(subject, outputs)

    if tensors is not None:
        run(tuple(tensors))
    else:
        inputs_that_run(inputs, [i.shape for i in inputs], 0, run)
    return subject


def _unpack(loaded: Loaded) -> tuple[torch.nn.Module, torch.export.ExportedProgram | None, bool, list[str]]:
    if isinstance(loaded, torch.export.ExportedProgram):
        return loaded.module(), loaded, False, []
    notes = []
    loaded, wrapper = unwrapped(loaded)
    if wrapper:
        notes.append(f"exported is what {wrapper} wraps")
    sensitive = [name for name, m in loaded.named_modules() if m.training and isinstance(m, _SENSITIVE)]
    if sensitive:
        notes.append(f"the module was in train mode ({', '.join(sensitive[:3])} ...); exported in eval mode")
    with contextlib.suppress(NotImplementedError):
        # A module out of torch.export (torchao's PT2E among them) cannot be switched, and has no need to.
        loaded.eval()
    return loaded, None, isinstance(loaded, torch.jit.ScriptModule), notes


def unwrapped(module: torch.nn.Module) -> tuple[torch.nn.Module, str]:
    """Returns the module that torch.compile or a way to several devices wraps, and that wrapper's name."""
    names: list[str] = []
    while True:
        parallel = isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel)
        inner = module.module if parallel else getattr(module, "_orig_mod", None)
        if not isinstance(inner, torch.nn.Module):
            return module, " and ".join(names)
        names.append(type(module).__name__ if parallel else "torch.compile")
        module = inner


def refuse_train_mode(module: torch.nn.Module) -> None:
    """Raises InputError for a module whose train mode shows; it is the caller's, so we do not change it."""
    if "eval" in vars(module):
        return  # out of torch.export (PT2E among them), which has settled it
    training = [name or "the module itself" for name, m in module.named_modules() if m.training]
    if training:
        names = ", ".join(training[:5]) + (" ..." if len(training) > 5 else "")
        raise InputError(f"the module is in train mode: {names}", "Call module.eval() first.")


def _program_example(
    program: torch.export.ExportedProgram,
) -> tuple[tuple[InputDecl, ...], tuple[torch.Tensor, ...] | None]:
    if program.example_inputs is None:
        return (), None
    args, kwargs = program.example_inputs
    tensors = [tensor for _, tensor in named_tensors([list(args), kwargs], "")]
    names = program.graph_signature.user_inputs
    inputs = tuple(
        InputDecl(str(name), tuple(t.shape), str(t.dtype).removeprefix("torch."))
        for name, t in zip(names, tensors, strict=True)
    )
    return inputs, tuple(tensors)


def example_at(subject: Subject, axes: Axes, sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
    """Returns inputs of some sizes, the example itself where they are its own."""
    if all(size == axes.example[name] for name, size in sizes.items()):
        return copies(subject.example)
    return random_inputs(subject.inputs, axes.shapes(subject.inputs, sizes), 0)


def _bind(
    module: torch.nn.Module, program: torch.export.ExportedProgram | None, inputs: Sequence[InputDecl]
) -> tuple[str, ...]:
    """Returns the keywords by which the inputs meet `forward`'s parameters; none where they do by position."""
    if program is not None or isinstance(module, torch.jit.ScriptModule):
        return ()
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return ()
    names = [decl.name for decl in inputs]
    parameters = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_POSITIONAL]
    by_position = [name for name in parameters if signature.parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    by_position = by_position[: len(names)]
    keywords: tuple[str, ...] = ()
    if names != by_position and set(names) <= set(parameters):
        keywords = tuple(names)
    elif any(
        name in parameters and by_position.index(name) != i if name in by_position else name in parameters
        for i, name in enumerate(names)
    ):
        raise InputError(f"inputs {', '.join(names)} do not fit forward{signature}", "Name them as forward does.")
    try:
        if keywords:
            signature.bind(**dict.fromkeys(keywords))
        else:
            signature.bind(*names)
    except TypeError as error:
        raise InputError(
            f"inputs {', '.join(names)} do not fit forward{signature}: {error}", "Add --input for each of them."
        ) from error
    return keywords


def _renamed(
    module: torch.nn.Module, program: torch.export.ExportedProgram | None, inputs: Sequence[InputDecl]
) -> list[str]:
    """Says which inputs have another name than forward's parameter: one may be a mistake."""
    if program is not None or isinstance(module, torch.jit.ScriptModule):
        return []
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if {decl.name for decl in inputs} & set(names):
        return []
    return [f"input {i.name} is forward's {name}" for i, name in zip(inputs, names, strict=False)]


def _first_run(subject: Subject, outputs: Sequence[str]) -> None:
    """Runs the example once, watching what the module does, and learns its outputs."""
    try:
        with torch.no_grad(), restored(subject.module), control_flow_chosen(), _watching(subject):
            adapter, before = subject.module, versions(subject.module)
            result = (adapter.call if isinstance(adapter, Adapter) else adapter)(*copies(subject.example))
            after = versions(subject.module)
    except Exception as error:
        raise does_not_run(subject.inputs, error, _coarse(subject)) from error
    changed = [name.removeprefix("inner.") for name in before if after.get(name) != before[name]]
    if changed:
        names = ", ".join(changed[:3]) + (" ..." if len(changed) > 3 else "")
        subject.notes.append(f"forward writes into {names}: every run of the file starts from the values of now")
    pairs = list(named_tensors(result, ""))
    if not pairs:
        raise InputError(f"forward returns {type(result).__name__}, no tensor", "Return tensors.")
    plain = isinstance(result, torch.Tensor) or (
        isinstance(result, tuple | list)
        and len(pairs) == len(result)
        and all(isinstance(r, torch.Tensor) for r in result)
    )
    if not plain and not isinstance(subject.module, Adapter):
        subject.module = Adapter(subject.module, ()).eval()
        subject.prefix = "inner."
    subject.expected = tuple(tensor for _, tensor in pairs)
    subject.outputs = _output_names([name for name, _ in pairs], outputs, subject.inputs)
    refused = [name for name, tensor in pairs if tensor.is_complex()]
    if refused:
        raise InputError(f"output {refused[0]} is complex", "Return torch.view_as_real(...) of it.")


def _output_names(own: Sequence[str], user_names: Sequence[str], inputs: Sequence[InputDecl]) -> tuple[str, ...]:
    if user_names and len(user_names) != len(own):
        raise InputError(f"--output names {len(user_names)} outputs, the module has {len(own)}: {', '.join(own)}", "")
    earlier = {decl.name for decl in inputs}
    names: list[str] = []
    for name in user_names or own:
        while name in earlier:
            name += "_out"
        earlier.add(name)
        names.append(name)
    return tuple(names)


def does_not_run(inputs: Sequence[InputDecl], error: Exception, dtype: str = "") -> InputError:
    """Returns the error for a module that does not run on its example.

    Args:
        inputs: The example.
        error: What the module raised.
        dtype: The type of its weights, where the example has none of it.
    """
    blame = blame_exception(error)
    at = f"\n  at {blame}" if blame is not None else ""
    hint = "Give --input the rank, sizes and type that the module takes."
    if whole := next((i for i in inputs if i.dtype.startswith(("int", "uint")) and i.values is None), None):
        hint += f" Say which values {whole.name} takes: {whole.name}=...:{whole.dtype}[1..length]."
    if dtype:
        hint = f"Its weights are {dtype}: write {inputs[0].name}={'x'.join(map(str, inputs[0].shape))}:{dtype}."
    return InputError(f"the module does not run on {', '.join(map(str, inputs))}: {first_line(error)}{at}", hint)


def _coarse(subject: Subject) -> str:
    """Returns the one type of a module's weights, where it is float16 or bfloat16 and no input has it."""
    types = {str(weight.dtype).removeprefix("torch.") for weight in subject.module.parameters()}
    dtype = "".join(types) if len(types) == 1 else ""
    return dtype if dtype in ("float16", "bfloat16") and dtype not in {i.dtype for i in subject.inputs} else ""


class _Recorder(TorchFunctionMode):  # type: ignore[misc]
    """Notes the calls of torch's fake-quantise functions, and the first line that writes a tensor as text."""

    def __init__(self) -> None:
        super().__init__()
        self.has_fakes = False
        self.text_blame: Blame | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.has_fakes = self.has_fakes or is_fake_quantize(func)
        if self.text_blame is None and getattr(func, "__name__", "") in TEXTS:
            self.text_blame = blame_frame(sys._getframe(1))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _watching(subject: Subject) -> Iterator[None]:
    """Notes which line calls which submodule, and what only the tracing exporter can export."""
    if subject.scripted:
        yield
        return
    paths = {id(m): name for name, m in subject.module.named_modules() if name}
    symbolic: dict[str, None] = {}
    original = torch.autograd.Function.__dict__["apply"]

    def hook(module: torch.nn.Module, args: Any) -> None:
        path = paths.get(id(module))
        if path is not None and path not in subject.calls:
            blame = blame_frame(sys._getframe(1))
            if blame is not None:
                subject.calls[path] = blame

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(cls, "symbolic"):
            symbolic[cls.__name__] = None
        return original.__get__(None, cls)(*args, **kwargs)

    recorder = _Recorder()
    handle = torch.nn.modules.module.register_module_forward_pre_hook(hook)
    torch.autograd.Function.apply = classmethod(apply)
    try:
        with recorder:
            yield
    finally:
        torch.autograd.Function.apply = original
        handle.remove()
        subject.fake_quantized, subject.symbolic = recorder.has_fakes, tuple(symbolic)
        subject.text_blame = recorder.text_blame
