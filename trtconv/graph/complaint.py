"""What ONNX's own checker has against a file, asked where work on it has failed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from trtconv.core.errors import InputError
from trtconv.graph.external_data import read_file


def complaint(path: str, _: object = None) -> str:
    """Returns what ONNX's checker, shape inference included, says of a file; "" for nothing, or for no model.

    Slow, and native code that some files end: for a process of its own.
    """
    try:
        proto = onnx.ModelProto.FromString(read_file(Path(path)))
        if proto.HasField("graph"):
            onnx.checker.check_model(proto, full_check=True)
    except (DecodeError, InputError, TypeError):
        return ""
    # It raises its own types, and those of protobuf and of its bindings.
    except Exception as error:
        # Inference comes last, and may still end the process that a crash is looked for in.
        with contextlib.suppress(Exception):
            onnx.shape_inference.infer_shapes(proto)
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""
