"""`@frozen` classes behave as frozen dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
import typing
from typing import Any, ClassVar

import pytest

from trtconv.core.frozen import frozen


@frozen
class Size:
    """A size."""

    LIMIT: ClassVar[int] = 9
    name: str
    bounds: tuple[int, ...] = ()
    note: str = dataclasses.field(default="", compare=False, repr=False)

    @functools.cached_property
    def width(self) -> int:
        return len(self.bounds)


@frozen
class Named(Size):
    """A size with a further field."""

    unit: str = "px"


@dataclasses.dataclass(frozen=True)
class Usual:
    """What the standard library makes."""

    name: str
    bounds: tuple[int, ...] = ()
    note: str = dataclasses.field(default="", compare=False, repr=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [(("h",), ("h",)), (("h",), ("w",)), (("h", (1, 2)), ("h", (1, 2), "x")), (("h", (1,)), ("h", (2,)))],
)
def test_equality_hash_and_text_are_those_of_a_dataclass(one: Any, other: Any) -> None:
    assert (Size(*one) == Size(*other)) == (Usual(*one) == Usual(*other))
    assert (hash(Size(*one)) == hash(Size(*other))) == (hash(Usual(*one)) == hash(Usual(*other)))
    assert repr(Size(*one)) == repr(Usual(*one)).replace("Usual", "Size")


def test_classes_are_told_apart() -> None:
    assert Size("h") != Named("h")
    assert Size("h") != ("h", (), "")
    assert repr(Named("h", unit="m")) == "Named(name='h', bounds=(), unit='m')"


def test_nothing_can_be_changed() -> None:
    size = Size("h", (1, 2))
    for change in (lambda: setattr(size, "name", "w"), lambda: delattr(size, "name")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert size == Size("h", (1, 2))
    assert size.width == 2


def test_dataclasses_functions_and_copies_work() -> None:
    size = Named("h", (1, 2), unit="m")
    assert dataclasses.replace(size, name="w") == Named("w", (1, 2), unit="m")
    assert dataclasses.asdict(size) == {"name": "h", "bounds": (1, 2), "note": "", "unit": "m"}
    assert [field.name for field in dataclasses.fields(size)] == ["name", "bounds", "note", "unit"]
    assert pickle.loads(pickle.dumps(size)) == copy.deepcopy(size) == size


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((), {}),
        ((), {"bounds": (1,)}),
        (("h", (1,), "x", "y"), {}),
        (("h",), {"name": "w"}),
        (("h",), {"width": 1}),
        ((), {"other": "h"}),
    ],
)
def test_a_wrong_call_is_refused_as_a_dataclass_refuses_it(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Usual, Size):
        with pytest.raises(TypeError, match=rf"{kind.__name__}\b"):
            kind(*values, **named)


def test_fields_by_keyword_alone_and_made_anew() -> None:
    @frozen
    class Asked:
        path: str
        _: dataclasses.KW_ONLY
        notes: list[str] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            self.notes.append(self.path)

    one, other = Asked("a"), Asked(path="b", notes=["c"])
    assert (one.notes, other.notes, Asked("d").notes) == (["a"], ["c", "b"], ["d"])
    with pytest.raises(TypeError, match=r"has the fields path, notes, and was given 2 values and no names"):
        Asked("a", [])  # type: ignore[misc]
    assert typing.get_type_hints(Asked) == {"path": str, "notes": list[str]}


def test_what_a_class_defines_itself_stays() -> None:
    @frozen
    class Loose:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Loose) and other.name.lower() == self.name.lower()

    assert Loose("H") == Loose("h")
