"""Settings that others make meaningless: an error where one asks for both, and nothing where one is a default."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

from trtconv.core.errors import InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest

Request = TypeVar("Request", BuildRequest, CheckRequest)


class Idle(NamedTuple):
    """A setting that depends on others.

    Args:
        field: Its field in a request, whose name is also that of its flag and of its key in trtconv.toml.
        needs: Flags of what it depends on, by name.
        applies: Whether a request, in which it is set, has what it depends on.
        why: What is wrong where it has not, with the fields of the request.
        fix: What to do then.
    """

    field: str
    needs: frozenset[str]
    applies: Callable[[Any], bool]
    why: str
    fix: str


def _of_auto(field: str) -> Idle:
    return Idle(
        field,
        frozenset({"precision"}),
        lambda request: request.precision == "auto",
        f"--{field} is for --precision auto here, and the precision is {{precision}}",
        f"Leave out --{field} (in trtconv.toml: {field}), or say --precision auto.",
    )


def _of_rewrite(field: str) -> Idle:
    return Idle(
        field,
        frozenset({"no_rewrite"}),
        lambda request: request.rewrite,
        f"--{field} is about what the rewrite does, and --no-rewrite leaves it out",
        f"Leave out --{field} or --no-rewrite (in trtconv.toml: {field} = true or rewrite = false).",
    )


_DEPENDENT = (
    _of_rewrite("tune"),
    _of_rewrite("requantize"),
    _of_auto("data"),
    _of_auto("tolerance"),
    Idle(
        "preprocess",
        # Samples are for precision auto alone, and of no use to other precisions.
        frozenset({"precision", "data"}),
        lambda request: request.data is not None,
        "--preprocess goes with --data, and there is none",
        "Add --data, or leave out --preprocess (in trtconv.toml: data and preprocess).",
    ),
)
"""What comes after what it depends on."""


def refuse_conflicts(request: BuildRequest | CheckRequest) -> None:
    """Refuses settings that others make meaningless: one that is ignored is worse than an error.

    Raises:
        InputError: There is one; the message names both.
    """
    found = next((each for each in _DEPENDENT if _is_idle(request, each)), None)
    if found is not None:
        raise InputError(found.why.format(precision=getattr(request, "precision", "")), found.fix)


def without_idle(request: Request, inherited: Collection[str], given: Collection[str] = ()) -> Request:
    """Returns a request without what was said more generally, for other models too, and has no effect here.

    Args:
        request: What is asked.
        inherited: Fields that are defaults of the configuration.
        given: Names of the flags that the command line has: what the configuration says stands back behind these.
    """
    for each in _DEPENDENT:
        general = each.field in inherited or not each.needs.isdisjoint(given)
        if general and each.field not in given and _is_idle(request, each):
            usual: Any = {each.field: _usual(request, each.field)}
            request = dataclasses.replace(request, **usual)
    return request


def _is_idle(request: BuildRequest | CheckRequest, each: Idle) -> bool:
    said = hasattr(request, each.field) and getattr(request, each.field) != _usual(request, each.field)
    return said and not each.applies(request)


def _usual(request: BuildRequest | CheckRequest, field: str) -> Any:
    return next(f.default for f in dataclasses.fields(request) if f.name == field)
