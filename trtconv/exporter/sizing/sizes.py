"""Which sizes a module takes: found by trying it, not by trusting what a tracer believes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator, Sequence

from trtconv.core.dims import Shape
from trtconv.core.documents.export import Blame, SizeRule
from trtconv.exporter.sizing.trials import Trials

REACH = 130
"""How far from the example the next valid size is looked for; larger steps are tried as powers of two of the size."""
_TIE_REACH = 66
_PERIOD = 32
"""Largest step of sizes that are valid by several remainders."""
_SAMPLED = 12
"""Sizes in a row that are looked at before a pattern is believed."""
_INNER = 3
"""Random sizes in range at which a step is tried again."""

_ALONE = "PyTorch takes a few more sizes, where what it is tied to stays"


def find_rules(trials: Trials) -> tuple[SizeRule, ...]:
    """Finds the rule of every dynamic dimension, with the others as in the example."""
    rules: dict[str, SizeRule] = {}
    for name in trials.axes.places:
        alike = next((same for rule in rules.values() if (same := _alike(trials, name, rule)) is not None), None)
        rules[name] = _limited(trials, alike or _rule(trials, name))
    baked = [name for name, rule in rules.items() if rule.baked]
    if trials.meta and any(trials.runs_eagerly({name: size}) for name in baked for size in _others(trials, name)):
        trials.leave_meta()
        return find_rules(trials)
    for name in baked:
        rules[name] = _tied(trials, rules[name], sorted(rules.keys() - {name}, key=lambda other: other not in baked))
        other = rules[name].tied
        if other is not None and other not in baked:
            rules[other] = dataclasses.replace(_tied(trials, rules[other], [name]), remark=_ALONE)
    return tuple(rules.values())


def _others(trials: Trials, name: str) -> tuple[int, ...]:
    """Returns some sizes that a dimension of one size only must refuse in eager mode too."""
    example = trials.axes.example[name]
    return (example + 1, 2 * example)


def _alike(trials: Trials, name: str, other: SizeRule) -> SizeRule | None:
    """Returns the rule that another dimension has, where some samples say that this one's is the same."""
    example = trials.axes.example[name]
    if other.step < 2 or example % other.step != other.offset:
        return None
    rule = SizeRule(name, example, other.step, other.offset, offsets=other.offsets)
    near = {*range(1, min(other.step, _SAMPLED)), other.step // 2, other.step - 1, other.step, other.step + 1}
    if any(trials.ok({name: example + k}) != rule.takes(example + k) for k in sorted({*near, 2 * other.step})):
        return None
    bounds = trials.axes.bounds.get(name)
    return dataclasses.replace(rule, asked=bounds, min=example, max=example, blame=_who_wants(trials, name, other.step))


def _rule(trials: Trials, name: str) -> SizeRule:
    """Finds step and offset of one dimension."""
    example = trials.axes.example[name]
    rule = SizeRule(name, example, asked=trials.axes.bounds.get(name), min=example, max=example)
    for direction in (1, -1):
        neighbours = _neighbours(trials, name, direction)
        if not neighbours:
            continue
        step = abs(neighbours[0] - example)
        if len(neighbours) == 1 or abs(neighbours[1] - neighbours[0]) == step:
            blame = _who_wants(trials, name, step)
            return dataclasses.replace(rule, step=step, offset=example % step, blame=blame)
        return _irregular(trials, rule)
    for size in (example * 2, example * 3, example // 2):
        if size not in (0, example) and trials.ok({name: size}):
            step = abs(size - example)
            return dataclasses.replace(rule, step=step, offset=example % step, blame=_who_wants(trials, name, step))
    return dataclasses.replace(rule, step=0, blame=trials.blame({name: example + 1}))


def _irregular(trials: Trials, rule: SizeRule) -> SizeRule:
    """Settles a dimension whose valid sizes follow no single step: by its remainders, else by a list.

    A U-Net of stride 4 with output_padding takes multiples of 4, and 63 as well.
    """
    name, example = rule.name, rule.example
    blame = next((b for n in range(example, example + _PERIOD) if (b := trials.blame({name: n}))), None)
    for step in range(2, _PERIOD + 1):
        runs = [trials.ok({name: example + k}) for k in range(max(2 * step, _SAMPLED))]
        if runs[step:] == runs[:-step]:
            rests = tuple(sorted((example + k) % step for k in range(1, step) if runs[k]))
            return dataclasses.replace(rule, step=step, offset=example % step, offsets=rests, blame=blame)
    low, high = (rule.asked.min, rule.asked.max) if rule.asked else (1, example + REACH)
    window = range(max(low, example - REACH), min(high, example + REACH) + 1)
    valid = tuple(n for n in window if trials.ok({name: n}))
    return dataclasses.replace(rule, step=0, min=valid[0], max=valid[-1], valid=valid, blame=blame)


def _who_wants(trials: Trials, name: str, step: int) -> Blame | None:
    """Returns the line that asks for a step: it refuses a size that every weaker line takes."""
    if step < 2:
        return None
    prime = next(p for p in range(2, step + 1) if step % p == 0)
    example = trials.axes.example[name]
    return trials.blame({name: example + step // prime}) or trials.blame({name: example + 1})


def _neighbours(trials: Trials, name: str, direction: int) -> list[int]:
    """Returns the next valid size in one direction, and the one after it as far as some samples tell; or fewer."""
    example = trials.axes.example[name]
    # A size of 1 broadcasts: that it runs does not make it valid.
    least = min(2, example)
    sizes = (example + direction * k for k in range(1, REACH + 1))
    first = next((n for n in sizes if n >= least and trials.ok({name: n})), None)
    if first is None:
        return []
    step = abs(first - example)
    between = sorted({1, step // 2, step - 1} & set(range(1, step)))
    after = [first + direction * k for k in (*between, step)]
    return [first, *[n for n in after if n >= least and trials.ok({name: n})][:1]]


def _limited(trials: Trials, rule: SizeRule) -> SizeRule:
    """Finds the smallest and largest valid size within the bounds asked for, and holds the rule to some in between."""
    if rule.step == 0:
        return rule
    low = rule.asked.min if rule.asked else 1
    lowest = rule.sizes(low, rule.example)[0]
    smallest = _edge(trials, rule, lowest)
    narrowed = trials.blame({rule.name: lowest}) if smallest != lowest else None
    largest = None
    if rule.asked:
        highest = rule.sizes(rule.example, rule.asked.max)[-1]
        largest = _edge(trials, rule, highest)
        narrowed = narrowed or (trials.blame({rule.name: highest}) if largest != highest else None)
    elif not trials.ok({rule.name: rule.example + 8 * rule.step}):
        largest = _edge(trials, rule, rule.example + 8 * rule.step)
        narrowed = narrowed or trials.blame({rule.name: rule.example + 8 * rule.step})
    rule = dataclasses.replace(rule, min=smallest, max=largest, narrowed=narrowed)
    return _held_to(trials, rule)


def _edge(trials: Trials, rule: SizeRule, target: int) -> int:
    """Returns the valid size nearest to `target`, on the example's side of it; by bisection."""
    if trials.ok({rule.name: target}):
        return target
    sizes = rule.sizes(min(target, rule.example), max(target, rule.example))
    if target < rule.example:
        sizes = sizes[::-1]
    good, bad = 0, len(sizes) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if trials.ok({rule.name: sizes[middle]}):
            good = middle
        else:
            bad = middle
    return sizes[good]


def _held_to(trials: Trials, rule: SizeRule) -> SizeRule:
    """Tries random sizes of the rule; where one is refused, lists what is valid instead of a step."""
    sizes = rule.sizes(rule.min, rule.max or rule.example + 16 * rule.step)
    picks = random.Random(0).sample(sizes, min(_INNER, len(sizes)))
    if all(trials.ok({rule.name: size}) for size in picks):
        return rule
    valid = tuple(size for size in sizes[:REACH] if trials.ok({rule.name: size}))
    return dataclasses.replace(rule, step=0, valid=valid, max=max(valid))


def _tied(trials: Trials, rule: SizeRule, others: Sequence[str]) -> SizeRule:
    """Looks for another dimension with which this one can change: by as much, or in the example's proportion."""
    for other in others:
        example = trials.axes.example[other]
        common = math.gcd(rule.example, example)
        for own, its in dict.fromkeys(((1, 1), (rule.example // common, example // common))):
            for k, direction in itertools.product(range(1, _TIE_REACH), (-1, 1)):
                # A second one, because of what a stride rounds.
                moves = [
                    (rule.example + n * own, example + n * its)
                    for n in (direction * k, 2 * direction * k, -direction * k)
                ]
                runs = (min(move) >= 2 and trials.has_run({rule.name: move[0], other: move[1]}) for move in moves)
                if next(runs) and any(runs):
                    return _tied_rule(trials, rule, other, k * own, k * its)
    return rule


def _tied_rule(trials: Trials, rule: SizeRule, other: str, step: int, along: int) -> SizeRule:
    """Returns the rule of a dimension that moves by `step` where another moves by `along`."""
    example = trials.axes.example[other]
    low, high = (rule.asked.min, rule.asked.max) if rule.asked else (1, rule.example + 8 * step)
    both = trials.axes.bounds.get(other)
    if both:
        low = max(low, rule.example - (example - both.min) // along * step)
        high = min(high, rule.example + (both.max - example) // along * step)
    rule = dataclasses.replace(rule, step=step, offset=rule.example % step, offsets=(), valid=None, tied=other)
    sizes = rule.sizes(max(low, 1), high)
    valid = [
        n
        for n in (sizes[0], rule.example, sizes[-1])
        if trials.ok({rule.name: n, other: example + (n - rule.example) // step * along})
    ]
    open_ = rule.asked is None and both is None and valid[-1] == sizes[-1]
    return dataclasses.replace(rule, min=min(valid), max=None if open_ else max(valid))


def with_tied(rules: Sequence[SizeRule], sizes: dict[str, int]) -> dict[str, int]:
    """Returns sizes in which dimensions that are tied to another follow it."""
    by_name = {rule.name: rule for rule in rules}
    result = dict(sizes)
    for name, other in following(rules).items():
        rule, leader = by_name[name], by_name[other]
        result[rule.name] = rule.example + (result[leader.name] - leader.example) * rule.step // (leader.step or 1)
    return result


def following(rules: Sequence[SizeRule]) -> dict[str, str]:
    """Returns the dimensions that follow another, and which; of two that are tied to each other the first."""
    followers: dict[str, str] = {}
    for rule in rules:
        if rule.tied and rule.tied not in followers:
            followers[rule.name] = rule.tied
    return followers


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
    followers = following(rules)
    for rule in rules:
        for size in _varied(rule) if rule.name not in followers else ():
            try:
                shapes = trials.outputs(with_tied(rules, {r.name: r.example for r in rules} | {rule.name: size}))
            except Exception:  # too expensive, or refused together with the other dimensions' example
                continue
            if [len(s) for s in shapes] == [len(s) for s in base]:
                varied.setdefault(rule.name, []).append((size, shapes))
    if any(rule.name not in varied and _varied(rule) for rule in rules if rule.name not in followers):
        return unknown
    return tuple(
        tuple(_axis_name(base, varied, rules, o, axis, name) for axis in range(len(base[o])))
        for o, name in enumerate(outputs)
    )


def _varied(rule: SizeRule) -> list[int]:
    if rule.baked:
        return []
    if rule.valid is not None:
        return [n for n in rule.valid if n != rule.example][:2]
    step = rule.step
    low, high = rule.min, rule.max
    near = [n for k in (1, 2, -1, -2, 3) if low <= (n := rule.example + k * step) and (high is None or n <= high)][:2]
    # Near ones may share what a stride or a patch rounds to; the ends were tried before.
    ends = (low, high if high is not None else rule.example + 8 * step)
    return [*near, *(n for n in ends if n not in (*near, rule.example))]


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
