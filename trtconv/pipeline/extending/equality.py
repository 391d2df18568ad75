"""That the two texts of a rule of rewriting compute the same is shown, at random inputs, before the rule is used."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core import budget, process
from trtconv.core.dims import times
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.rewrite_rules import RewriteRule, rules_of
from trtconv.passes import PASSES
from trtconv.passes.patterns.match import Instance
from trtconv.passes.patterns.rewriting import RewritingPass
from trtconv.passes.patterns.text import TYPE, Texts, read
from trtconv.pipeline.extending.drawing import KINDS, draw_attributes, draw_shapes, draw_values
from trtconv.runtimes.compare import relative_error, same_network
from trtconv.runtimes.evaluator import Evaluator, evaluator
from trtconv.runtimes.onnxruntime import first_line, raise_if_starved

_LEAST = 4
"""Inputs that show an instance: with these both texts ran, and the result is a number somewhere."""
_DRAWS = len(KINDS) + 4
_MOST_DRAWS = 3 * _DRAWS
_MOST_INSTANCES = 4096
_HALVES = ("float16", "bfloat16")
_START_SECONDS = 20.0


class Unequal(Exception):
    """The texts of a rule do not compute the same; the message is the counter-example."""


def passes_of(rules: Sequence[RewriteRule]) -> tuple[RewritingPass, ...]:
    """Returns the passes that rules are, each for what it was shown to be right for.

    The texts run in a process of their own, with limits: they are a stranger's.

    Raises:
        InputError: A rule cannot be read, cannot be shown to be right, or is wrong; the message has the inputs then.
    """
    return _passes(json.dumps([rule.to_json() for rule in rules])) if rules else ()


@functools.lru_cache(maxsize=16)
def _passes(document: str) -> tuple[RewritingPass, ...]:
    rules = rules_of(json.loads(document))
    texts = [read(rule) for rule in rules]
    if clashes := {rule.name for rule in rules} & {pass_.name for pass_ in PASSES}:
        raise InputError(f"{sorted(clashes)[0]!r} is the name of a pass of trtconv", "Call the rule otherwise.")
    answers = _proven_instances(document)
    return tuple(
        RewritingPass(text, instances, functools.partial(_elsewhere, text.rule))
        for text, instances in zip(texts, answers, strict=True)
    )


def _elsewhere(rule: RewriteRule, opset: int) -> list[Instance]:
    """Returns for what a rule is right with the operators of another opset than its own; it need not be there."""
    try:
        there = dataclasses.replace(rule, opset=opset)
        read(there)
        return _proven_instances(json.dumps([there.to_json()]))[0]
    except InputError:
        return []


@functools.lru_cache(maxsize=64)
def _proven_instances(document: str) -> list[list[Instance]]:
    """Returns for what each rule was shown to be right; the texts run in a process of their own."""
    tables = json.loads(document)
    seconds, megabytes = budget.allowance(0)
    task = "trtconv.pipeline.extending.equality:serve"
    try:
        answers = process.call(task, tables, _START_SECONDS + seconds * len(tables), megabytes=megabytes)
    except process.Lost as lost:
        names = ", ".join(table["name"] for table in tables)
        raise InputError(
            f"rules of rewriting ({names}) were not shown to be right: the process that ran them was lost, {lost}",
            f"Narrow types, ranks, shapes or attributes; {budget.current().flag} seconds=N allows more time.",
        ) from lost
    except process.WorkerBug as bug:
        # What a stranger's text makes of libraries is not foreseen.
        names = ", ".join(table["name"] for table in tables)
        raise InputError(f"rules of rewriting ({names}) were not shown to be right: {bug.summary}") from bug
    return [[_instance(row) for row in answer] for answer in answers]


def serve(tables: Sequence[Any], _: process.Tell) -> list[list[Any]]:
    """Shows the rules of `shown`, in a process of its own; returns what each was shown for."""
    return [[_plain(instance) for instance in show(read(rule))] for rule in rules_of(tables)]


def _plain(instance: Instance) -> list[Any]:
    return [instance.kind, instance.types, instance.ranks, instance.attributes]


def _instance(row: Sequence[Any]) -> Instance:
    kind, types, ranks, attributes = row
    pairs = ((name, tuple(value) if isinstance(value, list) else value) for name, value in attributes)
    return Instance(kind, tuple(types), tuple(ranks), tuple(pairs))


def show(texts: Texts) -> list[Instance]:
    """Runs both texts of a rule at random inputs of all that it allows.

    Returns:
        What it was shown for: a type or rank at which its pattern does not run is left out.

    Raises:
        InputError: It computes something else, or could not be shown for one of its types.
    """
    name = texts.rule.name
    loaded: _Loaded = {}
    try:
        allowed = itertools.islice(_instances(texts), _MOST_INSTANCES + 1)
        instances = [instance for instance in allowed if _is_shown(texts, instance, loaded)]
    except Unequal as unequal:
        raise InputError(
            f"rule of rewriting {name!r} computes something else: {unequal}",
            "Correct the replacement, or narrow types, ranks, shapes or attributes.",
        ) from None
    if len(instances) > _MOST_INSTANCES:
        raise InputError(f"rule of rewriting {name!r} allows too many types and ranks", "Narrow them.")
    for kind in texts.rule.types:
        if all(instance.kind != kind for instance in instances):
            raise InputError(
                f"rule of rewriting {name!r} could not be shown to be right for {kind}: its pattern runs at none of "
                "the shapes that were drawn",
                "Say the shapes of its inputs, as in inputs.x.shape = ['N', 'K'], or leave out the type.",
            )
    return [instance for instance in instances if instance.kind in texts.rule.types]


def _instances(texts: Texts) -> Iterator[Instance]:
    """Yields all that a rule allows; with float, too, what it allows in a half type, in which errors hide."""
    rule = texts.rule
    kinds = dict.fromkeys((*rule.types, *(["float"] if set(rule.types) & set(_HALVES) else [])))
    conditions = [rule.inputs.get(name) for name in texts.inputs]
    ranks = [
        [len(condition.shape)] if condition and condition.shape else (condition and condition.ranks) or rule.ranks
        for condition in conditions
    ]
    for kind, choice in itertools.product(kinds, texts.choices()):
        types = [(condition and condition.types) or (kind,) for condition in conditions]
        for of, axes in itertools.product(itertools.product(*types), itertools.product(*ranks)):
            yield Instance(kind, of, axes, tuple(sorted(choice.items())))


def _is_shown(texts: Texts, instance: Instance, loaded: _Loaded) -> bool:
    """Whether both texts ran at enough random inputs.

    Raises:
        Unequal: They made something else of one.
    """
    random = np.random.default_rng(0)
    good = 0
    for number in range(_MOST_DRAWS):
        if number >= _DRAWS and good >= _LEAST:
            break
        attributes = {**dict(instance.attributes), **draw_attributes(texts, random, number)}
        key = (instance.kind, instance.types, *attributes.items())
        if key not in loaded:
            loaded[key] = _sides(texts, instance, attributes)
        sides = loaded[key]
        if sides is None:
            continue
        shapes = draw_shapes(texts, instance, random, number)
        feeds = draw_values(texts, instance, attributes, shapes, random, number)
        good += _agree(texts, sides, instance, attributes, feeds)
    return good >= _LEAST


@frozen
class _Sides:
    """The two texts, loaded, and how far their results may be apart."""

    pattern: Evaluator
    replacement: Evaluator


_Loaded = dict[tuple[Any, ...], "_Sides | None"]
"""Types and attributes to the texts as they were loaded for them."""


def _sides(texts: Texts, instance: Instance, attributes: Mapping[str, Any]) -> _Sides | None:
    """Loads both texts; None where the pattern is not valid.

    Raises:
        Unequal: The replacement is not.
    """
    types = dict(zip(texts.inputs, instance.types, strict=True))
    models = [texts.model(side, types, instance.kind, attributes) for side in (texts.pattern, texts.replacement)]
    loaded = [evaluator(model) for model in models]
    if any(side is None for side in loaded):
        # What ONNX Runtime has no kernel for, the reference implementation runs; then both, to be fair.
        loaded = [evaluator(model, by_reference=True) for model in models]
    pattern, replacement = loaded
    if pattern is None or isinstance(pattern, str):
        return None
    if replacement is None or isinstance(replacement, str):
        raise Unequal(f"for {_instance_text(texts, instance, attributes)} the replacement is not valid: {replacement}")
    return _Sides(pattern, replacement)


def _agree(
    texts: Texts, sides: _Sides, instance: Instance, attributes: Mapping[str, Any], feeds: Mapping[str, NDArray[Any]]
) -> bool:
    """Whether the pattern ran, and its results are numbers somewhere.

    Raises:
        Unequal: The replacement made something else of the inputs.
    """
    try:
        expected = sides.pattern(feeds)
    except Exception as error:
        raise_if_starved(error)
        return False
    where = f"for {_instance_text(texts, instance, attributes)}, {_shown_feeds(feeds)}"
    try:
        actual = sides.replacement(feeds)
    except Exception as error:
        raise_if_starved(error)
        raise Unequal(f"{where} the replacement does not run: {first_line(error)}") from error
    for name, one, two in zip(texts.outputs, expected, actual, strict=True):
        if one.shape != two.shape or one.dtype != two.dtype:
            raise Unequal(f"{where} {name} should be {_form(one)}, and is {_form(two)}")
        limit = same_network([*instance.types, str(one.dtype)], False) if _is_float(one) else 0.0
        if relative_error(*_comparable(one, two)) > limit:
            raise Unequal(f"{where} {name} {_difference(one, two)}")
    return any(not _is_float(result) or np.isfinite(result.astype(np.float64)).any() for result in expected)


def _is_float(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" or values.dtype.name == "bfloat16"


def _comparable(one: NDArray[Any], two: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns values of a type that NumPy itself does not have as float32."""
    return (one, two) if one.dtype.kind in "fiub" else (one.astype(np.float32), two.astype(np.float32))


def _form(values: NDArray[Any]) -> str:
    return f"{values.dtype} {list(values.shape)}"


def _instance_text(texts: Texts, instance: Instance, attributes: Mapping[str, Any]) -> str:
    inputs = zip(texts.inputs, instance.types, instance.ranks, strict=True)
    parts = [f"{name} of {kind} and rank {rank}" for name, kind, rank in inputs]
    parts += [f"{name} = {value}" for name, value in attributes.items() if name != TYPE]
    return ", ".join(parts)


def _shown_feeds(feeds: Mapping[str, NDArray[Any]]) -> str:
    """Returns inputs as text: the shape, and the first and last values."""
    parts = []
    for name, values in feeds.items():
        text = np.array2string(values.ravel().astype(np.float64), precision=4, threshold=8, edgeitems=3)
        parts.append(f"{name} of {times(values.shape) or 'one number'} = {' '.join(text.split())}")
    return ", ".join(parts)


def _difference(one: NDArray[Any], two: NDArray[Any]) -> str:
    """Says where two arrays differ most."""
    wide = [values.astype(np.float64) for values in (one, two)]
    with np.errstate(all="ignore"):
        gap = np.where(np.isfinite(wide[0]) & np.isfinite(wide[1]), np.abs(wide[0] - wide[1]), np.inf)
        gap = np.where((wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1])), 0, gap)
    place = np.unravel_index(int(np.argmax(gap)), one.shape) if one.size else ()
    at = f" at {[int(index) for index in place]}" if place else ""
    return f"should be {wide[0][place]:.6g}{at}, and is {wide[1][place]:.6g}"
