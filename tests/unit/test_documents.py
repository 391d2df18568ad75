"""Documents are read by attribute: few literal keys are read, and few things are any dictionary."""

from __future__ import annotations

import ast
import re

from support.paths import ROOT

PACKAGE = ROOT / "trtconv"
MOST_KEYS = 140
MOST_ANY = 50

_NOT_DOCUMENTS = re.compile(
    r"(^|\.)(attrs|attributes|call|values|environ|meta|by_op|params|derived|lengths|TOLERANCES|LOST|schema|contextlib\.\w+)$"
)
"""What has literal keys and is no JSON document: attributes of ONNX nodes and of TensorRT's layers, the environment,
parameters of commands, tables of constants."""
_SUBSCRIPTED_TYPES = {"Literal", "Annotated", "AbstractContextManager"}
_READERS = {"get", "pop", "setdefault"}


def literal_key(node: ast.AST) -> ast.expr | None:
    """Returns what a literal key is read of; None where the node reads none."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        held, key = node.value, node.slice
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READERS and node.args
    ):
        held, key = node.func.value, node.args[0]
    else:
        return None
    return held if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def accesses() -> dict[str, int]:
    """Returns for each file how often it reads a document by a literal key."""
    found: dict[str, int] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            held = literal_key(node)
            if held is None or _NOT_DOCUMENTS.search(ast.unparse(held)):
                continue
            if ast.unparse(held).rpartition(".")[2] not in _SUBSCRIPTED_TYPES:
                name = str(path.relative_to(PACKAGE))
                found[name] = found.get(name, 0) + 1
    return found


def test_documents_are_read_by_attribute() -> None:
    found = accesses()
    worst = sorted(found.items(), key=lambda each: -each[1])[:10]
    assert sum(found.values()) <= MOST_KEYS, f"read the document's class instead (core/documents): {worst}"


def test_few_things_are_any_dictionary() -> None:
    lines = {
        str(path.relative_to(PACKAGE)): count
        for path in PACKAGE.rglob("*.py")
        if (count := sum("dict[str, Any]" in line for line in path.read_text(encoding="utf-8").splitlines()))
    }
    worst = sorted(lines.items(), key=lambda each: -each[1])[:10]
    assert sum(lines.values()) <= MOST_ANY, f"give what it holds a class: {worst}"
