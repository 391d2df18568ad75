"""What a model may cost before anything is known of it: one limit a resource, asked wherever a file says how much.

A model of a hundred bytes can ask for a terabyte. Whoever makes as much of something as a file says asks `spend` first;
what exceeds the budget is a finding (TC408) that names the place, not a machine out of memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from trtconv.core.errors import BuildFailed, InputError
from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.frozen import frozen

CODE, NAME = "TC408", "budget-exceeded"


@frozen
class Budget:
    """The most of everything.

    Args:
        nodes: Nodes of a model with its functions inlined.
        inputs: Inputs and outputs of a model, or of one node; TensorRT's parser takes a time that is quadratic in their
            number.
        attributes: Attributes of a node.
        weights: Initializers of a model.
        tensors: Tensors of which a model states types, shapes or quantisation.
        entries: All that a model lists: inputs, outputs and attributes of nodes, what is above, metadata, opsets.
        profiles: Optimization profiles of an engine; TensorRT takes time and memory for each.
        elements: Elements of a tensor that trtconv computes or changes: folded constants, weights, widened kernels.
        candidates: Sizes looked at together, times the numbers that are followed for each.
        bytes: Size of a model's files together.
        seconds: Time for one stage that looks at a model; and something for every byte that it has.
        megabytes: Memory beyond what a command begins with; and six times the size of the model's files.
        follow_links: Whether external data may be a link that leaves the model's folder.
        flag: What the command calls the flag that sets these; `--budget` is something else to `quantize`.
    """

    nodes: float = 200_000
    inputs: float = 10_000
    attributes: float = 1000
    weights: float = 100_000
    tensors: float = 300_000
    entries: float = 3_000_000
    profiles: float = 256
    elements: float = 1 << 26
    candidates: float = 1 << 28
    bytes: float = 64 << 30
    seconds: float = 10
    megabytes: float = 1500
    follow_links: bool = False
    flag: str = "--budget"


_USUAL = Budget()
_current: ContextVar[Budget] = ContextVar("budget", default=_USUAL)
_place: ContextVar[Location | None] = ContextVar("place", default=None)
_SPECIFIC = re.compile(r"([a-z]+)=([0-9.e+]{1,20})")


class BudgetExceeded(BuildFailed):
    """A model asks for more than it may have."""


def current() -> Budget:
    """Returns the budget that counts here."""
    return _current.get()


def parse(text: str) -> Budget:
    """Reads what --budget takes: a factor for everything, "4", or limits, "elements=1e9,seconds=60".

    Raises:
        InputError: It is neither.
    """
    budget = _current.get()
    names = [
        field.name
        for field in dataclasses.fields(Budget)
        if isinstance(field.default, (int, float)) and field.default is not False
    ]
    try:
        if re.fullmatch(r"[0-9.e+]{1,20}", text):
            factor = _positive(text)
            raised: dict[str, Any] = {name: getattr(_USUAL, name) * factor for name in names}
            return dataclasses.replace(budget, **raised)
        pairs = [_SPECIFIC.fullmatch(part.strip()) for part in text.split(",")]
        caps: dict[str, Any] = {pair[1]: _positive(pair[2]) for pair in pairs if pair is not None and pair[1] in names}
        if len(caps) < len(pairs):
            raise ValueError(text)
        return dataclasses.replace(budget, **caps)
    except ValueError as error:
        hint = f"Give a factor, such as 4, or limits by name: {', '.join(names)}; such as elements=1e9."
        raise InputError(f"{budget.flag} {text!r} is not a budget", hint) from error


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(text)
    return value


@contextlib.contextmanager
def allowed(budget: Budget) -> Iterator[None]:
    """Lets a budget count for what is called inside."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def at(place: Location) -> Iterator[None]:
    """Says which node is looked at inside, for whoever asks without knowing it."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def allowance(nbytes: int) -> tuple[float, float]:
    """Returns the seconds and the megabytes that a process may take over models of so many bytes together."""
    limits = current()
    return limits.seconds * 1.5 + nbytes / 1e6, limits.megabytes + 6 * nbytes / 1e6


def fits(resource: str, amount: float) -> bool:
    """Whether there may be so much of something."""
    return amount <= float(getattr(_current.get(), resource))


def spend(resource: str, amount: float, what: str, place: Location | None = None) -> None:
    """Asks whether there may be so much of something.

    Args:
        resource: A field of `Budget`.
        amount: How much there will be.
        what: What for, in words: "the kernel that dilation makes".
        place: The node that asks for it.

    Raises:
        BudgetExceeded: It is too much.
    """
    if not fits(resource, amount):
        raise exceeded(resource, f"{what} would take {_count(amount)} {resource}", place)


def exceeded(resource: str, use: str, place: Location | None = None) -> BudgetExceeded:
    """Returns the error for a model that takes too much."""
    limit = float(getattr(_current.get(), resource))
    place = place or _place.get()
    where = f"{place}: " if place is not None and str(place) != "graph" else ""
    message = f"{where}{use}; the budget is {_count(limit)}"
    flag = _current.get().flag
    fix = f"Where the model is meant so, raise the limit: {flag} {resource}=N, or {flag} 4 for four times of all."
    finding = Finding(CODE, NAME, message, Severity.ERROR, place or Location(), fix)
    return BudgetExceeded(f"the model exceeds the budget: {message}", fix, (finding,))


def held_megabytes(pid: int | str = "self") -> float:
    """Returns the memory that a process has for itself; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError):
        # Asked for every layer of every run: a file object takes several times as long.
        statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
        try:
            resident, shared = os.read(statm, 256).split()[1:3]
        finally:
            os.close(statm)
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def _count(number: float) -> str:
    return str(int(number)) if number < 1e12 else f"{float(min(number, 1e300)):.1e}"
