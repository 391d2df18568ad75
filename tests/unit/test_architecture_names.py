"""Names are the field's nouns and verbs: whoever reads `known` asks "known what?" (docs/style.md)."""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Iterator

import pytest

from support.paths import ROOT

PACKAGE = ROOT / "trtconv"

SIDE = "left"
"""What a variable may be called, and no function, parameter or attribute."""
PARTICIPLES = frozenset(
    {"asked", "built", "chosen", "done", "each", "found", "given", "held", "kept", "known", "made", "meant", "said"}
    | {"seen", "shown", "taken", "told", "tried", "wanted", "written", SIDE}
)
"""What nothing is called."""
MAY_STAY = {
    "core/documents/*.py: *.*": "the fields of documents are the keys of JSON files, which users read",
    "core/preprocessing.py: ImagePlacement.left": "a side of an image",
    "cli/formats/page/charts.py: _Scale.left": "a side of a drawing",
    "cli/formats/page/charts.py: _Scale._left": "a side of a drawing",
    "cli/formats/page/drawings.py: left": "a side of a drawing",
    "shapes/lattice/tables.py: left": "a side of a comparison",
    "shapes/lattice/trial.py: Check.left": "a side of a comparison",
    "shapes/lattice/registry.py: given": "extensions of users call it (docs/api.md)",
}
"""Places with such names, as patterns, and why."""


def names(tree: ast.AST, owner: str = "", scope: ast.AST | None = None) -> Iterator[tuple[str, bool]]:
    """Yields what a tree names, within its class, and whether that is a variable alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{owner}{node.name}", False
        elif isinstance(node, ast.arg):
            yield f"{owner}{node.arg}", False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield f"{owner}{node.attr}", False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield f"{owner}{node.id}", not isinstance(scope, ast.ClassDef)
        is_class = isinstance(node, ast.ClassDef)
        opens = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from names(node, f"{node.name}." if is_class else owner, node if opens else scope)


def faults(tree: ast.AST, file: str = "module.py") -> list[str]:
    """Returns the places of a module whose names say nothing."""
    places = [
        f"{file}: {name}"
        for name, is_variable in names(tree)
        if name.split(".")[-1].strip("_") in (PARTICIPLES - {SIDE} if is_variable else PARTICIPLES)
    ]
    return [place for place in places if not any(fnmatch.fnmatchcase(place, pattern) for pattern in MAY_STAY)]


def test_what_the_code_offers_has_nouns_and_verbs() -> None:
    places = [
        place
        for path in sorted(PACKAGE.rglob("*.py"))
        for place in faults(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(PACKAGE).as_posix())
    ]
    assert not places, f"call these after what they are (docs/style.md): {', '.join(places)}"


@pytest.mark.parametrize("pattern", MAY_STAY)
def test_what_may_stay_is_there(pattern: str) -> None:
    file, _, name = pattern.partition(": ")
    there = {
        own.split(".")[-1]
        for path in PACKAGE.glob(file)
        for own, is_variable in names(ast.parse(path.read_text(encoding="utf-8")))
        if not is_variable and fnmatch.fnmatchcase(own, name)
    }
    assert any(own.strip("_") in PARTICIPLES for own in there)


@pytest.mark.parametrize(
    "source",
    [
        "def told(): pass",
        "async def _kept(): pass",
        "def rules(asked): pass",
        "def rules(*, wanted): pass",
        "def rules(*given, **shown): pass",
        "rules = sorted(names, key=lambda chosen: chosen)",
        "class Plan:\n    taken: int",
        "class Plan:\n    held = 1",
        "class Plan:\n    def run(self): self._seen = 1",
        "found = 1",
        "for each in names: pass",
        "names = [known for known in names]",
        "class Plan:\n    def run(self):\n        kept = 1",
        "with path.open() as taken: pass",
    ],
)
def test_such_a_name_is_seen(source: str) -> None:
    assert faults(ast.parse(source))


def test_a_variable_may_be_a_side() -> None:
    assert not faults(ast.parse("left, right = 1, 2"))
