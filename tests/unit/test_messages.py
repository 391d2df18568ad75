"""No branch reads what a message says: verdicts, reasons and stages are types, whose words may change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT

PACKAGE = ROOT / "trtconv"
SOURCES = sorted(PACKAGE.rglob("*.py"))

MESSAGES = frozenset({"why", "message", "reason", "hint", "why_not", "fault", "incomplete"})
"""What holds text that people read, wherever it is called so: variables, attributes and keys."""
READERS = frozenset(
    {"startswith", "endswith", "find", "rfind", "index", "partition", "rpartition", "rsplit"}
    | {"match", "search", "fullmatch", "findall"}
)
"""What looks into a text."""
FOREIGN = {
    "cli/process/boundary.py": "Python has no type of its own for threads that cannot be started",
    "cli/complete.py": "an incomplete word of the command line, which is completed",
    "cli/formats/text.py": "shows the first line of a message, and decides nothing by it",
    "cli/process/suggestions.py": "click says only in words which arguments were too many",
    "core/errors.py": "Python says only in words that a number has too many digits",
    "core/config.py": "the TOML parsers tell the two kinds of tables apart in words alone",
    "core/process.py": "a process that ran out of memory leaves nothing but what it wrote to stderr",
    "exporter/sizing/trials.py": "PyTorch says only in words that an operator has no kernel for meta tensors",
    "exporter/file/validate.py": "torch.export's objections are sentences",
    "exporter/module/weights.py": "torch.load says only in words that a file is more than weights",
    "exporter/file/writers.py": "PyTorch warns in words that a trace keeps a Python number",
    "exporter/module/source_line.py": "TorchScript puts its own lines before the message",
    "pipeline/respelling.py": "TensorRT says only in words that it wants too much of something",
    "pipeline/parse.py": "the builder names nodes in words alone",
    "pipeline/strange_domains.py": "TensorRT's parser says only in words that it does not know an operator",
    "pipeline/trials.py": "behind one code of TensorRT's are many reasons, told apart in words alone",
    "runtimes/onnxruntime.py": "ONNX Runtime has one type for every failure",
    "runtimes/tensorrt/*": "TensorRT reports in words",
}
"""Files that read the messages of others, and why they must."""


def test_no_branch_reads_a_message_of_ours() -> None:
    found = [f"{path.relative_to(PACKAGE)}:{line}" for path in SOURCES for line in branches(path)]
    assert not found, (
        "these compare or search text that people read; make what decides an enum or a class, "
        f"or, where it is another library's text, say so in FOREIGN: {', '.join(found)}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "if error.why.startswith('the model itself'): pass",
        "fine = 'NaN or infinite' in difference.why",
        "TEXT = 'it takes too long'\nif reason == TEXT: pass",
        "if told['message'].partition(': ')[2]: pass",
        "if stage == 'compare methods': pass",
        "if re.search('took', message): pass",
        "if any(trace in finding.message for trace in TRACES): pass",
        "names = [each for each in layers if each.reason.startswith(PREFIX)]",
        "match case.reason:\n    case 'one that': pass",
    ],
)
def test_such_a_branch_is_seen(source: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert list(branches(path))


def branches(path: Path) -> Iterator[int]:
    """Yields the lines that compare or search messages.

    Two things are taken for a message: a variable, an attribute or a key that is called as in `MESSAGES`; and a text of
    two words or more, written there or under a name at the top of the module. Whether there is a message at all may be
    asked.
    """
    inside = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""
    if any(re.fullmatch(pattern.replace("*", ".*"), inside) for pattern in FOREIGN):
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_prose(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and _compares(node, named):
            yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            texts = [node.func.value, *node.args]
            if any(_is_message(each) for each in texts) or any(_is_named(each, named) for each in node.args):
                yield node.lineno
        elif isinstance(node, ast.Match) and _is_message(node.subject):
            yield node.lineno


def _compares(node: ast.Compare, named: set[str]) -> bool:
    sides = [node.left, *node.comparators]
    if any(isinstance(each, ast.Constant) and each.value in (None, "") for each in sides):
        return False
    if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        return False
    # A message may be a member of a set of messages that are shown once each.
    if isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return _is_message(node.comparators[0]) or _is_prose(node.left) or _is_named(node.left, named)
    return any(_is_message(each) or _is_prose(each) or _is_named(each, named) for each in sides)


def _is_message(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in MESSAGES
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value in MESSAGES
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "str" and any(_is_message(each) for each in node.args)
    return isinstance(node, ast.Name) and node.id in MESSAGES


def _is_prose(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.search(r"\w \w", node.value))


def _is_named(node: ast.expr, named: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in named
