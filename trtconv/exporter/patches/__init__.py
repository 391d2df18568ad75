"""Whatever of torch, onnxscript and Python the exporter replaces or steers while it works, and nothing else does.

Each of these has its module here, is active only inside a `with`, and says below what it replaces, why, and for which
versions that was seen to be needed. Without any one of them an export still works, if not of every module or as
quickly: `without` switches one off, as tests do. What a newer version no longer has is left as it is.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock


class ForeignPatch(NamedTuple):
    """One thing that is replaced or steered.

    Args:
        name: Its module in this folder, and for `without`.
        replaces: What of which package.
        versions: Those that it was tried with.
        why: The reason for it.
        lost: What an export cannot do, or does slower, without it.
    """

    name: str
    replaces: str
    versions: str
    why: str
    lost: str


_TORCH = "torch 2.6 to 2.13"
PATCHES = (
    ForeignPatch(
        "adaptive_pooling",
        "torch.nn.functional.adaptive_*_pool*d",
        _TORCH,
        "both exporters write it as a pooling with a fixed window, which is another one at other sizes",
        "adaptive pooling to more than one value, of sizes that change",
    ),
    ForeignPatch(
        "causal_masks",
        "torch.nn.modules.transformer._detect_is_causal_mask",
        _TORCH,
        "it looks at the values of a mask: torch.export refuses that, and the meta device has none",
        "nn.Transformer with a mask, through torch.export",
    ),
    ForeignPatch(
        "control_flow",
        "torch.cond",
        _TORCH,
        "in eager PyTorch it compiles both sides, which fails while modes look on",
        "modules with torch.cond",
    ),
    ForeignPatch(
        "fake_quantize",
        "torch.fake_quantize_per_*",
        _TORCH,
        "neither the meta device nor torch.export has it, and it changes no shape",
        "trials on the meta device, of modules that fake-quantise",
    ),
    ForeignPatch(
        "garbage",
        "gc.freeze",
        "Python 3.10 to 3.13",
        "torch is a million objects, which Python would search for cycles again and again",
        "seconds",
    ),
    ForeignPatch(
        "meta_shapes",
        "operations of torch on the meta device",
        _TORCH,
        "torch's own way to a shape is Python over dozens of operations",
        "seconds",
    ),
    ForeignPatch(
        "onnx_log",
        "torch._C._jit_onnx_log",
        _TORCH,
        "the tracing exporter writes its whole graph to stdout when it fails, whatever was set before",
        "a quiet stdout",
    ),
    ForeignPatch(
        "onnxscript_costs",
        "onnxscript.TracedOnnxFunction.function_ir, onnxscript.rewriter SimplePatternMatcher.match",
        "onnxscript 0.5",
        "it parses every operator's source, and holds every pattern to every node",
        "seconds",
    ),
    ForeignPatch(
        "output_size",
        "torch.nn.modules.conv._ConvTransposeNd._output_padding, torch.nn.functional.conv_transpose*d",
        _TORCH,
        "the tracing exporter writes the example's output_padding, and the other has no translation for a computed one",
        "transposed convolutions to a computed output size",
    ),
    ForeignPatch(
        "size_questions",
        "torch.SymInt, torch.SymFloat and SymNode: what asks for a value; torch.compiler.is_compiling and is_exporting",
        _TORCH,
        "torch notes no question of sizes that it has the answer to already, nor who asks whether it exports",
        "seconds: another run of the module tells as much",
    ),
    ForeignPatch(
        "size_reads",
        "torch.SymInt and torch.SymFloat: __hash__, __repr__, __str__, __format__",
        _TORCH,
        "a symbolic size refuses to be a key, and is a symbol's name as text: nobody learns what Python makes of it",
        "the line of a size that is looked up in a dictionary, or written as text",
    ),
    ForeignPatch(
        "time_limit",
        "torch.fx.experimental.symbolic_shapes.ShapeEnv._maybe_evaluate_static",
        _TORCH,
        "torch.export may take hours over expressions of sizes, and has no limit of its own",
        "the limit of time",
    ),
    ForeignPatch(
        "torch_quiet",
        "warnings, logging, stdout and stderr",
        _TORCH,
        "the exporters print what users cannot act upon; what matters in it is reported by trtconv",
        "a quiet terminal",
    ),
)

_OFF: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("off", default=frozenset())


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """While active, some patches do nothing.

    Args:
        names: Of `PATCHES`.
    """
    token = _OFF.set(_OFF.get() | set(names))
    try:
        yield
    finally:
        _OFF.reset(token)


def patch(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a context manager one of a patch: it does nothing, and yields None, where the patch is off.

    Args:
        name: The patch's, of `PATCHES`.
    """

    def decorate(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def switched(*args: Any, **named: Any) -> Any:
            return contextlib.nullcontext() if name in _OFF.get() else make(*args, **named)

        return switched

    return decorate


def replaced(owner: object, name: str, stand_in: object) -> contextlib.AbstractContextManager[Any]:
    """Replaces an attribute of a foreign module or class, inside a `with`; not where this version has none."""
    return mock.patch.object(owner, name, stand_in) if hasattr(owner, name) else contextlib.nullcontext()
