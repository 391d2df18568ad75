"""What `--precision` makes of a model, with one meaning on every TensorRT.

Runtimes with precision flags (8.6 and 10) get the flag. Strongly typed ones (11 and RTX) compute in the types of the
graph, so the graph is cast, by ONNX Runtime's converter. Inputs and outputs keep their types, quantisers float32.
"""

from __future__ import annotations

import warnings

from trtconv.errors import EnvironmentMissing, InputError
from trtconv.model import OnnxModel
from trtconv.plan import Edit
from trtconv.runtime import Capabilities

_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")


def apply_precision(model: OnnxModel, precision: str, capabilities: Capabilities) -> tuple[Edit, ...]:
    """Makes the model say what precision asks for, in place.

    Args:
        model: The model, after the passes.
        precision: One of `trtconv.plan.PRECISIONS`.
        capabilities: Of the runtime that will build.

    Returns:
        What was done to the graph; empty where the builder's flags do it.

    Raises:
        InputError: int8 was asked for and the model has no quantisers, or the weights exceed 2 GiB.
        EnvironmentMissing: The precision cannot be had on this runtime.
    """
    if precision == "int8" and not any(True for _ in model.nodes(*_QUANTIZERS)):
        raise InputError(
            f"{model.path}: --precision int8 needs QuantizeLinear and DequantizeLinear nodes, and the model has none",
            "Quantise it first, for example with onnxruntime.quantization.quantize_static(..., quant_format=QDQ,"
            ' extra_options={"ActivationSymmetric": True}).',
        )
    if precision in ("as-is", "int8") or capabilities.builder_precision_flags:
        return ()
    if precision == "bf16":
        raise EnvironmentMissing(
            "this runtime is strongly typed, and trtconv has no caster to bfloat16 for it",
            "Export the model in bfloat16, or use --precision fp16.",
        )
    return _cast_to_half(model)


def _cast_to_half(model: OnnxModel) -> tuple[Edit, ...]:
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    model.embed()
    blocked = [*DEFAULT_OP_BLOCK_LIST, *_QUANTIZERS]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.proto = convert_float_to_float16(model.proto, keep_io_types=True, op_block_list=blocked)
    model.touch()
    # The converter warns of each weight that float16 cannot hold and cuts it.
    cut = len({str(w.message) for w in caught})
    told = f"; {cut} warnings about values that float16 cannot hold" if cut else ""
    return (Edit("cast-to-fp16", "graph", f"cast to float16, inputs, outputs and quantisers kept{told}"),)
