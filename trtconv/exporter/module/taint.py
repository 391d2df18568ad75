"""Which tensors depend on the values of a module's inputs, followed operator by operator while the module runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_READS = frozenset({"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::allclose"})
"""Operators that give a number or a truth, and no tensor."""
_SHAPE_ONLY = frozenset(
    f"aten::{name}"
    for name in (
        *(f"{kind}_like" for kind in ("empty", "zeros", "ones", "full", "rand", "randn", "randint")),
        *("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "_shape_as_tensor"),
    )
)
"""Operators whose result has a tensor's shape and type, and nothing of its values."""


class Taint(TorchDispatchMode):  # type: ignore[misc]
    """Follows, while it is entered, what is computed from some tensors.

    Memory is what is followed, and not tensors: a view that is written to changes what it is a view of. An address is
    not used again while a weak reference to it is held.

    Args:
        sources: The tensors that it begins with.
    """

    def __init__(self, sources: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._memory: dict[int, StorageWeakRef] = {}
        self.reads = 0
        """How many numbers were taken out of tensors that depend on the sources."""
        self.sized = False
        """Whether the last operator made a tensor whose size depends on the sources' values."""
        for tensor in sources:
            self._add(tensor)

    def holds(self, value: Any) -> bool:
        """Whether a value has a tensor in it that depends on the sources."""
        return any(key in self._memory for tensor in tensors_in(value) if (key := _address(tensor)) is not None)

    def _add(self, tensor: torch.Tensor) -> None:
        key = _address(tensor)
        if key is not None and key not in self._memory:
            self._memory[key] = StorageWeakRef(tensor.untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # The modes above would see what is asked of tensors here.
        with torch._C.DisableTorchFunction():
            return self._followed(func, args, kwargs or {})

    def _followed(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if not self.holds((args, kwargs)):
            return result
        name = func._schema.name
        if name in _READS:
            self.reads += 1
        elif name not in _SHAPE_ONLY:
            for tensor in (*tensors_in(result), *_targets(func, args, kwargs)):
                self._add(tensor)
        if torch.Tag.dynamic_output_shape in func.tags and (name != "aten::index" or _by_mask(args)):
            self.sized = True
        return result


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _address(tensor: torch.Tensor) -> int | None:
    try:
        key: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse ones and MKL-DNN's have none
        return None
    return key


def _targets(func: Any, args: Sequence[Any], kwargs: Any) -> Iterator[torch.Tensor]:
    """Yields the arguments that an operator writes to."""
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            yield from tensors_in(value)


def _by_mask(args: Sequence[Any]) -> bool:
    """Whether an indexing takes the elements where a mask is true, as many as there are."""
    return any(index.dtype in (torch.bool, torch.uint8) for index in tensors_in(args[1:]))
