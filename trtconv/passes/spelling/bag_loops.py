"""Recognises loops that go from bag to bag: each step cuts rows out of a tensor and reduces them to one."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx

from trtconv.graph.attributes import attribute
from trtconv.passes.spelling.bag_rows import Bag, BagRows, Count, Length, Offset, cut, looked_up, widened
from trtconv.passes.spelling.offsets import flat_of, is_copy, length_of, rest_of
from trtconv.passes.spelling.writer import Unwritable, Writer

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax")
_NUMBER_OF_STEP, _FIRST_STATE = 0, 2


class BagLoop:
    """A loop as one looks at it from the graphs inside; all that it finds no bag in raises `Unwritable`.

    Args:
        writer: Of a node of the graph that the loop is in.
        loop: The loop.
    """

    def __init__(self, writer: Writer, loop: onnx.NodeProto) -> None:
        self._writer = writer
        self._scope = writer.scope
        self._loop = loop
        self._body = body_of(loop)
        self._makers: dict[str, onnx.NodeProto] = {}
        self._constants: dict[str, onnx.TensorProto] = {}
        self._inputs: set[str] = set()
        self._note(self._body)
        self._number = self._number_of_step()
        self._last_counts: set[str] = set()

    def _note(self, graph: onnx.GraphProto) -> None:
        """Notes what a graph and those inside it make; torch gives all of it names of its own."""
        self._inputs.update(value.name for value in graph.input)
        self._constants.update((tensor.name, tensor) for tensor in graph.initializer)
        for node in graph.node:
            for name in filter(None, node.output):
                if self._makers.setdefault(name, node) is not node:
                    raise Unwritable
            for entry in node.attribute:
                if entry.HasField("g"):
                    self._note(entry.g)

    def _number_of_step(self) -> str:
        """Returns the tensor that has the number of the step: the body's own, or where there is no trip count, a state
        that begins with 0 and to which each step adds 1."""
        if self._loop.input[0]:
            return str(self._body.input[_NUMBER_OF_STEP].name)
        for slot, state in enumerate(self._body.input[_FIRST_STATE:], 1):
            begin = self._writer.resolve(self._loop.input[slot + 1])
            self._number = state.name
            if begin is not None and not begin.any() and self._ahead(self._body.output[slot].name) == 1:
                return str(state.name)
        raise Unwritable

    def steps(self) -> str:
        """Returns the tensor of how many steps there are, by which the body may tell the last one."""
        count = self._loop.input[0] or self._condition()
        if self._last_counts - {count}:
            raise Unwritable
        return count

    def _condition(self) -> str:
        """Returns the tensor that a loop without a trip count goes on below."""
        ends, begins = self._copied(self._body.output[0].name), self._scope.producer(self._loop.input[1])
        if ends is None or begins is None or (ends.op_type, begins.op_type) != ("Less", "Less"):
            raise Unwritable
        count = self._outer(self._origin(ends.input[1]))
        first = self._writer.resolve(begins.input[0])
        if self._ahead(ends.input[0]) != 1 or begins.input[1] != count or first is None or first.any():
            raise Unwritable
        return count

    def bag(self, name: str) -> Bag:
        """Returns what a tensor of the body is a reduction of."""
        node = self._maker(name)
        if node.op_type in REDUCTIONS and self._axes(node) == [0]:
            return Bag(node.op_type, self._rows(node.input[0]), bool(attribute(node, "keepdims", 1)))
        if node.op_type == "Identity":
            return self.bag(node.input[0])
        if node.op_type == "Div":
            return self._mean(node)
        then, otherwise = _branches(node)
        condition = self._maker(node.input[0])
        if condition.op_type == "Greater":
            return self._mean_or_nothing(condition, then, otherwise)
        if self._is_zero(then):
            return self._zero_or_bag(condition, otherwise)
        self._note_last(condition)
        return self.bag(otherwise).until(self.bag(then))

    def _zero_or_bag(self, condition: onnx.NodeProto, name: str) -> Bag:
        """Returns the bag of an If that makes one without rows zero."""
        bag = self.bag(name)
        if condition.op_type != "Equal" or {*map(self._entry, condition.input)} != {bag.rows.begin, bag.rows.end}:
            raise Unwritable
        return dataclasses.replace(bag, empty_is_zero=True)

    def _mean_or_nothing(self, condition: onnx.NodeProto, then: str, otherwise: str) -> Bag:
        """Returns the bag of an If that divides a sum where there are rows, and else has the sum."""
        mean, total = self.bag(then), self.bag(otherwise)
        is_sum = dataclasses.replace(mean, op="ReduceSum", count=Count()) == total
        counts = self._count(condition.input[0]) == (mean.rows.begin, mean.count.end)
        if not is_sum or not counts or not self._is_zero(condition.input[1]):
            raise Unwritable
        return dataclasses.replace(mean, count=Count(mean.count.end))

    def _mean(self, node: onnx.NodeProto) -> Bag:
        """Returns the bag of a sum divided by the number of its rows, which may be counted to the end of all."""
        total = self.bag(node.input[0])
        begin, end = self._count(node.input[1])
        is_count = begin == total.rows.begin and (isinstance(end, Length) or end == total.rows.end)
        if total.op != "ReduceSum" or total.empty_is_zero or not is_count:
            raise Unwritable
        return dataclasses.replace(total, op="ReduceMean", count=Count(end, is_positive=False))

    def _count(self, name: str) -> tuple[Offset | Length, Offset | Length]:
        """Returns from where to where a tensor counts rows."""
        node = self._copied(name)
        if node is None or node.op_type != "Sub":
            raise Unwritable
        return self._bound(node.input[1]), self._bound(node.input[0])

    def _note_last(self, condition: onnx.NodeProto) -> None:
        """Notes the tensor that a condition takes for the number of steps: the step is one less than it."""
        if condition.op_type == "Equal" and self._ahead(condition.input[0]) == 0:
            node = self._copied(condition.input[1])
            one = None if node is None or node.op_type != "Sub" else self._constant(node.input[1])
            if node is not None and one is not None and one.tolist() in (1, [1]):
                self._last_counts.add(self._outer(self._origin(node.input[0])))
                return
        raise Unwritable

    def _rows(self, name: str) -> BagRows:
        node = self._maker(name)
        if node.op_type == "If":
            then, otherwise = _branches(node)
            self._note_last(self._maker(node.input[0]))
            return self._rows(otherwise).until(self._rows(then))
        if node.op_type == "Slice" and self._is_along_first(node):
            begin = self._bound(node.input[1])
            if isinstance(begin, Offset):
                return BagRows(begin, self._bound(node.input[2]), cut(self._writer, self._outer(node.input[0])))
        elif node.op_type == "Gather" and not attribute(node, "axis", 0):
            table, rows = self._outer(node.input[0]), self._rows(node.input[1])
            return dataclasses.replace(rows, content=looked_up(self._writer, table, rows.content))
        elif node.op_type == "Unsqueeze" and min(axes := self._axes(node), default=0) > 0:
            rows = self._rows(node.input[0])
            return dataclasses.replace(rows, content=widened(self._writer, rows.content, axes))
        elif node.op_type == "Mul":
            return self._rows(node.input[0]).times(self._writer, self._rows(node.input[1]))
        raise Unwritable

    def _is_along_first(self, node: onnx.NodeProto) -> bool:
        axes, steps = [*node.input[3:5], "", ""][:2]
        return (not axes or self._has(axes, 0)) and (not steps or self._has(steps, 1))

    def _has(self, name: str, value: int) -> bool:
        values = self._constant(name)
        return values is not None and values.tolist() == [value]

    def _bound(self, name: str) -> Offset | Length:
        """Returns an entry of the step, or the length of a list of the graph around the loop."""
        entry = self._entry(name)
        if entry is not None:
            return entry
        node = self._copied(name)
        if node is not None and node.op_type == "Shape":
            length = flat_of(self._scope, self._outer(node.input[0]))
        else:
            length = length_of(self._scope, self._outer(self._origin(name)))
        if not length:
            raise Unwritable
        return Length(length)

    def _entry(self, name: str) -> Offset | None:
        node = self._copied(name)
        if node is None or node.op_type not in ("Gather", "Slice") or node.input[0] in self._makers:
            return None
        ahead = self._ahead(node.input[1])
        # At -1 is the last entry in the first step.
        if ahead is None or ahead < 0 or attribute(node, "axis", 0):
            return None
        if node.op_type == "Slice" and not (self._is_along_first(node) and self._ahead(node.input[2]) == ahead + 1):
            return None
        offsets = self._outer(node.input[0])
        if len(self._writer.shape(offsets)) != 1:
            return None
        rest = rest_of(self._scope, offsets)
        whole, skipped = rest or (offsets, 0)
        return Offset(whole, ahead + skipped, offsets, ahead)

    def _ahead(self, name: str) -> int | None:
        """Returns how much more than the number of the step a tensor is; None where it is not that."""
        name = self._origin(name)
        node = self._makers.get(name)
        if node is None or node.op_type != "Add":
            return 0 if name == self._number else None
        for number, other in (node.input, reversed(node.input)):
            ahead, more = self._ahead(number), self._constant(other)
            if ahead is not None and more is not None and more.size == 1:
                return ahead + int(more.item())
        return None

    def _copied(self, name: str) -> onnx.NodeProto | None:
        """Returns the node inside that makes a number, through copies of it."""
        return self._makers.get(self._origin(name))

    def _origin(self, name: str) -> str:
        while (node := self._makers.get(name)) is not None and is_copy(node):
            name = node.input[0]
        return name

    def _constant(self, name: str) -> np.ndarray | None:
        name = self._origin(name)
        node = self._makers.get(name)
        tensor = self._constants.get(name)
        if node is not None and node.op_type == "CastLike":
            return self._constant(node.input[0])
        if node is not None and node.op_type == "Constant":
            tensor = attribute(node, "value")
        if tensor is not None:
            return self._scope.whole.array(tensor)
        if node is not None or name in self._inputs:
            return None
        return self._writer.resolve(name)

    def _is_zero(self, name: str) -> bool:
        values = self._constant(name)
        return values is not None and not values.any()

    def _axes(self, node: onnx.NodeProto) -> list[int]:
        if len(node.input) > 1:
            axes = self._constant(node.input[1])
            return [] if axes is None else [int(axis) for axis in axes.reshape(-1)]
        return [int(axis) for axis in attribute(node, "axes", [])]

    def _maker(self, name: str) -> onnx.NodeProto:
        if name not in self._makers:
            raise Unwritable
        return self._makers[name]

    def _outer(self, name: str) -> str:
        """Returns the name of a tensor of the graph around the loop."""
        if name in self._makers or name in self._inputs or name in self._constants:
            raise Unwritable
        return name


def body_of(loop: onnx.NodeProto) -> onnx.GraphProto:
    """Returns the body of a loop."""
    return attribute(loop, "body")


def _branches(node: onnx.NodeProto) -> tuple[str, str]:
    """Returns what the branches of an If make."""
    if node.op_type != "If" or len(node.output) != 1:
        raise Unwritable
    return attribute(node, "then_branch").output[0].name, attribute(node, "else_branch").output[0].name
