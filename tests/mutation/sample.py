"""Which mutants of a room there are, by Cosmic Ray's operators, and a sample of them."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

_ORDERED = {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"}
_SWAPS = {
    ("Add", "Sub"),
    ("Sub", "Add"),
    ("Mul", "Div"),
    ("Div", "Mul"),
    ("FloorDiv", "Mul"),
    ("FloorDiv", "Div"),
    ("Mod", "FloorDiv"),
    ("Pow", "Mul"),
    ("BitOr", "BitAnd"),
    ("BitAnd", "BitOr"),
    ("BitXor", "BitOr"),
    ("LShift", "RShift"),
    ("RShift", "LShift"),
}
_BOUND = re.compile(r"_?MOST_\w+|MAX_\w+|_CHUNK|\w*SECONDS")
"""Names of bounds on work: that something is done 1,000 times at most and not 1,001 times is no behaviour."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Args:
        path: The file, relative to the repository.
        line: Number of the line that changes, from 1.
        operator: Cosmic Ray's name of the change.
        before: The line as it is.
        after: The line as it becomes.
        code: The whole file as it becomes.
    """

    path: Path
    line: int
    operator: str
    before: str
    after: str
    code: str


def mutants(files: list[Path], number: int, seed: int) -> list[Mutant]:
    """Draws places at random, each as likely as any other, and at each of them one of the changes that fit.

    Args:
        files: The files of a room, relative to the working directory.
        number: How many mutants; fewer where the room has fewer places.
        seed: Equal seeds draw equal mutants of equal files.
    """
    draw = random.Random(seed)
    places = [(path, place) for path in sorted(files) for place in sorted(_places(path.read_text("utf-8")).items())]
    draw.shuffle(places)
    drawn: list[Mutant] = []
    for path, ((line, _, _), changes) in places:
        if len(drawn) == number:
            break
        name, occurrence = draw.choice(changes)
        mutant = _mutant(path, line, name, occurrence)
        if mutant is not None:
            drawn.append(mutant)
    return drawn


def _mutant(path: Path, line: int, name: str, occurrence: int) -> Mutant | None:
    source = path.read_text("utf-8")
    code = mutate_code(source, get_operator(name)(), occurrence)
    old, new = source.splitlines(), (code or "").splitlines()
    at = next((number for number, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    if code is None or at is None or _same(source, code):
        return None
    return Mutant(path, at + 1, name.removeprefix("core/"), old[at].strip(), new[at].strip(), code)


def _same(source: str, code: str) -> bool:
    """Whether two texts are one program, or the second is none."""
    try:
        return _dumped(source) == _dumped(code)
    except SyntaxError:
        return True


def _dumped(source: str) -> str:
    """Returns a program as a text; whether parameters are given by place or by name is left out.

    NumPy takes any number below 0 for the size that is left, so that reshape(-2) is reshape(-1).
    """
    tree = ast.parse(re.sub(r"\breshape\(- ?2\)", "reshape(-1)", source))
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults += [default for default in node.kw_defaults if default is not None]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
    return ast.dump(tree)


def _places(source: str) -> dict[tuple[int, int, str], list[tuple[str, int]]]:
    """Returns line, column and kind of change to the changes there: an operator's name and which of its occurrences."""
    parsed = ast.parse(source)
    tree, spared, texts = get_ast(source), list(_spared(parsed)), list(_of_texts(parsed))
    places: dict[tuple[int, int, str], list[tuple[str, int]]] = {}
    for name in operator_names():
        if not _telling(name) or get_operator(name).arguments():
            continue
        operator = get_operator(name)()
        positions = (at for node in ast_nodes(tree) for at in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(positions):
            left_out = spared + texts if _orders(name) else spared
            if not any(first <= start and end <= last for first, last in left_out):
                places.setdefault((*start, name.partition("_")[0]), []).append((name, occurrence))
    return places


def _telling(name: str) -> bool:
    """Whether an operator's mutants tell something: comparisons by identity and exchanges that only raise do not."""
    kind, _, pair = name.removeprefix("core/").partition("_")
    first, _, second = pair.partition("_")
    if kind == "ReplaceComparisonOperator":
        return {first, second} <= _ORDERED or {first, second} in ({"Is", "IsNot"}, {"In", "NotIn"})
    if kind == "ReplaceBinaryOperator":
        return (first, second) in _SWAPS
    return kind != "RemoveDecorator"


def _orders(name: str) -> bool:
    """Whether a change makes a comparison one of order."""
    return name.startswith("core/ReplaceComparisonOperator_") and name.rpartition("_")[2] in _ORDERED - {"Eq", "NotEq"}


def _of_texts(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yields where something is compared with a text that is written there: texts have no order that would matter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(isinstance(side, ast.Constant) and isinstance(side.value, str | bytes) for side in sides):
                end: Any = node
                yield (node.lineno, node.col_offset), (end.end_lineno, end.end_col_offset)


def _spared(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yields where every mutant is equivalent: annotations, which are texts, what only a type checker reads, bounds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            read: list[ast.AST | None] = [node.returns]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            read = [node.annotation]
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            read = [node.test, *node.body]
        elif isinstance(node, ast.Assign) and all(map(_BOUND.fullmatch, _names(node.targets[0]))):
            read = [node.value]
        elif isinstance(node, ast.Assert):
            read = [node]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
            # Its "strict" raises where lengths differ, which they do not.
            read = [each.value for each in node.keywords]
        else:
            continue
        for part in filter(None, read):
            place: Any = part
            yield (place.lineno, place.col_offset), (place.end_lineno, place.end_col_offset)


def _names(target: ast.expr) -> list[str]:
    """Returns what an assignment gives values to."""
    return [ast.unparse(each) for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
