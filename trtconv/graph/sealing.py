"""ONNX files as trtconv writes them, which it may replace (`core/seal.py`)."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from trtconv.core.seal import KEY, seal


def sealed(proto: onnx.ModelProto, serialize: Callable[[], bytes]) -> tuple[bytes, bytes]:
    """Returns a model as bytes, and what follows it in its file.

    Args:
        proto: The model; an older seal is taken away.
        serialize: Makes bytes of it.
    """
    rest = [entry for entry in proto.metadata_props if entry.key != KEY]
    del proto.metadata_props[:]
    proto.metadata_props.extend(rest)
    data = serialize()
    return data, seal(data)
