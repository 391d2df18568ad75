"""`@frozen`: `dataclasses.dataclass(frozen=True)` at a quarter of the cost of making the class.

Half of a build's own time before TensorRT starts went into dataclasses compiling six methods for each of a hundred
classes. `__init__` is still compiled, by `dataclasses`, whose functions work on these classes; the others are shared.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from trtconv.core.options import Option

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:
    # It says something to type checkers alone, and Python 3.10 has none.
    dataclass_transform = lambda **_: lambda decorator: decorator  # noqa: E731


T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """Makes a class a dataclass whose instances do not change, and are equal where their fields are.

    A field whose default is an `Option` has the option's default, and the option in its metadata.
    """
    for name, value in list(vars(cls).items()):
        if isinstance(value, Option):
            setattr(cls, name, _field(value))
    made = dataclasses.dataclass(eq=False, repr=False)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    compared = [field.name for field in fields if field.compare]
    shown = [field.name for field in fields if field.repr]

    def values(self: Any) -> tuple[Any, ...]:
        held = self.__dict__
        return tuple([held[name] for name in compared])

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    def described(self: Any) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({inside})"

    for name, method in {"__eq__": equal, "__hash__": hashed, "__repr__": described}.items():
        # What a class defines itself stays.
        if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
            setattr(made, name, method)
    made.__setattr__ = _set_once  # type: ignore[method-assign]
    made.__delattr__ = _refuse_delete  # type: ignore[method-assign]
    return made


def _field(option: Option) -> Any:
    metadata = {"option": option}
    if isinstance(option.default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=option.default, metadata=metadata)


def _set_once(self: object, name: str, value: object) -> None:
    if name in self.__dict__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
