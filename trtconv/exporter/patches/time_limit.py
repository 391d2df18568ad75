"""A limit of time for torch.export."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any

from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from trtconv.exporter.patches import patch, replaced


class ExportTimeOver(BaseException):
    """No Exception: torch takes those for a question that has no answer, and goes on."""


@patch("time_limit")
def limited(seconds: float) -> contextlib.AbstractContextManager[Any]:
    """Ends torch.export when its time is over: it simplifies expressions of sizes often enough to be asked there.

    Not where it makes a guard, which takes the innermost line that is not torch's for the user's.

    Args:
        seconds: Processor time of this thread.

    Raises:
        ExportTimeOver: Inside the `with`.
    """
    end = time.thread_time() + seconds
    simplify = getattr(ShapeEnv, "_maybe_evaluate_static", None)
    if simplify is None:
        return contextlib.nullcontext()

    @functools.wraps(simplify)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if time.thread_time() > end:
            raise ExportTimeOver
        return simplify(*args, **kwargs)

    return replaced(ShapeEnv, "_maybe_evaluate_static", timed)


@patch("time_limit")
def any_size() -> contextlib.AbstractContextManager[Any]:
    """Has torch not ask of every size that it meets whether it is 0 or 1, as torch.onnx.export does too.

    Each answer is a guard, and every later question goes through all of them. `guards_of` asks for the sizes instead.
    """
    if not hasattr(_config, "backed_size_oblivious"):  # torch 2.6
        return contextlib.nullcontext()
    patched: contextlib.AbstractContextManager[Any] = _config.patch(backed_size_oblivious=True)
    return patched
