"""Attention, rotary embedding, and the cache of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import NotProven
from trtconv.runtimes.tensorrt.readback.reducing import softmax
from trtconv.runtimes.tensorrt.readback.types import wide


def _attention(call: Call) -> Sequence[Array]:
    """The whole attention: its scale is multiplied into query and key before; ATTENTION_OUTPUT hands it on."""
    how = call["attention"]
    for name in ("query_lengths", "key_value_lengths", "normalization_quantize_scale"):
        if how.get(name) is not None:
            raise NotProven(f"attention with {name.replace('_', ' ')}")
    forms = {how.get("query_form"), how.get("key_value_form")}
    if forms - {None, "PADDED_BHND"}:
        raise NotProven(f"attention in the form {forms}")
    query, key, value = (wide(call.input(i)) for i in range(3))
    repeats = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat(repeats, 1) if repeats > 1 else tensor for tensor in (key, value))
    scores = query @ key.swapaxes(-1, -2)
    mask = call.optional(3)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + wide(mask)
    scores = _causal(scores, how)
    weights = softmax(scores, (3,)) if how["norm_op"] == "SOFTMAX" else scores
    if np.isnan(weights).any() and not np.isnan(query).any():
        raise NotProven("a row of its mask hides everything")
    return (weights @ value,)


def _causal(scores: Array, how: dict[str, object]) -> Array:
    kind = how.get("causal_kind") or ("UPPER_LEFT" if how["causal"] else "NONE")
    if kind == "NONE":
        return scores
    rows, columns = scores.shape[-2:]
    shift = 0 if kind == "UPPER_LEFT" else columns - rows
    return np.where(np.tri(rows, columns, shift, bool), scores, -np.inf)


def _attention_output(call: Call) -> Sequence[Array]:
    return (call.input(0),)


def _rotary(call: Call) -> Sequence[Array]:
    values, cos, sin = (wide(call.input(i)) for i in range(3))
    positions = call.optional(3)
    size = call["rotary_embedding_dim"] or values.shape[-1]
    half = size // 2
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = (table[..., :half].reshape(values.shape[0], 1, values.shape[2], half) for table in (cos, sin))
    turned, rest = values[..., :size], values[..., size:]
    if call["interleaved"]:
        real, imaginary = turned[..., 0::2], turned[..., 1::2]
    else:
        real, imaginary = turned[..., :half], turned[..., half:]
    parts = (real * cos - imaginary * sin, real * sin + imaginary * cos)
    joined = np.stack(parts, -1).reshape(turned.shape) if call["interleaved"] else np.concatenate(parts, -1)
    return (np.concatenate([joined, rest], -1),)


def _cache_update(call: Call) -> Sequence[Array]:
    if call["cache_mode"] != "LINEAR" or call.get("update_lengths") is not None:
        raise NotProven(f"a cache in mode {call['cache_mode']}")
    if call.get("update_form") not in (None, "PADDED_BHND"):
        raise NotProven(f"a cache in the form {call['update_form']}")
    cache, update = call.input(0).copy(), call.input(1)
    for row, start in enumerate(call.ints(2) or ()):
        if start < 0 or start + update.shape[2] > cache.shape[2]:
            raise NotProven("it writes beyond the cache")
        cache[row, :, start : start + update.shape[2]] = update[row]
    return (cache,)


KINDS: dict[str, Kernel] = {
    "ATTENTION_INPUT": _attention,
    "ATTENTION_OUTPUT": _attention_output,
    "ROTARY_EMBEDDING": _rotary,
    "KV_CACHE_UPDATE": _cache_update,
}
