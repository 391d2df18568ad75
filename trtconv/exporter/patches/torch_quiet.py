"""Getting torch, and keeping it quiet. Nothing of trtconv imports torch before somebody asks for an export."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator

from trtconv.core.errors import EnvironmentMissing
from trtconv.exporter.patches import patch

_LOGGERS = (
    "onnxscript",
    "onnx_ir",
    "torch",
    "torch.onnx",
    "torch.export",
    "torch.fx",
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
)


def require_torch() -> None:
    """Raises EnvironmentMissing unless torch and what its exporters need can be imported."""
    for package, use in (("torch", "export"), ("onnxscript", "torch's ONNX exporter")):
        if importlib.util.find_spec(package) is None:
            raise EnvironmentMissing(
                f"{package} is not installed; {use} needs it",
                "Install it: pip install torch onnxscript. build and check do not need it.",
            )
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        raise EnvironmentMissing(f"torch cannot be imported: {error}", "Install torch again.") from error


@patch("torch_quiet")
@contextlib.contextmanager
def quiet_torch() -> Iterator[None]:
    """Silences what the exporters warn of, log and print: what matters in it is reported by us."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        warnings.simplefilter("ignore")
        try:
            for name in _LOGGERS:
                logging.getLogger(name).setLevel(logging.CRITICAL)
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


@contextlib.contextmanager
def heard(name: str, handler: logging.Handler) -> Iterator[None]:
    """Lets a handler, and nobody else, hear what one of torch's loggers says while the block runs."""
    logger = logging.getLogger(name)
    level, propagate, handlers = logger.level, logger.propagate, logger.handlers
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
