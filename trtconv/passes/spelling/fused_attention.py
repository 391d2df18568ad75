"""Writes ONNX Runtime's operators of transformers: embeddings, attention, rotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trtconv.passes.spelling.fused_parts import matmul_of_integers, normalized, option, type_of
from trtconv.passes.spelling.writer import Unwritable, Writer

_FILTER = -10000.0
"""What ONNX Runtime adds to the score of a key that a mask hides."""
_MASK_INDEX = 1


def embedding(writer: Writer) -> None:
    """EmbedLayerNormalization: rows of words, positions and segments, added and normalized."""
    ids, segments, words, places, kinds, scale, bias, mask, positions = map(writer.input, range(9))
    if positions:
        placed = writer("Gather", places, positions, axis=0)
    else:
        placed = writer.slice(places, np.array([0], np.int64), _size(writer, ids, 1), [0])
    total = writer("Add", writer("Gather", words, ids, axis=0), placed, to="" if segments else writer.output(2))
    if segments:
        total = writer("Add", total, writer("Gather", kinds, segments, axis=0), to=writer.output(2))
    normalized(writer, total, scale, bias, writer.output())
    if writer.output(_MASK_INDEX):
        if not mask:
            raise Unwritable("it counts places of a mask that it is not given")
        hits = writer.cast(writer("Equal", mask, np.array(1, np.int32)), np.int32)
        writer.reduce("ReduceSum", hits, [1], keep=False, to=writer.output(_MASK_INDEX))


def attention(writer: Writer) -> None:
    """Attention: projections, and what `_attended` does with them."""
    x, weight, bias, mask, past, added = map(writer.input, range(6))
    product = writer("MatMul", x, weight)
    parts = _thirds(writer, writer("Add", product, bias) if bias else product, weight)
    _of_parts(writer, parts, mask, past, added)


def quantized_attention(writer: Writer) -> None:
    """QAttention: the same of projections in integers."""
    x, weight, bias, x_scale, w_scale, mask, x_zero, w_zero, past = map(writer.input, range(9))
    name = writer.model.fresh_name(f"{writer.output()}/projected")
    matmul_of_integers(writer, x, weight, x_scale, w_scale, x_zero, w_zero, bias, to=name)
    _of_parts(writer, _thirds(writer, name, weight), mask, past, "")


def multi_head(writer: Writer) -> None:
    """MultiHeadAttention: attention of what is projected already."""
    bias, mask, added = (writer.input(slot) for slot in (3, 4, 5))
    names = [writer.input(slot) for slot in range(3)]
    if not all(names):
        raise Unwritable("its queries, keys and values are packed in one input: give them as three")
    if any(map(writer.input, range(8, 10))) or writer.output(3):
        raise Unwritable("its keys lie in a buffer, or its scores are asked for: leave the length of the past out")
    ranks = [len(writer.shape(name)) for name in names]
    if ranks[0] != 3 or ranks[1] != ranks[2] or ranks[1] not in (3, 4):
        raise Unwritable(f"its inputs have {ranks} axes")
    parts = _biased(writer, names, ranks) if bias else names
    width = writer.shape(names[0])[-1]
    heads = option(writer, "num_heads", 1)
    if width is None:
        raise Unwritable("the size of its heads is known only at run time")
    query, *others = (_heads(writer, part) if rank == 3 else part for part, rank in zip(parts, ranks, strict=True))
    for slot, name in enumerate(others):
        others[slot] = _joined(writer, name, writer.input(6 + slot), writer.output(1 + slot))
    _attended(writer, [query, *others], width // heads, mask, added)


def _biased(writer: Writer, names: Sequence[str], ranks: Sequence[int]) -> list[str]:
    """Adds the parts of a bias to queries, keys and values; those that have four axes are projected already."""
    widths = [writer.shape(name)[-1] for name in names]
    values = writer.scope.values(writer.input(3))
    if len(writer.shape(writer.input(3))) != 1 or widths[0] is None:
        raise Unwritable("which part of its bias is of which input is not known")
    pieces: Sequence[Any]
    if values is not None:
        if ranks[1] == 4 and values[widths[0] :].any():
            raise Unwritable("which part of its bias is of which input is not known")
        pieces = np.split(values, [widths[0], 2 * widths[0]])
    elif ranks[1] == 4 or widths[2] is None:
        raise Unwritable("its bias is known only at run time, and which part is of which input is not known")
    else:
        pieces = writer.split(writer.input(3), [widths[0], widths[0], widths[2]], 0)
    return [
        writer("Add", name, piece) if rank == 3 else name
        for name, piece, rank in zip(names, pieces, ranks, strict=True)
    ]


def _joined(writer: Writer, name: str, past: str, present: str) -> str:
    """Joins keys or values to those of before, and makes the output that holds both."""
    if past:
        return writer("Concat", past, name, axis=2, to=present)
    return writer("Identity", name, to=present) if present else name


def rotary(writer: Writer) -> None:
    """RotaryEmbedding: pairs of elements turned by angles that positions pick."""
    x, positions, cosines, sines = map(writer.input, range(4))
    if option(writer, "is_packed_batching", 0) or option(writer, "scale", 1.0) != 1.0:
        raise Unwritable("its batches are packed, or it is scaled")
    shape, (half, *_) = writer.shape(x), reversed(writer.sizes(cosines))
    heads = option(writer, "num_heads", 0)
    whole = shape[-1] if len(shape) == 4 else shape[-1] // heads if heads and shape[-1] else 2 * half
    width = option(writer, "rotary_embedding_dim", 0) or whole
    if whole is None or width != 2 * half:
        raise Unwritable("the size of its heads is known only at run time")
    if len(writer.shape(positions)) != 2:
        raise Unwritable("its positions are an offset")
    flat = len(shape) == 3
    tall = writer("Transpose", writer.reshape(x, [0, 0, -1, whole]), perm=[0, 2, 1, 3]) if flat else x
    turned, *rest = writer.split(tall, [width, whole - width], -1) if width < whole else [tall]
    cosine, sine = (writer.unsqueeze(writer("Gather", table, positions, axis=0), [1]) for table in (cosines, sines))
    joined = _turned(writer, turned, cosine, sine, half)
    full = writer("Concat", joined, *rest, axis=-1) if rest else joined
    if flat:
        writer.reshape(writer("Transpose", full, perm=[0, 2, 1, 3]), writer("Shape", x), to=writer.output())
    else:
        writer("Identity", full, to=writer.output())


def _turned(writer: Writer, name: str, cosine: str, sine: str, half: int) -> str:
    """Turns pairs: elements beside each other where they are interleaved, else those of the two halves."""
    beside = bool(option(writer, "interleaved", 0))
    if beside:
        outer = writer.slice(writer("Shape", name), [0], [3], [0])
        pairs = writer.reshape(name, writer("Concat", outer, np.array([half, 2], np.int64), axis=0))
        first, second = (writer.squeeze(part, [-1]) for part in writer.split(pairs, [1, 1], -1))
    else:
        first, second = writer.split(name, [half, half], -1)
    real = writer("Sub", writer("Mul", first, cosine), writer("Mul", second, sine))
    other = writer("Add", writer("Mul", first, sine), writer("Mul", second, cosine))
    if not beside:
        return writer("Concat", real, other, axis=-1)
    both = writer("Concat", *(writer.unsqueeze(part, [4]) for part in (real, other)), axis=-1)
    return writer.reshape(both, writer("Shape", name))


def _thirds(writer: Writer, name: str, weight: str) -> list[str]:
    """Cuts projections into queries, keys and values."""
    width = writer.sizes(weight)[-1]
    sizes = list(writer.attrs.get("qkv_hidden_sizes", ())) or [width // 3] * 3
    return writer.split(name, sizes, 2)


def _of_parts(writer: Writer, parts: Sequence[str], mask: str, past: str, added: str) -> None:
    if option(writer, "do_rotary", 0) or option(writer, "past_present_share_buffer", 0):
        raise Unwritable(
            "it turns its keys, or writes into a buffer: write RotaryEmbedding and MultiHeadAttention in its place"
        )
    width = writer.sizes(writer.input(1))[-1]
    sizes = list(writer.attrs.get("qkv_hidden_sizes", ())) or [width // 3] * 3
    query, key, value = (_heads(writer, part) for part in parts)
    if past or writer.output(1):
        key, value = _with_past(writer, key, value, past)
    _attended(writer, [query, key, value], sizes[0] // option(writer, "num_heads", 1), mask, added)


def _heads(writer: Writer, name: str) -> str:
    """Moves the heads of (batch, length, width) in front: (batch, heads, length, width of one)."""
    heads = option(writer, "num_heads", 1)
    return writer("Transpose", writer.reshape(name, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def _attended(writer: Writer, parts: Sequence[str], size: int, mask: str, added: str) -> None:
    """Writes the attention of queries to keys, and the values that it takes.

    Args:
        writer: Takes it.
        parts: Queries, keys and values, their heads in front.
        size: Elements of a head.
        mask: The mask of keys; "" for none.
        added: What is added to the scores; "" for nothing.
    """
    query, key, value = parts
    dtype = type_of(writer, (0, 1))
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float32)
    scale = np.array(option(writer, "scale", 0.0) or 1 / np.sqrt(size), dtype)
    scores = writer("Mul", writer("MatMul", query, writer("Transpose", key, perm=[0, 1, 3, 2])), scale)
    extra = _of_mask(writer, mask, key, dtype) if mask else ""
    if mask and added:
        # As ONNX Runtime adds them: what a mask adds leaves few digits of the rest.
        extra = writer("Add", extra, added)
    if mask or added:
        scores = writer("Add", scores, extra or added)
    if option(writer, "unidirectional", 0):
        scores = _causal(writer, scores, query, key, dtype)
    outputs = writer("MatMul", writer("Softmax", scores, axis=-1), value)
    writer.reshape(writer("Transpose", outputs, perm=[0, 2, 1, 3]), [0, 0, -1], to=writer.output())


def _with_past(writer: Writer, key: str, value: str, past: str) -> tuple[str, str]:
    """Joins keys and values to those of before, and makes the output that holds both."""
    if past:
        before = [writer.squeeze(part, [0]) for part in writer.split(past, [1, 1], 0)]
        key, value = (writer("Concat", *pair, axis=2) for pair in zip(before, (key, value), strict=True))
    if writer.output(1):
        writer("Concat", *(writer.unsqueeze(part, [0]) for part in (key, value)), axis=0, to=writer.output(1))
    return key, value


def _of_mask(writer: Writer, mask: str, key: str, dtype: np.dtype[Any]) -> str:
    """Returns what a mask adds to scores (batch, heads, queries, keys)."""
    rank = len(writer.shape(mask))
    if rank == 1:
        hits, axes = _between(writer, mask, key), [1, 2]
    elif rank in (2, 3):
        hits = writer("Greater", mask, np.array(0, writer.dtype(mask)))
        axes = [1, 2] if rank == 2 else [1]
    else:
        raise Unwritable(f"its mask has {rank} axes: give one of (batch, keys) or (batch, queries, keys)")
    filtered = np.array(option(writer, "mask_filter_value", _FILTER), dtype)
    return writer("Where", writer.unsqueeze(hits, axes), np.array(0, dtype), filtered)


def _between(writer: Writer, mask: str, key: str) -> str:
    """Returns which keys count, by their number for each sequence, or by the ends of all and then their beginnings."""
    rows, batch = writer.shape(mask)[0], writer.shape(writer.input(0))[0]
    places = writer("Range", np.array(0, np.int64), writer.squeeze(_size(writer, key, 2), [0]), np.array(1, np.int64))
    bounds = writer.unsqueeze(writer.cast(mask, np.int64), [1])
    if batch and rows == 2 * batch:
        ends, starts = writer.split(bounds, [batch, batch], 0)
        return writer("And", writer("Less", places, ends), writer("Not", writer("Less", places, starts)))
    if not _counts_keys(writer, mask):
        raise Unwritable("whether its mask of one axis has lengths, or beginnings too, is not known")
    return writer("Less", places, bounds)


def _counts_keys(writer: Writer, mask: str) -> bool:
    """Whether a mask of one axis has as many elements as there are sequences: how many keys of each count."""
    rows, batch = writer.shape(mask)[0], writer.shape(writer.input(0))[0]
    if rows is not None and rows == batch:
        return True
    maker = writer.scope.producer(mask)
    return maker is not None and maker.op_type in ("EmbedLayerNormalization", "ReduceSum")


def _causal(writer: Writer, scores: str, query: str, key: str, dtype: np.dtype[Any]) -> str:
    """Hides keys behind a query; the last query is beside the last key."""
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    queries, keys = (writer.squeeze(_size(writer, name, 2), [0]) for name in (query, key))
    rows = writer("Add", writer("Range", zero, queries, one), writer("Sub", keys, queries))
    behind = writer("Greater", writer("Range", zero, keys, one), writer.unsqueeze(rows, [1]))
    return writer("Where", behind, np.array(np.finfo(dtype).min, dtype), scores)


def _size(writer: Writer, name: str, axis: int) -> str:
    """Returns the size of an axis, of a tensor of the model or of one that was written: int64 of shape [1]."""
    return writer("Gather", writer("Shape", name), np.array([axis], np.int64), axis=0)
