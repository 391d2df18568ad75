"""Plugins, as their references compute them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import NotProven, PluginMeaning


def _plugin(call: Call) -> Sequence[Array]:
    meaning = call.get("meaning")
    if not isinstance(meaning, PluginMeaning):
        raise NotProven(meaning or "nothing says what this plugin computes")
    try:
        arrays = meaning.compute(call.inputs, meaning.attributes)
    except Exception as error:  # It may be the user's code.
        raise NotProven(f"its reference raised {type(error).__name__}: {error}") from error
    if len(arrays) < len(call.outputs):
        raise NotProven(f"its reference returns {len(arrays)} arrays for {len(call.outputs)} outputs")
    return [np.asarray(array) for array in arrays]


KINDS: dict[str, Kernel] = {"PLUGIN_V2": _plugin, "PLUGIN_V3": _plugin}
