"""Translations: how torch.export's exporter writes an operator of the user's own, as `--translate` names them.

    @trtconv.translation("mylib::swish")
    def swish(x, beta: float):
        return trtconv.node("my.domain::SwishBeta", x, beta=beta)

A translation takes the operator's arguments, tensors as values of the graph, and returns values that `node` makes, or
onnxscript with ONNX's own operators (`from onnxscript import opset18 as op`; `op.Relu(x)`). A file of them
(`--translate`) counts before those that a program entered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from trtconv.core.agreement import CodeFile, agreed
from trtconv.core.errors import InputError

Function = TypeVar("Function", bound=Callable[..., Any])
_FORM = 'Write @trtconv.translation("mylib::swish"), or "mylib::swish.Tensor" for one of its overloads.'
_KINDS = ("float", "float16", "bfloat16", "double", "bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))
_entering: list[dict[str, Callable[..., Any]]] = [{}]
"""Where `translation` enters functions: those of a program, then those of the file that is being run."""


def translation(name: str) -> Callable[[Function], Function]:
    """Enters a function as what an operator of torch is in ONNX; see the module.

    Args:
        name: "library::operator", as torch.library registered it, or "library::operator.overload".

    Raises:
        InputError: It is no such name.
    """
    library, _, operator = name.partition("::")
    if not (library.isidentifier() and all(part.isidentifier() for part in operator.split("."))):
        raise InputError(f"{name!r} is not the name of an operator of torch", _FORM)

    def enter(function: Function) -> Function:
        _entering[-1][name] = function
        return function

    return enter


def node(name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """Writes a node of an operator that is not ONNX's; call it in a translation.

    Args:
        name: "Domain::Op", as references have it.
        inputs: Its inputs: values of the graph, or None for one that is left out.
        outputs: How many outputs it has.
        attributes: Its attributes by name.

    Returns:
        The output, or a sequence of them where there are several.

    Raises:
        InputError: The name has no domain, or is none of an operator.
    """
    from onnx import defs, helper
    from onnxscript import values

    domain, _, operator = name.rpartition("::")
    if not (domain and operator.isidentifier()):
        raise InputError(
            f"trtconv.node({name!r}): the name is not DOMAIN::OPERATOR",
            'Write trtconv.node("my.domain::SwishBeta", ...); what ONNX has itself is written with onnxscript.',
        )
    kinds, parameter = defs.OpSchema.FormalParameterOption, defs.OpSchema.FormalParameter
    types = [f"T{number}" for number in range(max(len(inputs), 1))]
    slots = [
        parameter(f"input_{number}", types[number], param_option=kinds.Optional if value is None else kinds.Single)
        for number, value in enumerate(inputs)
    ]
    schema = defs.OpSchema(
        operator,
        domain,
        1,
        inputs=slots,
        outputs=[parameter(f"output_{number}", types[0]) for number in range(outputs)],
        type_constraints=[(type_name, [f"tensor({kind})" for kind in _KINDS], "") for type_name in types],
        attributes=[defs.OpSchema.Attribute(key, helper.make_attribute(key, v)) for key, v in attributes.items()],
    )
    return values.Op(values.Opset(domain, 1), operator, schema)(*inputs, **attributes)


def translations_of(files: Sequence[CodeFile]) -> dict[Any, Callable[..., Any]]:
    """Runs files of translations; returns all that were entered, by the overload of torch that each is of.

    Call it where the module is there: its code registers the operators.

    Raises:
        InputError: A file cannot be read, does not run, or has no translation; an operator is not registered.
    """
    table = dict(_entering[0])
    for file in agreed(files, ()):
        entered: dict[str, Callable[..., Any]] = {}
        _entering.append(entered)
        try:
            # compile() takes the path, so that the lines of the file are in tracebacks.
            exec(compile(file.read(), str(file.path), "exec"), {"__name__": file.path.stem, "__file__": str(file.path)})
        except InputError:
            raise
        except Exception as error:  # it is the user's code
            raise InputError(f"{file.path} does not run: {type(error).__name__}: {error}", "Correct it.") from error
        finally:
            _entering.pop()
        if not entered:
            raise InputError(f"{file.path} has no translation in it", _FORM)
        table |= entered
    return {_overload(name): function for name, function in table.items()}


def _overload(name: str) -> Any:
    import torch

    library, _, operator = name.partition("::")
    base, _, overload = operator.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, library), base), overload or "default")
    except AttributeError as error:
        hint = "Import what registers it: in the file of SPEC, or in that of --translate."
        raise InputError(f"--translate: torch has no operator {name}", hint) from error
