"""Whether it is a file's fault, and not ours or TensorRT's, that work on it has failed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from trtconv.core import process
from trtconv.core.errors import InputError, TrtconvError

CHECK_SECONDS, CHECK_MEGABYTES = 15.0, 1500.0
"""What ONNX's checker may take over a model that something else has failed on."""


def blamed(arguments: Sequence[str], *, crashed: bool = False) -> InputError | None:
    """Returns the failure for a file that ONNX's own checker refuses.

    A model that is none may break anything at any place; one that ONNX accepts shows a bug of ours.

    Args:
        arguments: The command line's.
        crashed: Native code ended the process. Then only a file counts that ends the checker's process too: what the
            checker says may be that it does not know a plugin, which is no reason for a crash.
    """
    for path in filter(_is_file, arguments):
        try:
            flaw = process.call("trtconv.graph.complaint:complaint", path, CHECK_SECONDS, megabytes=CHECK_MEGABYTES)
        except (process.WorkerBug, TrtconvError):
            continue
        except process.Lost as lost:
            flaw = f"it breaks down ({lost})"
            if crashed and not lost.signal:
                continue
        else:
            flaw = "" if crashed else flaw
        if flaw:
            what = f"{path} is not a valid ONNX model: ONNX's checker says: {flaw}"
            return InputError(what, "Correct the model, or export it again.")
    return None


def _is_file(argument: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return Path(argument).is_file()
    return False
