"""Tells bags of one length, which are the rows of a tensor of two axes."""

from __future__ import annotations

from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.bag_rows import Bag, Length, Offset
from trtconv.passes.spelling.offsets import copied, flat_of, length_of, rest_of, row_count


def starts_of(scope: Scope, bag: Bag, count: str) -> str:
    """Returns the list of where bags begin, if each ends where the next begins or all rows end; else nothing."""
    begin, end = bag.rows.begin, bag.rows.end
    joined = scope.producer(begin.offsets)
    is_next = isinstance(end, Offset) and (end.offsets, begin.ahead, end.ahead) == (begin.offsets, 0, 1)
    if not is_next or joined is None or joined.op_type != "Concat" or len(joined.input) != 2:
        return ""
    starts, length = joined.input[0], length_of(scope, count)
    # There are as many as offsets, or as offsets behind the first one.
    is_all = length != "" and (length == flat_of(scope, starts) or rest_of(scope, length) == (begin.offsets, 1))
    return starts if is_all and scope.shape(joined.input[1]) == (1,) else ""


def grid_of(scope: Scope, bag: Bag, count: str) -> str:
    """Returns the tensor of two axes whose rows are the bags; nothing where they are none."""
    starts, flat = starts_of(scope, bag, count), _numbers(scope, bag.rows.content.source)
    while (node := scope.producer(flat)) is not None and node.op_type in ("Identity", "Reshape"):
        flat = node.input[0]
        if len(scope.shape(flat) or ()) == 2:
            break
    # A mean of all steps by what is left to the end is of as many rows in the last one alone.
    is_own = not isinstance(bag.count.end, Length) and _ends_with_rows(scope, bag)
    if not starts or len(scope.shape(flat) or ()) != 2 or not is_own:
        return ""
    node = copied(scope, starts)
    if node is None or node.op_type != "Range" or not _is_zero(scope, node.input[0]):
        return ""
    is_all = _is_count_of(scope, node.input[1], flat)
    return flat if is_all and _is_size(scope, node.input[2], flat, 1) else ""


def _ends_with_rows(scope: Scope, bag: Bag) -> bool:
    """Whether the last of the offsets, and all other that the last step may count to, is the number of all rows."""
    rows, joined = row_count(scope, bag.rows.content.source), scope.producer(bag.rows.begin.offsets)
    counted = bag.last_count.end if bag.last_count is not None else None
    lengths = [end.of for end in (bag.rows.last, counted) if isinstance(end, Length)]
    lengths += [length_of(scope, joined.input[1])] if joined is not None else []
    return all(length and row_count(scope, length) == rows for length in lengths)


def _numbers(scope: Scope, name: str) -> str:
    """Returns the list that has as many entries as a tensor has rows, by which they were looked up; or the tensor."""
    while len(scope.shape(name) or ()) == 2 and (node := scope.producer(name)) is not None:
        if node.op_type == "Gather" and not attribute(node, "axis", 0):
            return str(node.input[1])
        if node.op_type not in ("Identity", "Mul"):
            break
        name = node.input[0]
    return name


def _is_count_of(scope: Scope, name: str, grid: str) -> bool:
    """Whether a tensor is the number of elements of another one of two axes."""
    node = copied(scope, name)
    if node is None:
        return False
    if node.op_type == "ReduceProd":
        shape = copied(scope, node.input[0])
        return shape is not None and shape.op_type == "Shape" and shape.input[0] == grid and len(shape.attribute) == 0
    return node.op_type == "Mul" and any(
        _is_size(scope, first, grid, 0) and _is_size(scope, second, grid, 1)
        for first, second in (node.input, reversed(node.input))
    )


def _is_size(scope: Scope, name: str, tensor: str, axis: int) -> bool:
    """Whether a tensor is the size of an axis of another one."""
    values = scope.values(name)
    shape = scope.shape(tensor)
    if values is not None:
        return shape is not None and values.size == 1 and shape[axis] == int(values.reshape(-1)[0])
    node, first = copied(scope, name), axis
    end: int | None = axis + 1
    if node is not None and node.op_type == "Gather":
        index = scope.values(node.input[1])
        node, first, end = scope.producer(node.input[0]), 0, None
        if index is None or index.reshape(-1).tolist() != [axis]:
            return False
    if node is None or node.op_type != "Shape" or node.input[0] not in _like(scope, tensor, axis):
        return False
    return bool(attribute(node, "start", 0) == first and attribute(node, "end") == end)


def _like(scope: Scope, tensor: str, axis: int) -> set[str]:
    """Returns a tensor, and the inputs of its graph that share the name of its size with it."""
    inputs = {value.name: value.type.tensor_type.shape.dim for value in scope.graph.input}
    names = {name: dims[axis].dim_param for name, dims in inputs.items() if axis < len(dims)}
    label = names.get(tensor)
    return {tensor} | {name for name in names if label and names[name] == label}


def _is_zero(scope: Scope, name: str) -> bool:
    values = scope.values(name)
    return values is not None and not values.any()
