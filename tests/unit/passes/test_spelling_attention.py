"""Which nodes of Attention TensorRT's layer computes, and which have a kernel."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

from support.onnx_models import RTX, wrap
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes.spelling.attention import has_kernel, is_plain

SHAPES: dict[str, list[int | str]] = {
    **{"q": [1, 2, 3, 16], "k": [1, 2, 5, 16], "v": [1, 2, 5, 16], "wide": [1, 2, 5, 24], "flat": [1, 5, 32]},
    **{"dyn": [1, 2, "keys", 16], "free": [1, 2, 5, "head"], "m": [3, 5], "one": [3, 1], "short": [3, 4]},
    **{"long": [3, 6], "any": [3, "keys"], "n": [1], "past": [1, 2, 4, 16]},
}


def attention(inputs: str, outputs: str = "y", dtype: int = TensorProto.FLOAT16, **attrs: Any) -> OnnxModel:
    names = ["" if name == "_" else name for name in inputs.split()]
    values = [
        helper.make_tensor_value_info(name, TensorProto.INT64 if name == "n" else dtype, SHAPES[name])
        for name in dict.fromkeys(filter(None, names))
    ]
    made = ["" if name == "_" else name for name in outputs.split()]
    node = helper.make_node("Attention", names, made, **attrs)
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", dtype, None)])
    return wrap(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10))


@pytest.mark.parametrize(
    ("inputs", "outputs", "attrs", "plain"),
    [
        ("q k v", "y", {}, True),
        ("q k v m", "y", {}, True),
        ("q k v one", "y", {}, True),
        ("q k v any", "y", {}, True),
        ("q dyn v short", "y", {}, True),
        ("q k v short", "y", {}, False),
        ("q k v long", "y", {}, False),
        ("q flat flat short", "y", {"q_num_heads": 2, "kv_num_heads": 2}, True),
        ("q k v", "y", {"is_causal": 1}, True),
        ("q k v _", "y", {"is_causal": 1}, True),
        ("q k v m", "y", {"is_causal": 0}, True),
        ("q k v m", "y", {"is_causal": 1}, False),
        ("q k wide", "y", {}, False),
        ("q k free", "y", {}, True),
        ("q free k", "y", {}, True),
        ("q k v _ past past", "y a b", {}, False),
        ("q k v _ past past", "y", {}, False),
        ("q k v _ _ _ n", "y", {}, False),
        ("q k v _ _ _", "y", {}, True),
        ("q k v", "y _ _ s", {}, False),
        ("q k v", "y _ _ _", {}, True),
        ("q k v", "y", {"softcap": 0.0}, True),
        ("q k v", "y", {"softcap": 2.0}, False),
        ("q k v", "y", {"softcap": -1.0}, False),
        ("q k v", "y", {"window_size": -1}, True),
        ("q k v", "y", {"window_size": 4}, False),
        ("q k v", "y", {"window_size": 0}, False),
        ("q k v", "y", {"another": -1}, False),
        ("q k v", "y", {"another": 0}, False),
        ("q k v", "y", {"scale": 0.5}, True),
    ],
)
def test_plain(inputs: str, outputs: str, attrs: dict[str, Any], plain: bool) -> None:
    assert is_plain(attention(inputs, outputs, **attrs).main, 0) == plain


@pytest.mark.parametrize("slot", [1, 2])
def test_what_has_no_known_shape_is_no_reason(slot: int) -> None:
    model = attention("q k v short")
    model.proto.graph.input[slot].type.tensor_type.ClearField("shape")
    assert is_plain(model.main, 0)


@pytest.mark.parametrize(
    ("size", "heads", "dtype", "in_half", "kernel"),
    [
        (16, 0, TensorProto.FLOAT16, False, True),
        (15, 0, TensorProto.FLOAT16, False, False),
        (16, 0, TensorProto.BFLOAT16, False, True),
        (16, 0, TensorProto.FLOAT, False, False),
        (16, 0, TensorProto.FLOAT, True, True),
        (15, 0, TensorProto.FLOAT, True, False),
        (32, 2, TensorProto.FLOAT16, False, True),
        (31, 2, TensorProto.FLOAT16, False, False),
        ("size", 0, TensorProto.FLOAT16, False, True),
    ],
)
def test_kernels(size: int | str, heads: int, dtype: int, in_half: bool, kernel: bool) -> None:
    attrs: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": heads} if heads else {}
    model = attention("q q q", dtype=dtype, **attrs)
    value = helper.make_tensor_value_info("q", dtype, [1, 5, size] if heads else [1, 2, 5, size])
    model.proto.graph.input[0].CopyFrom(value)
    assert has_kernel(model.main, 0, RTX, in_half) == kernel
    assert has_kernel(model.main, 0, Target("tensorrt", (10, 14)), in_half)
