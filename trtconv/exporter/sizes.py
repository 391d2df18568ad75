"""Which sizes a module takes: found by trying it, not by trusting what a tracer believes."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence

from trtconv.core.dims import Shape
from trtconv.core.requests.export import Blame, SizeRule
from trtconv.exporter.trials import TooExpensive, Trials

REACH = 130
"""How far from the example the next valid size is looked for; larger steps are tried as powers of two of the size."""
_TIE_REACH = 66
_FOLLOWED = 5
"""Sizes in a row that must be valid and grow alike for a step to count."""
_INNER = 3
"""Random sizes in range at which a step is tried again."""


def find_rules(trials: Trials) -> tuple[SizeRule, ...]:
    """Finds the rule of every dynamic dimension, with the others as in the example."""
    rules: dict[str, SizeRule] = {}
    for name in trials.axes.places:
        rules[name] = _limited(trials, _rule(trials, name))
    baked = [name for name, rule in rules.items() if rule.baked]
    for name in baked:
        rules[name] = _tied(trials, rules[name], [other for other in baked if other != name])
    return tuple(rules.values())


def _rule(trials: Trials, name: str) -> SizeRule:
    """Finds step and offset of one dimension."""
    example = trials.axes.example[name]
    rule = SizeRule(name, example, asked=trials.axes.bounds.get(name), min=example, max=example)
    for direction in (1, -1):
        found = _neighbours(trials, name, direction)
        if not found:
            continue
        step = abs(found[0] - example)
        blame = _who_wants(trials, name, step)
        if len(found) == 1 or abs(found[1] - found[0]) == step:
            return dataclasses.replace(rule, step=step, offset=example % step, blame=blame)
        return _irregular(trials, rule, found[0])
    for size in (example * 2, example * 3, example // 2):
        if size not in (0, example) and trials.ok({name: size}):
            step = abs(size - example)
            return dataclasses.replace(rule, step=step, offset=example % step, blame=_who_wants(trials, name, step))
    return dataclasses.replace(rule, step=0, blame=trials.blame({name: example + 1}))


def _irregular(trials: Trials, rule: SizeRule, other: int) -> SizeRule:
    """Settles a dimension whose valid sizes follow no single step.

    Often that is a lattice and sizes beside it that run too, but whose outputs do not follow: a U-Net of stride 4 with
    output_padding takes 63 and returns 64. The lattice is what should be exported.
    """
    name, example = rule.name, rule.example
    for step in range(2, REACH // 2):
        if all(trials.ok({name: n}) for n in (example + step, example + 2 * step)) and _follows(trials, rule, step):
            remark = f"{name} {other} runs too, but there the outputs do not follow the inputs' size"
            blame = _who_wants(trials, name, step)
            return dataclasses.replace(rule, step=step, offset=example % step, blame=blame, remark=remark)
    low, high = (rule.asked.min, rule.asked.max) if rule.asked else (1, example + REACH)
    window = range(max(low, example - REACH), min(high, example + REACH) + 1)
    valid = tuple(n for n in window if trials.ok({name: n}))
    blame = next((b for n in window if (b := trials.blame({name: n}))), None)
    return dataclasses.replace(rule, step=0, min=valid[0], max=valid[-1], valid=valid, blame=blame)


def _follows(trials: Trials, rule: SizeRule, step: int) -> bool:
    """Whether every multiple of a step around the example is valid, with outputs that grow by the same each time."""
    try:
        shapes = [trials.outputs({rule.name: rule.example + k * step}) for k in range(_FOLLOWED)]
        shapes += [trials.outputs({rule.name: n}) for k in (1, 2) if (n := rule.example - k * step) > step]
    except TooExpensive:
        return True
    except Exception:
        return False
    flat = [[size for shape in shapes_ for size in shape] for shapes_ in shapes]
    grown = [[b - a for a, b in zip(x, y, strict=True)] for x, y in itertools.pairwise(flat[:_FOLLOWED])]
    return all(each == grown[0] for each in grown)


def _who_wants(trials: Trials, name: str, step: int) -> Blame | None:
    """Returns the line that asks for a step: it refuses a size that every weaker line takes."""
    if step < 2:
        return None
    prime = next(p for p in range(2, step + 1) if step % p == 0)
    example = trials.axes.example[name]
    return trials.blame({name: example + step // prime}) or trials.blame({name: example + 1})


def _neighbours(trials: Trials, name: str, direction: int) -> list[int]:
    """Returns the next two valid sizes in one direction, or fewer."""
    example = trials.axes.example[name]
    found: list[int] = []
    size, end = example, example + direction * REACH
    while size != end and len(found) < 2:
        size += direction
        if size < min(2, example):
            # A size of 1 broadcasts: that it runs does not make it valid.
            break
        if trials.ok({name: size}):
            found.append(size)
            end = size + direction * abs(size - example) if len(found) == 1 else end
    return found


def _limited(trials: Trials, rule: SizeRule) -> SizeRule:
    """Finds the smallest and largest valid size within the bounds asked for, and holds the rule to some in between."""
    if rule.step == 0:
        return rule
    low = rule.asked.min if rule.asked else 1
    lowest = next(iter(rule.sizes(low, rule.example)))
    smallest = _edge(trials, rule, lowest)
    narrowed = trials.blame({rule.name: lowest}) if smallest != lowest else None
    largest = None
    if rule.asked:
        highest = rule.asked.max - (rule.asked.max - rule.offset) % rule.step
        largest = _edge(trials, rule, highest)
        narrowed = narrowed or (trials.blame({rule.name: highest}) if largest != highest else None)
    elif not trials.ok({rule.name: rule.example + 8 * rule.step}):
        largest = _edge(trials, rule, rule.example + 8 * rule.step)
        narrowed = narrowed or trials.blame({rule.name: rule.example + 8 * rule.step})
    rule = dataclasses.replace(rule, min=smallest, max=largest, narrowed=narrowed)
    return _held_to(trials, rule)


def _edge(trials: Trials, rule: SizeRule, wanted: int) -> int:
    """Returns the valid size nearest to `wanted`, on the example's side of it; by bisection."""
    if trials.ok({rule.name: wanted}):
        return wanted
    bad, good = wanted, rule.example
    while abs(good - bad) > rule.step:
        middle = (
            good + (bad - good) // (2 * rule.step) * rule.step
            if bad > good
            else good - ((good - bad) // (2 * rule.step) * rule.step)
        )
        if middle == good:
            break
        if trials.ok({rule.name: middle}):
            good = middle
        else:
            bad = middle
    return good


def _held_to(trials: Trials, rule: SizeRule) -> SizeRule:
    """Tries random sizes of the rule; where one is refused, lists what is valid instead of a step."""
    sizes = rule.sizes(rule.min, rule.max or rule.example + 16 * rule.step)
    picks = random.Random(0).sample(sizes, min(_INNER, len(sizes)))
    if all(trials.ok({rule.name: size}) for size in picks):
        return rule
    valid = tuple(size for size in sizes[:REACH] if trials.ok({rule.name: size}))
    return dataclasses.replace(rule, step=0, valid=valid, max=max(valid))


def _tied(trials: Trials, rule: SizeRule, others: Sequence[str]) -> SizeRule:
    """Looks for another dimension with which this one can change."""
    example = trials.axes.example
    for other in others:
        for direction in (1, -1):
            for k in range(1, _TIE_REACH):
                sizes = {rule.name: rule.example + direction * k, other: example[other] + direction * k}
                if min(sizes.values()) >= 2 and trials.ok(sizes):
                    return _tied_rule(trials, rule, other, k)
    return rule


def _tied_rule(trials: Trials, rule: SizeRule, other: str, step: int) -> SizeRule:
    example = trials.axes.example[other]
    low, high = (rule.asked.min, rule.asked.max) if rule.asked else (1, rule.example + 8 * step)
    both = trials.axes.bounds.get(other)
    if both:
        low, high = max(low, both.min + rule.example - example), min(high, both.max + rule.example - example)
    sizes = dataclasses.replace(rule, step=step, offset=rule.example % step).sizes(max(low, 1), high)
    valid = [
        n for n in (sizes[0], rule.example, sizes[-1]) if trials.ok({rule.name: n, other: n - rule.example + example})
    ]
    return dataclasses.replace(
        rule, step=step, offset=rule.example % step, min=min(valid), max=max(valid), tied=other, blame=rule.blame
    )


def with_tied(rules: Sequence[SizeRule], sizes: dict[str, int]) -> dict[str, int]:
    """Returns sizes in which dimensions that are tied to another follow it."""
    example = {rule.name: rule.example for rule in rules}
    chosen = dict(sizes)
    done: set[str] = set()
    for rule in rules:
        if rule.tied and rule.tied not in done:
            chosen[rule.name] = chosen[rule.tied] - example[rule.tied] + rule.example
            done.add(rule.name)
    return chosen


def size_at(rule: SizeRule, share: float, top: int) -> int:
    """Returns a valid size at a share (0 to 1) of the way from the smallest to the largest, at most about `top`."""
    if rule.baked:
        return rule.example
    if rule.valid is not None:
        return rule.valid[round(share * (len(rule.valid) - 1))]
    high = max(min(rule.max if rule.max is not None else top, top), rule.min)
    sizes = rule.sizes(rule.min, high)
    return sizes[round(share * (len(sizes) - 1))]


def joint_failure(trials: Trials, rules: Sequence[SizeRule]) -> tuple[dict[str, int], Blame | None] | None:
    """Tries dimensions together; returns sizes that are valid one by one and refused together, and who refuses."""
    for shares in _shares(len(rules)):
        sizes = {r.name: size_at(r, s, 2 * r.example + 16 * r.step) for r, s in zip(rules, shares, strict=True)}
        sizes = with_tied(rules, sizes)
        if not trials.ok(sizes):
            return sizes, trials.blame(sizes)
    return None


def _shares(count: int) -> Iterator[tuple[float, ...]]:
    """Yields combinations of shares that make the dimensions differ from each other."""
    generator = random.Random(1)
    if count > 1:
        yield tuple(i / (count - 1) for i in range(count))
        yield tuple(1 - i / (count - 1) for i in range(count))
    yield tuple(generator.random() for _ in range(count))
    yield (0.0,) * count


def output_dims(trials: Trials, rules: Sequence[SizeRule], outputs: Sequence[str]) -> tuple[tuple[int | str, ...], ...]:
    """Returns each output's dimensions: a size, or how it follows from the inputs' ("2*height")."""
    base = trials.outputs({})
    unknown = tuple(tuple(f"{name}_{axis}" for axis in range(len(base[o]))) for o, name in enumerate(outputs))
    varied: dict[str, list[tuple[int, tuple[Shape, ...]]]] = {}
    for rule in rules:
        for size in _two_more(rule):
            try:
                shapes = trials.outputs(with_tied(rules, {r.name: r.example for r in rules} | {rule.name: size}))
            except TooExpensive:
                return unknown
            except Exception:  # refused together with the other dimensions' example
                continue
            if [len(s) for s in shapes] == [len(s) for s in base]:
                varied.setdefault(rule.name, []).append((size, shapes))
    return tuple(
        tuple(_axis_name(base, varied, rules, o, axis, name) for axis in range(len(base[o])))
        for o, name in enumerate(outputs)
    )


def _two_more(rule: SizeRule) -> list[int]:
    if rule.baked or rule.tied:
        return []
    if rule.valid is not None:
        return [n for n in rule.valid if n != rule.example][:2]
    step = rule.step
    low, high = rule.min, rule.max
    near = [rule.example + k * step for k in (1, 2, -1, -2, 3)]
    return [n for n in near if n >= low and (high is None or n <= high)][:2]


def _axis_name(
    base: tuple[Shape, ...],
    varied: dict[str, list[tuple[int, tuple[Shape, ...]]]],
    rules: Sequence[SizeRule],
    output: int,
    axis: int,
    name: str,
) -> int | str:
    """Names one axis of one output by the one dimension that it follows, where that is a line."""
    here = base[output][axis]
    movers = [dim for dim, runs in varied.items() if any(shapes[output][axis] != here for _, shapes in runs)]
    if not movers:
        return here
    example = {rule.name: rule.example for rule in rules}
    if len(movers) == 1:
        dim = movers[0]
        points = [(size, shapes[output][axis]) for size, shapes in varied[dim]]
        line = _line(dim, example[dim], here, points)
        if line:
            return line
    return f"{name}_{axis}"


def _line(dim: str, x0: int, y0: int, points: Sequence[tuple[int, int]]) -> str | None:
    (x1, y1) = points[0]
    rise, run = y1 - y0, x1 - x0
    if any((y - y0) * run != rise * (x - x0) for x, y in points):
        return None
    if rise % run == 0:
        slope, rest = rise // run, y0 - rise // run * x0
        text = dim if slope == 1 else f"{slope}*{dim}"
        return text if rest == 0 else f"{text} {'+' if rest > 0 else '-'} {abs(rest)}"
    if run % rise == 0 and y0 * (run // rise) == x0 and run // rise > 0:
        return f"{dim}/{run // rise}"
    return None
