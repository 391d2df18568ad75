"""Finds sizes that an exporter wrote into a model as constants, and what to write instead.

A model is *baked* where it accepts some sizes of its dynamic inputs, but neither twice nor three times those. The sizes
that were traced are found among the constants of its Reshape and Resize nodes. At these sizes a repaired node computes
exactly what it did; at others it does what the same PyTorch code, exported with dynamic shapes, would do.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from trtconv.core.dims import dynamic_dims, sizes_text
from trtconv.core.frozen import frozen
from trtconv.graph.channel_counts import dims_by_weights
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Num, Sizes, Tensor, sizes_of
from trtconv.shapes.lattice.number import is_just
from trtconv.shapes.lattice.trial import Node
from trtconv.shapes.traced.interpret import Example, Point, Reading, generic
from trtconv.shapes.traced.repairs import ReshapeTarget, Scaling, Shuffle, Unrepaired, asked_of, dims_of, freed, ints_of

_MOST_SIZES = 48
_MOST_POSITIONS = 8192
"""Along one axis."""
_MOST_POINTS = 512
_MOST_READINGS = 24
_MOST_BATCHES = 8
_LARGEST_BATCH = 64
_MOST_SIDE = 512
"""Of a feature map whose positions are tokens."""
_MOST_ELEMENTS = 1 << 26
"""Of a tensor of a model that is run at sizes which nobody asked for."""
_MEANT = "has constant sizes, which may be meant so as well as be the example's: the network accepts either"
_FACTORS = (1, 2, 4, 8, 16)
_STRIDES = (1, 2, 4, 8, 16, 32)
_MOST_PRODUCTS = 6
"""Constants that are taken for a height times a width, the largest first."""
_SHUFFLES = {
    # perm of the six dimensions: operator, mode, positions of (channels, first block, second block, height, width)
    (0, 1, 4, 2, 5, 3): ("DepthToSpace", "CRD", (1, 2, 3, 4, 5)),
    (0, 3, 4, 1, 5, 2): ("DepthToSpace", "DCR", (3, 1, 2, 4, 5)),
    (0, 3, 5, 1, 2, 4): ("SpaceToDepth", "", (1, 3, 5, 2, 4)),
    (0, 1, 3, 5, 2, 4): ("SpaceToDepth", "torch", (1, 3, 5, 2, 4)),
}


@frozen
class _Found:
    repairs: tuple[Scaling | ReshapeTarget, ...]
    refusals: tuple[Unrepaired, ...]
    examples: tuple[Example, ...]


def baked_in(model: OnnxModel) -> Baked:
    """Returns what is baked into a model as it is now; asked by a rule and by every pass in turn, found out once."""
    if "baked" not in model.whole.derived:
        model.whole.derived["baked"] = Baked(model)
    baked: Baked = model.whole.derived["baked"]
    return baked


class Baked:
    """A model with the sizes that were baked into it.

    Args:
        model: The model; must not change while the object is in use.
    """

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    @functools.cached_property
    def _sizes(self) -> Sizes:
        return sizes_of(self.model)

    @property
    def _nodes(self) -> list[Node]:
        return self._sizes.runner.program.nodes

    def shuffles(self) -> list[Shuffle]:
        """Finds pixel shuffles whose sizes are baked in."""
        return self._shuffles

    @functools.cached_property
    def _shuffles(self) -> list[Shuffle]:
        if not self._may_have("Transpose"):
            return []
        readers: dict[str, list[int]] = {}
        for index, node in enumerate(self._nodes):
            for name in node.inputs:
                readers.setdefault(name, []).append(index)
        shuffles: list[Shuffle] = []
        targets: dict[int, Sequence[Num]] = {}

        def revise(index: int, node: Node, tensors: Mapping[str, Tensor]) -> Mapping[int, Tensor | None]:
            """Shows each what the repairs of those before it make."""
            if node.op == "Reshape" and index not in targets:
                dims = dims_of(node.inputs[0], tensors)
                shuffle = self._shuffle(index, node, dims, readers)
                if shuffle is not None:
                    shuffles.append(shuffle)
                    targets.update(freed(shuffle, dims))
            return {1: Tensor.of_nums(targets[index])} if index in targets else {}

        self._sizes.run(generic(self._sizes.names), keep=True, revise=revise)
        return shuffles

    def scalings(self) -> list[Scaling]:
        """Finds Resize nodes whose sizes are baked in."""
        return [repair for repair in self._search.repairs if isinstance(repair, Scaling)]

    def targets(self) -> list[ReshapeTarget]:
        """Finds Reshape nodes whose sizes are baked in."""
        return [repair for repair in self._search.repairs if isinstance(repair, ReshapeTarget)]

    def refusals(self) -> list[Unrepaired]:
        """Tells why sizes that are baked into Reshape and Resize nodes are not to be repaired."""
        return list(self._search.refusals)

    def examples(self) -> list[Example]:
        """Finds sizes at which the repaired model computes what the model does; likely ones first.

        Where `refusals` is empty, and all is repaired, the repaired model accepts the multiples of each as well.
        """
        return list(self._search.examples)

    def accepted(self, points: Sequence[Point]) -> list[Point]:
        """Returns those of some sizes that the model as it is accepts, as far as shapes tell."""
        return [point for point, fine in zip(points, self._accepted(points), strict=True) if fine]

    def cheap(self, points: Sequence[Point]) -> list[Point]:
        """Returns those of some sizes that the model accepts without making a tensor of gigabytes of any."""
        points = [point for point in self.accepted(points) if all(size > 0 for size in point.values())]
        most = np.zeros(len(points))
        for tensor in self._sizes.run(points, keep=True).tensors.values() if points else ():
            if tensor.is_known:
                most = np.maximum(most, tensor.elements)
        return [point for point, elements in zip(points, most, strict=True) if elements <= _MOST_ELEMENTS]

    @functools.cached_property
    def _search(self) -> _Found:
        points = self._points
        if not points:
            return _Found((), (), ())
        before = self._sizes.run(points, keep=True).tensors
        batch = self._batch(self._sizes.names)
        examples = [
            Example(point, functools.partial(_sizes_at, before, row), batch) for row, point in enumerate(points)
        ]
        readings: list[Reading] = []
        whole: list[Reading] = []
        for reading in filter(lambda candidate: candidate.consistent, map(self._read, examples)):
            readings.append(reading)
            whole += [reading] if reading.refusal is None else []
            if len({reading.plan for reading in whole}) > 1:
                break  # whatever else there is, it is ambiguous
        fitting = tuple(reading.example for reading in readings)
        if len({reading.plan for reading in whole}) == 1:
            return _Found(tuple(whole[0].repairs), (), tuple(reading.example for reading in whole))
        if whole:
            return _Found((), (_ambiguous(whole),), fitting)
        # Where nothing would be repaired there is nothing to refuse.
        likely = [r for r in readings if r.repairs or (r.refusal and r.refusal.node.op == "Reshape")]
        best = max(likely, key=lambda reading: len(reading.repairs), default=None)
        return _Found((), (_explained(best),) if best else (), fitting)

    def _read(self, example: Example) -> Reading:
        """Reads the model as traced at an example, with no more Resize nodes scaled than it takes."""
        plain = self._reading(example, lambda index: False)
        if not plain.consistent or not plain.fixed:
            return plain
        if plain.refusal is None:
            # A Resize to a fixed size in a network that accepts other sizes is meant so.
            point = example.point
            if plain.loosened or not self._accepts_others(example, point.keys() - set(example.batch)):
                plain.refusal = Unrepaired(plain.fixed[0], _MEANT)
            return plain
        full = self._reading(example, lambda index: True)
        if full.refusal is None:
            scaled = [repair for repair in full.repairs if isinstance(repair, Scaling)]
            standing = (s.node for s in scaled if self._stands(example, s.index) or self._is_free(example, s.node))
            loose = next(itertools.chain(full.fixed, standing), None)
            full.refusal = Unrepaired(loose, _MEANT) if loose else None
        return full

    def _stands(self, example: Example, index: int) -> bool:
        """Whether a Resize may keep its sizes as well."""
        return self._reading(example, lambda other: other != index).refusal is None

    def _is_free(self, example: Example, node: Node) -> bool:
        """Whether what a Resize takes has sizes of its own, at others of which the model as it is runs too."""
        mask = functools.reduce(int.__or__, (dim.mask for dim in dims_of(node.inputs[0], self._tensors)), 0)
        own = {name for bit, name in enumerate(self._sizes.names) if mask >> bit & 1} - set(example.batch)
        return bool(own) and self._accepts_others(example, own)

    def _reading(self, example: Example, scale: Callable[[int], bool]) -> Reading:
        return Reading(self._sizes, example, self.shuffles(), scale, self.model.outputs)

    def _accepts_others(self, example: Example, names: Collection[str]) -> bool:
        """Whether the model as it is accepts an example with other sizes of these names."""
        point = example.point
        scaled = [{n: s * factor if n in names else s for n, s in point.items()} for factor in (2, 3)]
        return any(self._accepted(scaled))

    def _may_have(self, *ops: str) -> bool:
        """Asks without cost whether nodes of these operators can have baked sizes: most models end here."""
        if self.model.proto.functions or not dynamic_dims(self.model.inputs):
            return False
        return not self.model.main.by_op.keys().isdisjoint(ops) and bool(self._constants)

    @functools.cached_property
    def _constants(self) -> list[int]:
        """The constant sizes that Reshape and Resize nodes ask for."""
        sizes: set[int] = set()
        for node in self._nodes:
            sizes.update(n for n in asked_of(node, self._tensors) or () if n is not None and n > 1)
        return sorted(sizes)

    @functools.cached_property
    def _tensors(self) -> Mapping[str, Tensor]:
        """Every tensor at generic sizes: it shows which dimensions are dynamic, and which are the same."""
        return self._sizes.run(generic(self._sizes.names), keep=True).tensors

    @functools.cached_property
    def _points(self) -> list[Point]:
        """The sizes at which the model may have been traced, likely ones first; none where it is not baked."""
        names = self._sizes.names if self._may_have("Reshape", "Resize") else []
        if not names or self._scales(names):
            return []
        good = self.accepted(list(self._candidates(names)))
        batch = self._batch(names)

        def unlikely(point: Point) -> tuple[int, ...]:
            rest = [size for name, size in point.items() if name not in batch]
            return sum(point[name] for name in batch), len(set(rest)), sum(rest)

        good = self._declared(sorted(good, key=unlikely)[:_MOST_POINTS])
        scaled = [{name: size * factor for name, size in point.items()} for point in good for factor in (2, 3)]
        fine = self._accepted(scaled)
        traced = [point for row, point in enumerate(good) if not any(fine[2 * row : 2 * row + 2])]
        return _mixed(traced, batch)[:_MOST_READINGS]

    def _declared(self, points: Sequence[Point]) -> list[Point]:
        """Returns those of some sizes at which tensors have the sizes that the file declares for them."""
        tensors = self._sizes.run(points, keep=True).tensors
        fits = np.ones(len(points), dtype=bool)
        graph = self.model.proto.graph
        for value in (*graph.output, *graph.value_info):
            tensor = tensors.get(value.name)
            declared = value.type.tensor_type.shape.dim
            if tensor is None or tensor.shape is None or len(tensor.shape) != len(declared):
                continue
            for num, dim in zip(tensor.shape, declared, strict=True):
                if num.is_known and dim.HasField("dim_value"):
                    fits &= np.asarray(num.value) == dim.dim_value
        return [point for point, fine in zip(points, fits, strict=True) if fine]

    def _scales(self, names: Sequence[str]) -> bool:
        """Whether the model accepts some usual sizes, so that nothing is baked in; asked first, since it is cheap."""
        batch = self._batch(names)
        sizes = (64, 128, 192, 256, 384, 512)
        # A batch of 2 may be baked in, and then no other is accepted.
        usual = [{n: count if n in batch else size for n in names} for count in (2, 3) for size in sizes]
        # Of these the weights allow one size, which is no example's.
        channels = {name: count for name, count in dims_by_weights(self.model).items() if name in names}
        fine = self._accepted([{**point, **channels} for point in usual])
        return all(sum(fine[row : row + len(sizes)]) >= 2 for row in range(0, len(fine), len(sizes)))

    def _accepted(self, points: Sequence[Point]) -> list[bool]:
        accepted = np.ones(len(points), dtype=bool)
        for check in self._sizes.run(points).checks:
            accepted &= check.holds
        return [bool(fine) for fine in accepted]

    def _batch(self, names: Sequence[str]) -> list[str]:
        places = dynamic_dims(self.model.inputs)
        return [n for n in names if n in places and all(place.endswith(":0") for place in places[n])]

    def _candidates(self, names: Sequence[str]) -> Iterator[Point]:
        """Yields combinations of sizes that constants suggest; not 1, which broadcasts beside anything."""
        sizes = {n * f for n in self._constants for f in _FACTORS} | {
            n // f for n in self._constants for f in _FACTORS if n % f == 0
        }
        likely = sorted(size for size in sizes if 1 < size <= _MOST_POSITIONS)
        if len(likely) > _MOST_SIZES:
            likely = [n for n in self._constants if n in likely][:_MOST_SIZES]
        batch = self._batch(names)
        others = [n for n in names if n not in batch]
        pairs: list[tuple[int, ...]] = [(n,) * len(others) for n in likely] if others else [()]
        if len(others) == 2:
            products = itertools.product(likely, repeat=2)
            pairs = list(dict.fromkeys([*products, *_areas(self._constants[-_MOST_PRODUCTS:])]))
        for count in self._counts if batch else self._counts[:1]:
            for pair in pairs:
                yield {**dict.fromkeys(batch, count), **{n: int(s) for n, s in zip(others, pair, strict=True)}}

    @functools.cached_property
    def _counts(self) -> list[int]:
        """Batches that the model may have been traced with: usual ones, and what targets begin with."""
        targets = (asked_of(node, self._tensors) for node in self._nodes)
        first = {sizes[0] for sizes in targets if sizes and sizes[0] is not None and 1 < sizes[0] <= _LARGEST_BATCH}
        return sorted({1, 2, 4, 8} | set(sorted(first)[:_MOST_BATCHES]))

    def _shuffle(
        self, index: int, first: Node, dims: Sequence[Num], readers: Mapping[str, list[int]]
    ) -> Shuffle | None:
        split, turn = ints_of(first, self._tensors), self._reader(first, "Transpose", readers)
        if split is None or len(split) != 6 or turn is None:
            return None
        pattern = _SHUFFLES.get(tuple(self._nodes[turn].attrs.get("perm", ())))
        last = self._reader(self._nodes[turn], "Reshape", readers)
        if pattern is None or last is None:
            return None
        op, mode, positions = pattern
        channels, block, other, height, width = (split[n] for n in positions)
        joined = ints_of(self._nodes[last], self._tensors)
        if len(dims) != 4 or joined is None or len(joined) != 4 or block != other or block < 2:
            return None
        # Only sizes that are dynamic outside and constant here are baked.
        if not any(dims[axis].mask and n > 0 for axis, n in zip((0, 2, 3), (split[0], height, width), strict=True)):
            return None
        deep = block * block * channels
        fine = (channels, height * block, width * block) if op == "DepthToSpace" else (deep, height, width)
        whole = is_just(dims[1], deep if op == "DepthToSpace" else channels)
        if not whole or min(height, width) < 1 or not _agrees(joined, (split[0], *fine)):
            return None
        return Shuffle(first, (index, turn, last), op, mode, block, channels, tuple(split), positions)

    def _reader(self, node: Node, op: str, readers: Mapping[str, list[int]]) -> int | None:
        """Returns the position of the node of an operator that alone reads what a node makes."""
        match readers.get(node.output, []):
            case [position] if self._nodes[position].op == op and node.output not in self.model.outputs:
                return position
        return None


def _agrees(target: Sequence[int], sizes: Sequence[int]) -> bool:
    if not all(n in (0, -1, size) for n, size in zip(target[1:], sizes[1:], strict=True)):
        return False
    # The batch may be spelled differently in the two.
    return target[0] in (0, -1, sizes[0]) or sizes[0] in (0, -1)


def _sizes_at(tensors: Mapping[str, Tensor], row: int, name: str) -> list[int] | None:
    tensor = tensors.get(name)
    if tensor is None or tensor.shape is None or not tensor.is_known:
        return None
    return [num.at(row) for num in tensor.shape]


def _areas(products: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields heights and widths that a network of usual strides makes products of, such as a number of tokens."""
    for product in products:
        sides = [(n, product // n) for n in range(1, min(product, _MOST_SIDE) + 1) if product % n == 0]
        for (height, width), stride in itertools.product(sides, _STRIDES):
            if width <= _MOST_SIDE and min(height, width) * stride > 1:
                yield height * stride, width * stride


def _mixed(points: Sequence[Point], batch: Sequence[str]) -> list[Point]:
    """Puts each batch's likeliest sizes first, then its second: where readings differ, it is most often by batch."""
    rows: dict[tuple[int, ...], list[Point]] = {}
    for point in points:
        rows.setdefault(tuple(point[name] for name in batch), []).append(point)
    return [point for rank in itertools.zip_longest(*rows.values()) for point in rank if point is not None]


def _ambiguous(whole: Sequence[Reading]) -> Unrepaired:
    """Says that two examples explain the constants, and names a node that they repair in different ways."""
    one = whole[0]
    two = next(reading for reading in whole if reading.plan != one.plan)
    nodes = {repair.index: repair.node for repair in (*two.repairs, *one.repairs)}
    index = min(dict(set(one.plan) ^ set(two.plan)))
    points = f"{sizes_text(one.example.point)} as well as {sizes_text(two.example.point)}"
    return Unrepaired(nodes[index], f"has constants that fit an example of {points}")


def _explained(reading: Reading) -> Unrepaired:
    assert reading.refusal is not None
    node, why = reading.refusal.node, reading.refusal.why
    return Unrepaired(node, f"{why}; the other constants fit an example of {sizes_text(reading.example.point)}")
