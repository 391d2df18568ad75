"""`@frozen`: `dataclasses.dataclass(frozen=True)` at a tenth of the cost of making the class.

Half of a build's own time before TensorRT starts went into dataclasses compiling six methods for each of a hundred
classes. Here all classes share theirs; the fields are those of `dataclasses`, whose functions work on these classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trtconv.core.options import Option
from trtconv.core.suggest import did_you_mean

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
    # Of a class without one, dataclasses would make it of a signature, which takes longer than all the rest.
    cls.__doc__ = cls.__doc__ or cls.__name__
    data_class = dataclasses.dataclass(init=False, eq=False, repr=False)(cls)
    # The marker of keyword-only fields is no field, and `typing.get_type_hints` of Python 3.10 refuses it.
    vars(cls).get("__annotations__", {}).pop("_", None)
    fields = dataclasses.fields(data_class)  # type: ignore[arg-type]
    compared = [field.name for field in fields if field.compare]
    names = [field.name for field in fields if field.repr]

    def values(self: Any) -> tuple[Any, ...]:
        state = self.__dict__
        return tuple([state[name] for name in compared])

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    def described(self: Any) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({inside})"

    data_class.__init__ = _init(fields, getattr(data_class, "__post_init__", None))  # type: ignore[method-assign]
    for name, method in {"__eq__": equal, "__hash__": hashed, "__repr__": described}.items():
        # What a class defines itself stays.
        if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
            setattr(data_class, name, method)
    data_class.__setattr__ = _set_once  # type: ignore[method-assign]
    data_class.__delattr__ = _refuse_delete  # type: ignore[method-assign]
    return data_class


def _init(fields: tuple[dataclasses.Field[Any], ...], finish: Callable[[Any], None] | None) -> Callable[..., None]:
    """Returns the `__init__` of a class, which takes its fields as one that `dataclasses` makes does.

    Args:
        fields: The fields.
        finish: The class's `__post_init__`, if it has one.
    """
    missing = dataclasses.MISSING
    names = dict.fromkeys(field.name for field in fields).keys()
    ordered = [field.name for field in fields if not field.kw_only]
    defaults = {field.name: field.default for field in fields if field.default is not missing}
    factories = [(field.name, field.default_factory) for field in fields if field.default_factory is not missing]

    count = len(ordered) if len(ordered) == len(names) else -1

    def init(self: Any, /, *values: Any, **named: Any) -> None:
        state = self.__dict__
        if len(values) == count and not named:
            # Without `strict`, which takes time, and there are thousands of records.
            state.update(zip(ordered, values))  # noqa: B905
        else:
            state.update(defaults)
            state.update(zip(ordered, values, strict=False))
            state.update(named)
            for name, make in factories:
                if name not in state:
                    state[name] = make()
            twice = not named.keys().isdisjoint(ordered[: len(values)])
            if state.keys() != names or len(values) > len(ordered) or twice:
                raise TypeError(_misgiven(type(self), names, values, named))
        if finish is not None:
            finish(self)

    return init


def _misgiven(cls: type, names: Iterable[str], values: Sequence[Any], named: Collection[str]) -> str:
    """Says what is wrong with what a class was given."""
    unknown = next((name for name in named if name not in names), None)
    if unknown is not None:
        return f"{cls.__qualname__} has no field {unknown!r}. {did_you_mean(unknown, names)}"
    call = f"{len(values)} values and {', '.join(named) or 'no names'}"
    return f"{cls.__qualname__} has the fields {', '.join(names)}, and was given {call}"


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
