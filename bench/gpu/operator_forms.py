"""The forms that operators can have, to be drawn at random: attributes, sizes, types, and inputs that are left out.

Each function draws one. What it draws need not be valid: whoever draws has ONNX Runtime judge.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

_FLOATS = (np.float32, np.float32, np.float32, np.float16)
_NUMBERS = (np.float32, np.float32, np.float16, np.int32, np.int64)
_ANY = (*_NUMBERS, np.bool_, np.uint8, np.int8)


@dataclasses.dataclass(frozen=True)
class Form:
    """One operator with all that belongs to it.

    Args:
        inputs: Values of the inputs; None: left out.
        attributes: The attributes.
        outputs: How many outputs there are.
        constants: Inputs that are always constant, by place among those that are there.
    """

    inputs: Sequence[Any]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    outputs: int = 1
    constants: frozenset[int] = frozenset()

    def named(self) -> Iterator[tuple[str, Any]]:
        """Yields the inputs that are there, each with its name."""
        for number, array in enumerate(array for array in self.inputs if array is not None):
            yield f"x{number}", array


class Hand:
    """What draws.

    Args:
        random: Where all comes from.
        opset: The operator set that is drawn for.
    """

    def __init__(self, random: random.Random, opset: int) -> None:
        self.random = random
        self.opset = opset
        self._numpy = np.random.default_rng(random.getrandbits(32))

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def count(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def chance(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def sizes(self, low: int = 1, high: int = 4, most: int = 6) -> tuple[int, ...]:
        """Draws a shape of so many dimensions; some are 1."""
        return tuple(self.pick(1, *range(2, most + 1)) for _ in range(self.count(low, high)))

    def image(self, spatial: int | None = None, least: int = 4, most: int = 11) -> tuple[int, ...]:
        """Draws a shape of a batch, channels and one to three dimensions."""
        spatial = spatial or self.pick(1, 2, 2, 2, 3)
        return (self.count(1, 2), self.count(1, 4), *(self.count(least, most) for _ in range(spatial)))

    def values(self, shape: Sequence[int], kind: Any = np.float32, low: float = -4, high: float = 4) -> Any:
        """Draws values; of floats some are whole, halves or zero, where rounding and comparing are decided."""
        kind = np.dtype(kind)
        if kind == np.bool_:
            return self._numpy.random(tuple(shape)) < 0.5
        if kind.kind in "iu":
            least = max(int(np.ceil(low)), 0) if kind.kind == "u" else int(np.ceil(low))
            return self._numpy.integers(least, max(int(high), least) + 1, tuple(shape)).astype(kind)
        drawn = self._numpy.uniform(low, high, tuple(shape))
        round_ones = np.clip(np.round(drawn * 2) / 2, low, high)
        return np.where(self._numpy.random(tuple(shape)) < 0.25, round_ones, drawn).astype(kind)

    def floats(self, shape: Sequence[int], low: float = -4, high: float = 4) -> Any:
        return self.values(shape, self.pick(*_FLOATS), low, high)

    def partner(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Draws a shape that broadcasts with another."""
        tail = shape[self.count(0, len(shape)) :]
        return tuple(1 if self.chance(0.3) else size for size in tail)

    def axis(self, rank: int) -> int:
        return self.count(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Draws some axes, none twice, each counted from either end."""
        drawn = self.random.sample(range(rank), self.count(min(least, rank), rank))
        return [axis - rank if self.chance(0.3) else axis for axis in drawn]

    def some(self, **choices: Any) -> dict[str, Any]:
        """Draws which attributes are there."""
        return {name: value for name, value in choices.items() if value is not None and self.chance(0.6)}


def _unary(low: float = -4, high: float = 4, kinds: Sequence[Any] = _FLOATS, **attributes: Any) -> Any:
    def form(h: Hand) -> Form:
        numbers = {name: round(h.random.uniform(*bounds), 2) for name, bounds in attributes.items() if h.chance(0.7)}
        return Form([h.values(h.sizes(0), h.pick(*kinds), low, high)], numbers)

    return form


def _binary(kinds: Sequence[Any] = _NUMBERS, low: float = -4, high: float = 4, *, nonzero: bool = False) -> Any:
    def form(h: Hand) -> Form:
        shape, kind = h.sizes(0), h.pick(*kinds)
        other = h.partner(shape)
        a, b = h.values(shape, kind, low, high), h.values(other, kind, low, high)
        if nonzero:
            b = np.where(b == 0, np.asarray(3, b.dtype), b)
        return Form([a, b])

    return form


def _mod(h: Hand) -> Form:
    form = _binary(nonzero=True)(h)
    floats = form.inputs[0].dtype.kind == "f"
    return dataclasses.replace(form, attributes={"fmod": 1} if floats or h.chance(0.4) else {})


def _pow(h: Hand) -> Form:
    shape = h.sizes(0)
    base = h.values(shape, h.pick(*_NUMBERS), 0, 3)
    return Form([base, h.values(h.partner(shape), h.pick(base.dtype, np.float32, np.int64), 0, 3)])


def _shift(h: Hand) -> Form:
    shape = h.sizes(0)
    kind = h.pick(np.uint8, np.uint32, np.uint64)
    return Form(
        [h.values(shape, kind, 0, 200), h.values(h.partner(shape), kind, 0, 7)],
        {"direction": h.pick("LEFT", "RIGHT")},
    )


def _variadic(h: Hand) -> Form:
    shape, kind = h.sizes(1), h.pick(*_FLOATS)
    return Form([h.values(s, kind) for s in [shape, *(h.partner(shape) for _ in range(h.count(0, 3)))]])


def _clip(h: Hand) -> Form:
    kind = h.pick(*_NUMBERS)
    x = h.values(h.sizes(0), kind)
    if h.opset < 11:
        return Form([x], h.some(min=h.random.uniform(-3, 1), max=h.random.uniform(-1, 3)))
    limits = [h.values((), kind, *b) if h.chance(0.7) else None for b in ((-3, 1), (-1, 3))]
    return Form([x, *limits])


def _reduction(kinds: Sequence[Any] = _NUMBERS, since: int = 18, low: float = -4) -> Any:
    def form(h: Hand) -> Form:
        x = h.values(h.sizes(1), h.pick(*kinds), low)
        attributes = h.some(keepdims=h.count(0, 1))
        axes = h.axes(x.ndim)
        if h.opset < since:
            return Form([x], {**attributes, **({"axes": axes} if axes else {})})
        attributes |= h.some(noop_with_empty_axes=h.count(0, 1))
        return Form([x, None if h.chance(0.2) else np.array(axes, np.int64)], attributes)

    return form


def _arg(h: Hand) -> Form:
    x = h.values(h.sizes(1), h.pick(*_NUMBERS), -2, 2)
    return Form([x], h.some(axis=h.axis(x.ndim), keepdims=h.count(0, 1), select_last_index=h.count(0, 1)))


def _along(h: Hand) -> Form:
    x = h.floats(h.sizes(1))
    return Form([x], h.some(axis=h.axis(x.ndim)))


def _batch_norm(h: Hand) -> Form:
    x = h.values(h.image())
    rows = [h.values(x.shape[1:2], low=low, high=2) for low in (-2, -2, -2, 0.1)]
    return Form([x, *rows], h.some(epsilon=h.pick(1e-5, 0.1)))


def _instance_norm(h: Hand) -> Form:
    x = h.values(h.image())
    return Form([x, *(h.values(x.shape[1:2]) for _ in "sb")], h.some(epsilon=h.pick(1e-5, 0.1)))


def _layer_norm(h: Hand) -> Form:
    x = h.floats(h.sizes(1, 4))
    axis = h.axis(x.ndim)
    scale = h.values(x.shape[axis:] if h.chance(0.7) else h.partner(x.shape[axis:]), x.dtype)
    bias = h.values(x.shape[axis:], x.dtype) if h.chance() else None
    return Form([x, scale, bias], {"axis": axis, **h.some(epsilon=h.pick(1e-5, 0.1))}, h.pick(1, 1, 1, 3))


def _rms_norm(h: Hand) -> Form:
    x = h.floats(h.sizes(1, 4))
    axis = h.axis(x.ndim)
    return Form([x, h.values(x.shape[axis:], x.dtype)], {"axis": axis, **h.some(epsilon=h.pick(1e-5, 0.1))})


def _group_norm(h: Hand) -> Form:
    groups, per = h.count(1, 3), h.count(1, 3)
    x = h.values((h.count(1, 2), groups * per, *h.sizes(1, 3)))
    size = groups if h.opset < 21 else groups * per
    return Form([x, h.values((size,)), h.values((size,))], {"num_groups": groups})


def _lrn(h: Hand) -> Form:
    x = h.values(h.image(h.pick(1, 2, 2)))
    some = h.some(alpha=h.pick(1e-4, 0.5), beta=h.pick(0.75, 0.5), bias=h.pick(1.0, 2.0))
    return Form([x], {"size": h.pick(1, 3, 5, 2, 4), **some})


def _lp_norm(h: Hand) -> Form:
    x = h.values(h.sizes(1), low=0.5)
    return Form([x], h.some(axis=h.axis(x.ndim), p=h.pick(1, 2)))


def _mvn(h: Hand) -> Form:
    x = h.values(h.sizes(3, 4))
    return Form([x], h.some(axes=h.axes(x.ndim, 1)))


def _window(h: Hand, spatial: int, *, dilated: bool = True) -> dict[str, Any]:
    kernel = [h.count(1, 3) for _ in range(spatial)]
    attributes = {"kernel_shape": kernel, **h.some(strides=[h.count(1, 3) for _ in kernel])}
    if h.chance(0.25):
        return {**attributes, "auto_pad": h.pick("SAME_UPPER", "SAME_LOWER", "VALID")}
    if dilated:
        attributes |= h.some(dilations=[h.count(1, 2) for _ in kernel])
    return {**attributes, **h.some(pads=[h.count(0, size - 1) for size in [*kernel, *kernel]])}


def _max_pool(h: Hand) -> Form:
    x = h.floats(h.image())
    attributes = _window(h, x.ndim - 2, dilated=h.opset >= 10)
    return Form([x], {**attributes, **h.some(ceil_mode=h.count(0, 1))}, h.pick(1, 1, 1, 2))


def _average_pool(h: Hand) -> Form:
    x = h.floats(h.image())
    attributes = _window(h, x.ndim - 2, dilated=h.opset >= 19)
    return Form([x], {**attributes, **h.some(ceil_mode=h.count(0, 1), count_include_pad=h.count(0, 1))})


def _lp_pool(h: Hand) -> Form:
    x = h.values(h.image())
    attributes = _window(h, x.ndim - 2, dilated=h.opset >= 18)
    return Form([x], {**attributes, **h.some(p=h.pick(1, 2, 3), ceil_mode=h.pick(0, 0, 1))})


def _global(h: Hand) -> Form:
    return Form([h.floats(h.image())])


def _global_lp(h: Hand) -> Form:
    return Form([h.values(h.image())], h.some(p=h.pick(1, 2, 3)))


def _conv(h: Hand) -> Form:
    x = h.values(h.image())
    attributes = _window(h, x.ndim - 2)
    group = h.pick(1, 1, x.shape[1])
    outputs = group * h.count(1, 3)
    w = h.values((outputs, x.shape[1] // group, *attributes["kernel_shape"]), low=-1, high=1)
    bias = h.values((outputs,)) if h.chance() else None
    attributes |= {"group": group} if group > 1 or h.chance() else {}
    if h.chance(0.3):
        del attributes["kernel_shape"]
    return Form([x, w, bias], attributes)


def _deconv(h: Hand) -> Form:
    x = h.values(h.image(least=2, most=6))
    attributes = _window(h, x.ndim - 2)
    group = h.pick(1, 1, x.shape[1])
    w = h.values((x.shape[1], h.count(1, 3), *attributes["kernel_shape"]), low=-1, high=1)
    bias = h.values((group * w.shape[1],)) if h.chance() else None
    strides = attributes.get("strides", [1] * (x.ndim - 2))
    attributes |= h.some(output_padding=[h.count(0, max(stride - 1, 0)) for stride in strides])
    if h.chance(0.2):
        attributes.pop("pads", None)
        attributes["output_shape"] = [
            size * stride + h.count(-1, 1) for size, stride in zip(x.shape[2:], strides, strict=True)
        ]
    return Form([x, w, bias], {**attributes, "group": group})


def _matmul(h: Hand) -> Form:
    a, b, k = (h.count(1, 5) for _ in "abk")
    batch = h.sizes(0, 2)
    left, right = (*batch, a, k), (*h.partner(batch), k, b)
    if h.chance(0.2):
        left = (k,)
    elif h.chance(0.2):
        right = (k,)
    kind = h.pick(*_FLOATS)
    return Form([h.values(left, kind), h.values(right, kind)])


def _gemm(h: Hand) -> Form:
    m, n, k = (h.count(1, 5) for _ in "mnk")
    ta, tb = h.count(0, 1), h.count(0, 1)
    a, b = h.values((k, m) if ta else (m, k)), h.values((n, k) if tb else (k, n))
    c = h.values(h.partner((m, n))) if h.chance(0.7) else None
    return Form([a, b, c], {"transA": ta, "transB": tb, **h.some(alpha=h.pick(0.5, 2.0), beta=h.pick(0.5, 0.0, 2.0))})


def _einsum(h: Hand) -> Form:
    equation, ranks = h.pick(
        ("ij,jk->ik", ("ij", "jk")),
        ("bij,bjk->bik", ("bij", "bjk")),
        ("bhid,bhjd->bhij", ("bhid", "bhjd")),
        ("ij->ji", ("ij",)),
        ("ij->i", ("ij",)),
        ("ij->", ("ij",)),
        ("i,j->ij", ("i", "j")),
        ("bij,bij->b", ("bij", "bij")),
        ("nchw,cd->ndhw", ("nchw", "cd")),
        ("ij,kj", ("ij", "kj")),
        ("...ij,...jk->...ik", ("abij", "abjk")),
        ("i,i", ("i", "i")),
        ("bij,bj->bi", ("bij", "bj")),
        ("ijk,ijl->kl", ("ijk", "ijl")),
    )
    sizes = {letter: h.count(1, 5) for letter in "abcdhijklnw"}
    return Form([h.values([sizes[c] for c in names]) for names in ranks], {"equation": equation})


def _reshape(h: Hand) -> Form:
    x = h.values(h.sizes(0), h.pick(*_ANY))
    target = list(x.shape)
    h.random.shuffle(target)
    if target and h.chance():
        target = [target[0], -1]
    if x.ndim and h.chance(0.4):
        target[:1] = [0] if h.chance() else [-1]
    some = h.some(allowzero=h.count(0, 1)) if h.opset >= 14 else {}
    return Form([x, np.array(target, np.int64)], some)


def _flatten(h: Hand) -> Form:
    x = h.values(h.sizes(0), h.pick(*_ANY))
    return Form([x], h.some(axis=h.count(-x.ndim, x.ndim)))


def _squeeze(h: Hand) -> Form:
    x = h.values([h.pick(1, 1, 3) for _ in range(h.count(1, 4))], h.pick(*_ANY))
    axes = [axis for axis in h.axes(x.ndim) if x.shape[axis] == 1]
    if h.chance(0.2):
        return Form([x])
    return Form([x, np.array(axes, np.int64)]) if h.opset >= 13 else Form([x], {"axes": axes})


def _unsqueeze(h: Hand) -> Form:
    x = h.values(h.sizes(0, 3), h.pick(*_ANY))
    axes = h.random.sample(range(x.ndim + 2), 2)
    axes = [axis - x.ndim - 2 if h.chance(0.3) else axis for axis in axes]
    return Form([x, np.array(axes, np.int64)]) if h.opset >= 13 else Form([x], {"axes": axes})


def _transpose(h: Hand) -> Form:
    x = h.values(h.sizes(0, 5, 4), h.pick(*_ANY))
    return Form([x], h.some(perm=h.random.sample(range(x.ndim), x.ndim)))


def _concat(h: Hand) -> Form:
    shape, kind = list(h.sizes(1)), h.pick(*_ANY)
    axis = h.axis(len(shape))
    parts = []
    for _ in range(h.count(1, 3)):
        shape[axis] = h.count(1, 4)
        parts.append(h.values(shape, kind))
    return Form(parts, {"axis": axis})


def _split(h: Hand) -> Form:
    shape = list(h.sizes(1))
    axis = h.axis(len(shape))
    parts = [h.count(1, 3) for _ in range(h.count(1, 3))]
    if h.chance(0.4):
        parts = [parts[0]] * len(parts)
    shape[axis] = sum(parts)
    x = h.values(shape, h.pick(*_NUMBERS))
    if h.opset >= 18 and h.chance():
        return Form([x], {"axis": axis, "num_outputs": len(parts)}, len(parts))
    if h.opset < 13:
        return Form([x], {"axis": axis, **h.some(split=parts)}, len(parts))
    return Form([x, np.array(parts, np.int64)], h.some(axis=axis), len(parts))


def _slice(h: Hand) -> Form:
    x = h.values(h.sizes(1), h.pick(*_ANY))
    axes = h.axes(x.ndim, 1)
    far = [1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63) + 1]
    starts, ends = ([h.pick(h.count(-7, 7), h.count(-7, 7), h.pick(*far)) for _ in axes] for _ in "se")
    if h.opset < 10:
        return Form([x], {"starts": starts, "ends": ends, "axes": axes})
    kind = h.pick(np.int64, np.int64, np.int32)
    limit = np.iinfo(kind)
    rows = [np.array(np.clip(row, limit.min, limit.max), kind) for row in (starts, ends, axes)]
    if h.chance(0.2):
        return Form([x, rows[0][:1], rows[1][:1]])
    steps = np.array([h.pick(1, 2, 3, -1, -2) for _ in axes], kind) if h.chance(0.7) else None
    return Form([x, *rows, steps])


def _pad(h: Hand) -> Form:
    x = h.values(h.sizes(1), h.pick(*_NUMBERS))
    mode = h.pick("constant", "constant", "reflect", "edge", *(["wrap"] if h.opset >= 19 else []))
    axes = h.axes(x.ndim, 1) if h.opset >= 18 and h.chance(0.3) else None
    pads = [h.pick(0, 0, 1, 2, -1) for _ in range(2 * (x.ndim if axes is None else len(axes)))]
    if h.opset < 11:
        return Form([x], {"mode": mode, "pads": pads, **h.some(value=1.5)})
    value = h.values((), x.dtype) if h.chance() else None
    return Form(
        [x, np.array(pads, np.int64), value, None if axes is None else np.array(axes, np.int64)], {"mode": mode}
    )


def _tile(h: Hand) -> Form:
    x = h.values(h.sizes(1), h.pick(*_NUMBERS))
    return Form([x, np.array([h.count(1, 3) for _ in x.shape], np.int64)])


def _expand(h: Hand) -> Form:
    target = h.sizes(1)
    x = h.values(h.partner(target), h.pick(*_ANY))
    shape = [1 if h.chance(0.3) else size for size in target]
    return Form([x, np.array(shape, np.int64)])


def _indices(h: Hand, shape: Sequence[int], size: int) -> Any:
    return h.values(shape, h.pick(np.int64, np.int64, np.int32), -size if h.chance() else 0, size - 1)


def _gather(h: Hand) -> Form:
    x = h.values(h.sizes(1), h.pick(*_ANY))
    axis = h.axis(x.ndim)
    return Form([x, _indices(h, h.sizes(0, 2), x.shape[axis])], h.some(axis=axis) if axis else {"axis": 0})


def _gather_elements(h: Hand) -> Form:
    x = h.values(h.sizes(1, 3), h.pick(*_NUMBERS))
    axis = h.axis(x.ndim)
    shape = [h.count(1, size) for size in x.shape]
    return Form([x, _indices(h, shape, x.shape[axis])], {"axis": axis})


def _gather_nd(h: Hand) -> Form:
    x = h.values(h.sizes(2, 4), h.pick(*_NUMBERS))
    batch = h.count(0, 1) if h.opset >= 12 else 0
    depth = h.count(1, x.ndim - batch)
    rows = [h.values((*x.shape[:batch], 3, 1), np.int64, -size, size - 1) for size in x.shape[batch : batch + depth]]
    return Form([x, np.concatenate(rows, -1)], {"batch_dims": batch} if batch else {})


def _reducing(h: Hand) -> dict[str, Any]:
    kinds = [] if h.opset < 16 else ["add", "mul"] if h.opset < 18 else ["add", "mul", "max", "min"]
    return {"reduction": h.pick("none", *kinds)} if kinds else {}


def _scatter_elements(h: Hand) -> Form:
    x = h.values(h.sizes(1, 3), h.pick(*_NUMBERS))
    axis = h.axis(x.ndim)
    shape = [h.count(1, size) for size in x.shape]
    order = np.argsort(h.values(shape).astype(np.float64) + np.random.default_rng(1).random(shape), axis)
    kind = h.pick(np.int64, np.int32)
    return Form([x, order.astype(kind), h.values(shape, x.dtype)], {"axis": axis, **_reducing(h)})


def _scatter_nd(h: Hand) -> Form:
    x = h.values(h.sizes(1, 4), h.pick(*_NUMBERS))
    depth = h.count(1, x.ndim)
    places = h.random.sample(list(np.ndindex(*x.shape[:depth])), min(3, int(np.prod(x.shape[:depth]))))
    indices = np.array(places, np.int64)
    return Form([x, indices, h.values((len(places), *x.shape[depth:]), x.dtype)], _reducing(h))


def _one_hot(h: Hand) -> Form:
    indices = h.values(h.sizes(0, 2), h.pick(np.int64, np.int32), -3, 6)
    kind = h.pick(np.float32, np.int32, np.int64)
    depth = np.array(h.count(2, 6), np.int64)
    return Form(
        [indices, depth if h.chance() else depth.reshape(1), h.values((2,), kind)],
        h.some(axis=h.axis(indices.ndim + 1)),
    )


def _where(h: Hand) -> Form:
    shape, kind = h.sizes(0), h.pick(*_ANY)
    return Form([h.values(h.partner(shape), np.bool_), h.values(shape, kind), h.values(h.partner(shape), kind)])


def _top_k(h: Hand) -> Form:
    x = h.values(h.sizes(1), h.pick(*_NUMBERS))
    axis = h.axis(x.ndim)
    k = h.count(1, x.shape[axis])
    if h.opset < 10:
        return Form([x], {"axis": axis, "k": k}, 2)
    return Form([x, np.array([k], np.int64)], {"axis": axis, **h.some(largest=h.count(0, 1), sorted=1)}, 2)


def _cumsum(h: Hand) -> Form:
    x = h.values(h.sizes(1), h.pick(np.float32, np.int32, np.int64))
    some = h.some(exclusive=h.count(0, 1), reverse=h.count(0, 1))
    return Form([x, np.array(h.axis(x.ndim), h.pick(np.int64, np.int32))], some)


def _trilu(h: Hand) -> Form:
    x = h.values(h.sizes(2), h.pick(*_ANY))
    return Form([x, np.array(h.count(-4, 4), np.int64) if h.chance(0.7) else None], h.some(upper=h.count(0, 1)))


def _eye_like(h: Hand) -> Form:
    return Form([h.values(h.sizes(2, 2), h.pick(*_NUMBERS))], h.some(k=h.count(-3, 3), dtype=h.pick(1, 6, 7)))


def _range(h: Hand) -> Form:
    kind = h.pick(np.float32, np.int32, np.int64)
    step = h.pick(1, 2, -1, -3)
    start = h.count(-4, 4)
    return Form([np.array(v, kind) for v in (start, start + step * h.count(1, 5) + h.pick(0, 0, 1), step)])


def _constant_of_shape(h: Hand) -> Form:
    from onnx import numpy_helper

    value = numpy_helper.from_array(h.values((1,), h.pick(*_ANY)))
    return Form([np.array(h.sizes(1), np.int64)], h.some(value=value))


def _shape(h: Hand) -> Form:
    x = h.values(h.sizes(1, 5), h.pick(*_ANY))
    return Form([x], h.some(start=h.count(-6, 6), end=h.count(-6, 6)) if h.opset >= 15 else {})


def _depth_to_space(h: Hand) -> Form:
    block = h.count(1, 3)
    x = h.values((h.count(1, 2), block * block * h.count(1, 2), h.count(1, 4), h.count(1, 4)), h.pick(*_FLOATS))
    return Form([x], {"blocksize": block, **(h.some(mode=h.pick("DCR", "CRD")) if h.opset >= 11 else {})})


def _space_to_depth(h: Hand) -> Form:
    block = h.count(1, 3)
    return Form(
        [h.values((h.count(1, 2), h.count(1, 3), block * h.count(1, 3), block * h.count(1, 3)))], {"blocksize": block}
    )


def _reverse_sequence(h: Hand) -> Form:
    batch = h.count(0, 1)
    x = h.values(h.sizes(2, 4), h.pick(*_NUMBERS))
    lengths = h.values((x.shape[batch],), np.int64, 1, x.shape[1 - batch])
    return Form([x, lengths], {"batch_axis": batch, "time_axis": 1 - batch})


def _compress(h: Hand) -> Form:
    x = h.values(h.sizes(1, 3), h.pick(*_NUMBERS))
    axis = h.axis(x.ndim)
    length = h.count(1, x.shape[axis])
    return Form([x, h.values((length,), np.bool_)], h.some(axis=axis), constants=frozenset({1}))


def _resize(h: Hand) -> Form:
    x = h.values(h.image(h.pick(1, 2, 2, 2, 3), 2, 7))
    mode = h.pick("nearest", "nearest", "linear", "linear", "cubic")
    if h.opset < 11:
        return Form(
            [x, np.array([1, 1, *(h.pick(0.5, 1, 1.5, 2, 3) for _ in x.shape[2:])], np.float32)], {"mode": mode}
        )
    attributes: dict[str, Any] = {"mode": mode}
    names = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
    names += ["tf_half_pixel_for_nn"] if h.opset < 13 else ["half_pixel_symmetric"] if h.opset >= 19 else []
    attributes |= h.some(coordinate_transformation_mode=h.pick(*names))
    if mode == "nearest":
        attributes |= h.some(nearest_mode=h.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes |= h.some(cubic_coeff_a=h.pick(-0.5, -0.75), exclude_outside=h.count(0, 1))
    if h.opset >= 18 and mode != "nearest":
        attributes |= {"antialias": 1} if h.chance(0.3) else {}
    spatial, sized = x.ndim - 2, h.chance()
    free = h.opset >= 18 and h.chance(0.4)
    numbers = [h.count(1, 14) if sized else h.pick(0.5, 0.6, 1, 1.5, 2, 2.3, 3) for _ in range(spatial)]
    if free:
        # Those that are counted from the end older versions of ONNX Runtime read wrongly.
        attributes["axes"] = [axis + 2 for axis in range(spatial)]
        if sized:
            attributes |= h.some(keep_aspect_ratio_policy=h.pick("stretch", "not_larger", "not_smaller"))
    elif sized:
        numbers = [*x.shape[:2], *numbers]
    else:
        numbers = [1, 1, *numbers]
    roi = None if h.opset >= 13 else np.array([], np.float32)
    if sized:
        return Form(
            [x, roi, None if h.opset >= 13 else np.array([], np.float32), np.array(numbers, np.int64)], attributes
        )
    return Form([x, roi, np.array(numbers, np.float32)], attributes)


def _grid_sample(h: Hand) -> Form:
    spatial = 3 if h.opset >= 20 and h.chance(0.3) else 2
    x = h.values((h.count(1, 2), h.count(1, 3), *(h.count(2, 6) for _ in range(spatial))))
    grid = h.values((x.shape[0], *(h.count(1, 5) for _ in range(spatial)), spatial), np.float32, -1.4, 1.4)
    modes = ("linear", "nearest", "cubic") if h.opset >= 20 else ("bilinear", "nearest", "bicubic")
    some = h.some(padding_mode=h.pick("zeros", "border", "reflection"), align_corners=h.count(0, 1))
    return Form([x, grid], {"mode": h.pick(*modes), **some})


def _affine_grid(h: Hand) -> Form:
    spatial = h.pick(2, 3)
    theta = h.values((h.count(1, 2), spatial, spatial + 1), np.float32, -1, 1)
    size = np.array([theta.shape[0], 2, *(h.count(2, 5) for _ in range(spatial))], np.int64)
    return Form([theta, size], h.some(align_corners=h.count(0, 1)))


def _roi_align(h: Hand) -> Form:
    x = h.values((h.count(1, 2), h.count(1, 3), h.count(4, 9), h.count(4, 9)))
    starts = h.values((3, 2), np.float32, -1, 4)
    rois = np.concatenate([starts, starts + h.values((3, 2), np.float32, 0.5, 5)], 1)
    some = h.some(
        mode=h.pick("avg", "max"),
        output_height=h.count(1, 4),
        output_width=h.count(1, 4),
        sampling_ratio=h.count(0, 3),
        spatial_scale=h.pick(1.0, 0.5),
        coordinate_transformation_mode=h.pick("half_pixel", "output_half_pixel") if h.opset >= 16 else None,
    )
    return Form([x, rois, h.values((3,), np.int64, 0, x.shape[0] - 1)], some)


def _non_max_suppression(h: Hand) -> Form:
    count = h.count(2, 8)
    corners = h.values((1, count, 2), np.float32, 0, 6)
    boxes = np.concatenate([corners, corners + h.values((1, count, 2), np.float32, 0.5, 5)], -1)
    scores = h._numpy.permutation(np.linspace(0.05, 0.95, 2 * count)).astype(np.float32).reshape(1, 2, count)
    limits = [np.array([h.count(1, 5)], np.int64), np.array([h.pick(0.3, 0.5, 0.7)], np.float32)]
    score = np.array([h.pick(0.0, 0.2, 0.5)], np.float32) if h.chance(0.7) else None
    return Form([boxes, scores, *limits, score], h.some(center_point_box=h.count(0, 1)))


def _center_crop_pad(h: Hand) -> Form:
    x = h.values(h.sizes(1, 3), h.pick(*_NUMBERS))
    axes = h.axes(x.ndim, 1)
    return Form([x, np.array([h.count(1, 8) for _ in axes], np.int64)], {"axes": axes})


def _col2im(h: Hand) -> Form:
    kernel, image = [h.count(1, 3) for _ in "hw"], [h.count(3, 6) for _ in "hw"]
    strides, pads = [h.count(1, 2) for _ in "hw"], [h.count(0, 1) for _ in "hwhw"]
    blocks = [(image[a] + pads[a] + pads[a + 2] - kernel[a]) // strides[a] + 1 for a in (0, 1)]
    x = h.values((1, h.count(1, 2) * kernel[0] * kernel[1], blocks[0] * blocks[1]))
    return Form([x, np.array(image, np.int64), np.array(kernel, np.int64)], {"strides": strides, "pads": pads})


def _cast(h: Hand) -> Form:
    x = h.values(h.sizes(0), h.pick(*_ANY), -5, 5)
    return Form([x], {"to": h.pick(1, 10, 6, 7, 9, 2, 3)})


def _cast_like(h: Hand) -> Form:
    return Form([h.values(h.sizes(0), h.pick(*_ANY)), h.values((1,), h.pick(*_ANY))])


def _quantize(h: Hand) -> Form:
    x = h.values(h.sizes(1), low=-6, high=6)
    axis = h.axis(x.ndim)
    size = (x.shape[axis],) if h.opset >= 13 and h.chance() else ()
    kind = h.pick(np.int8, np.uint8)
    zero = h.values(size, kind, 0, 20) if h.chance(0.6) else None
    return Form([x, h.values(size, np.float32, 0.02, 0.2), zero], {"axis": axis} if size else {}, 1, frozenset({1, 2}))


def _dequantize(h: Hand) -> Form:
    kind = h.pick(np.int8, np.uint8)
    x = h.values(h.sizes(1), kind, -128, 127 if kind == np.int8 else 255)
    axis = h.axis(x.ndim)
    size = (x.shape[axis],) if h.opset >= 13 and h.chance() else ()
    zero = h.values(size, kind, 0, 20) if h.chance(0.6) else None
    return Form([x, h.values(size, np.float32, 0.02, 0.2), zero], {"axis": axis} if size else {}, 1, frozenset({1, 2}))


def _recurrent(gates: int) -> Any:
    def form(h: Hand) -> Form:
        direction = h.pick("forward", "reverse", "bidirectional")
        ways = 2 if direction == "bidirectional" else 1
        steps, batch, size, hidden = h.count(1, 4), h.count(1, 3), h.count(1, 4), h.count(1, 4)
        layout = h.count(0, 1) if h.opset >= 14 and h.chance(0.3) else 0
        x = h.values((batch, steps, size) if layout else (steps, batch, size), low=-2, high=2)
        weights = [h.values((ways, gates * hidden, n), low=-1, high=1) for n in (size, hidden)]
        bias = h.values((ways, 2 * gates * hidden), low=-1, high=1) if h.chance(0.7) else None
        lengths = h.values((batch,), np.int32, 1, steps) if h.chance(0.4) else None
        state = (batch, ways, hidden) if layout else (ways, batch, hidden)
        states = [h.values(state, low=-1, high=1) if h.chance() else None for _ in range(2 if gates == 4 else 1)]
        peepholes = h.values((ways, 3 * hidden), low=-1, high=1) if gates == 4 and h.chance(0.3) else None
        attributes = {"hidden_size": hidden, "direction": direction, **h.some(clip=h.pick(None, None, 0.7))}
        attributes |= {"layout": 1} if layout else {}
        attributes |= h.some(linear_before_reset=h.count(0, 1)) if gates == 3 else {}
        if h.chance(0.3):
            names = {1: ["Relu"], 3: ["HardSigmoid", "Tanh"], 4: ["Sigmoid", "Softsign", "Tanh"]}[gates]
            attributes["activations"] = names * ways
        inputs = [x, *weights, bias, lengths, *states]
        return Form([*inputs, peepholes] if gates == 4 else inputs, attributes, h.count(1, 3 if gates == 4 else 2))

    return form


def _attention(h: Hand) -> Form:
    batch, heads, queries, keys, size = (h.count(1, 4) for _ in range(5))
    groups = h.pick(1, 1, 2)
    q = h.values((batch, heads * groups, queries, size))
    k, v = h.values((batch, heads, keys, size)), h.values((batch, heads, keys, h.count(1, 4)))
    mask = None
    if h.chance():
        mask = h.values(h.partner((batch, heads * groups, queries, keys)) or (keys,), h.pick(np.bool_, np.float32))
        mask = mask if mask.ndim >= 2 else np.broadcast_to(mask, (queries, keys)).copy()
    some = h.some(is_causal=h.count(0, 1), scale=h.pick(0.3, 1.0), softcap=h.pick(None, 2.0))
    return Form([q, k, v, mask], some)


def _rotary(h: Hand) -> Form:
    batch, heads, length, size = h.count(1, 2), h.count(1, 3), h.count(1, 4), 2 * h.count(1, 4)
    x = h.values((batch, heads, length, size))
    tables = [h.values((8, size // 2), low=-1, high=1) for _ in "cs"]
    positions = h.values((batch, length), np.int64, 0, 7)
    return Form([x, *tables, positions], h.some(interleaved=h.count(0, 1)))


def _prelu(h: Hand) -> Form:
    x = h.floats(h.sizes(1))
    return Form([x, h.values(h.partner(x.shape), x.dtype)])


def _is_inf(h: Hand) -> Form:
    x = h.values(h.sizes(0))
    x = np.where(
        x > 2, np.float32(np.inf), np.where(x < -2, np.float32(-np.inf), np.where(x == 0, np.float32(np.nan), x))
    )
    some = h.some(detect_negative=h.count(0, 1), detect_positive=h.count(0, 1))
    return Form([x.astype(np.float32)], some)


def _is_nan(h: Hand) -> Form:
    return Form(_is_inf(h).inputs)


def _dropout(h: Hand) -> Form:
    return Form([h.floats(h.sizes(0))], {}, h.pick(1, 1, 2))


def _det(h: Hand) -> Form:
    size = h.count(1, 4)
    return Form([h.values((*h.sizes(0, 2), size, size))])


def _max_unpool(h: Hand) -> Form:
    x = h.values((1, h.count(1, 2), h.count(1, 3), h.count(1, 3)))
    rows, columns = 2 * x.shape[2], 2 * x.shape[3]
    cells = np.array([[2 * i * columns + 2 * j for j in range(x.shape[3])] for i in range(x.shape[2])], np.int64)
    offsets = h.values(x.shape, np.int64, 0, 1) + columns * h.values(x.shape, np.int64, 0, 1)
    channels = np.arange(x.shape[1], dtype=np.int64)[None, :, None, None] * rows * columns
    return Form([x, cells[None, None] + offsets + channels], {"kernel_shape": [2, 2], "strides": [2, 2]})


def _dft(h: Hand) -> Form:
    x = h.values((h.count(1, 2), h.count(2, 6), h.count(2, 6), h.pick(1, 2)))
    some = h.some(onesided=h.count(0, 1), inverse=h.pick(0, 0, 1))
    if h.opset < 20:
        return Form([x], {**some, "axis": h.count(1, 2)})
    return Form([x, None, np.array(h.count(1, 2), np.int64)], some)


def _mel(h: Hand) -> Form:
    return Form([h.values((2, h.count(1, 3)), low=0, high=9)])


def _hardmax(h: Hand) -> Form:
    x = h.values(h.sizes(1), low=-2, high=2)
    return Form([x], h.some(axis=h.axis(x.ndim)))


_ONE = (1e-3, 4.0)
_UNIT = (-0.99, 0.99)
_LOGIC = (np.bool_,)
_WHOLE = (np.int32, np.int64, np.uint8)
FORMS: dict[str, Callable[[Hand], Form]] = {
    **{op: _unary(kinds=_NUMBERS) for op in ("Abs", "Neg", "Sign", "Identity", "Relu")},
    **{op: _unary() for op in ("Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Round", "Sigmoid", "Sin", "Sinh")},
    **{op: _unary() for op in ("Softplus", "Softsign", "Tanh", "HardSwish", "Mish", "Atan", "Asinh")},
    **{op: _unary(*_UNIT) for op in ("Acos", "Asin", "Atanh", "Tan")},
    **{op: _unary(*_ONE) for op in ("Log", "Sqrt", "Reciprocal")},
    "Acosh": _unary(1.1, 5.0),
    "Not": _unary(kinds=_LOGIC),
    "BitwiseNot": _unary(kinds=_WHOLE),
    "Elu": _unary(alpha=(0.1, 3)),
    "Celu": _unary(alpha=(0.1, 3)),
    "Selu": _unary(alpha=(0.5, 2), gamma=(0.5, 2)),
    "LeakyRelu": _unary(alpha=(-1, 1)),
    "ThresholdedRelu": _unary(alpha=(-1, 2)),
    "HardSigmoid": _unary(alpha=(0.1, 1), beta=(0, 1)),
    "Shrink": _unary(lambd=(0, 2), bias=(-1, 1)),
    "Gelu": lambda h: Form([h.floats(h.sizes(0))], h.some(approximate=h.pick("none", "tanh"))),
    "PRelu": _prelu,
    **{op: _binary() for op in ("Add", "Sub", "Mul")},
    "Div": _binary(nonzero=True),
    "Mod": _mod,
    "Pow": _pow,
    "BitShift": _shift,
    **{op: _binary(_LOGIC) for op in ("And", "Or", "Xor")},
    **{op: _binary(_WHOLE, 0, 9) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Equal": _binary((*_NUMBERS, np.bool_)),
    **{op: _binary() for op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")},
    **dict.fromkeys(("Max", "Min", "Mean", "Sum"), _variadic),
    "Clip": _clip,
    **{op: _reduction() for op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare")},
    **{op: _reduction(_FLOATS) for op in ("ReduceMean", "ReduceL2", "ReduceLogSumExp")},
    "ReduceLogSum": _reduction(_FLOATS, low=0.1),
    "ReduceSum": _reduction(since=13),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _along),
    "Hardmax": _hardmax,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": _group_norm,
    "LRN": _lrn,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mvn,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalAveragePool": _global,
    "GlobalMaxPool": _global,
    "GlobalLpPool": _global_lp,
    "MaxUnpool": _max_unpool,
    "Conv": _conv,
    "ConvTranspose": _deconv,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
    "Where": _where,
    "TopK": _top_k,
    "CumSum": _cumsum,
    "Trilu": _trilu,
    "EyeLike": _eye_like,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Shape": _shape,
    "Size": lambda h: Form([h.values(h.sizes(0), h.pick(*_ANY))]),
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "ReverseSequence": _reverse_sequence,
    "Compress": _compress,
    "Resize": _resize,
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "RoiAlign": _roi_align,
    "NonMaxSuppression": _non_max_suppression,
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
    "Cast": _cast,
    "CastLike": _cast_like,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    "IsInf": _is_inf,
    "IsNaN": _is_nan,
    "Dropout": _dropout,
    "Det": _det,
    "DFT": _dft,
}
"""Draws a form of each operator."""
