"""Rules of rewriting that a user writes without code: two ONNX texts and conditions, as trtconv.toml holds them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.decode import Fault, decoded
from trtconv.core.encode import Document
from trtconv.core.errors import InputError
from trtconv.core.files import real_path
from trtconv.core.frozen import frozen
from trtconv.core.toml import read_toml

KEY = "rewrite-rules"
MOST_RULES = 256
_LONGEST_TEXT = 1 << 14
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_HINT = "docs/extending.md shows a rule of rewriting."
TYPES = ("float", "float16", "bfloat16", "double", "int8", "int16", "int32", "int64", "uint8", "bool")
"""Types that the inputs of a pattern may have."""
_MOST_RANK = 6


@frozen
class InputCondition(Document):
    """What an input of a pattern must be.

    Args:
        types: Its types; empty: the type of the rule.
        ranks: Numbers of its axes; empty: those of the rule.
        shape: Its sizes, numbers and names; axes of one name have one size. Empty: any of its ranks.
        constant: Whether it is an initializer or a constant.
        least: Smallest value of such a constant.
        most: Largest value of such a constant.
    """

    types: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    shape: tuple[str | int, ...] = ()
    constant: bool = False
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        _check_types(self.types)
        _check_ranks(self.ranks)
        if self.shape and self.ranks:
            raise InputError("it has both 'shape' and 'ranks'", "Leave one out.")
        if any(isinstance(size, int) and size < 1 for size in self.shape):
            raise InputError("a size of 'shape' is below 1", _HINT)
        if not self.constant and (self.least is not None or self.most is not None):
            raise InputError("'least' and 'most' bound the values of a constant", "Add constant = true.")


@frozen
class AttributeCondition(Document):
    """What an attribute that is bound to a name may be.

    Args:
        values: The values that it may have; of several numbers, lists.
        least: Smallest number.
        most: Largest number.
    """

    values: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None


@frozen
class RewriteRule(Document):
    """A pattern of nodes and what takes its place.

    Args:
        name: What the rule is called, words joined by hyphens.
        pattern: Body of an ONNX function, in ONNX's text format.
        replacement: The same, with the same inputs and outputs.
        opset: Version of ONNX's operators that the texts mean.
        types: Types of the inputs; what the texts write as float stands for each of them.
        ranks: Numbers of axes of the inputs that say nothing else.
        inputs: Input to what it must be.
        attributes: Name of a bound attribute to what it may be.
        about: What the rule is for.
    """

    name: str
    pattern: str
    replacement: str
    opset: int = 17
    types: tuple[str, ...] = ("float",)
    ranks: tuple[int, ...] = (1, 2, 3, 4)
    inputs: Mapping[str, InputCondition] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, AttributeCondition] = dataclasses.field(default_factory=dict)
    about: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > 80:
            raise InputError(f"{self.name!r} is not words joined by hyphens", "Name it as acme-fold-scale.")
        for key in ("pattern", "replacement"):
            if len(getattr(self, key)) > _LONGEST_TEXT:
                raise InputError(f"{key!r} is longer than {_LONGEST_TEXT} characters", "Divide the rule.")
        _check_types(self.types)
        _check_ranks(self.ranks)
        if not self.types or not self.ranks:
            raise InputError("'types' or 'ranks' is empty", _HINT)


def _check_types(types: Sequence[str]) -> None:
    for name in types:
        if name not in TYPES:
            raise InputError(f"{name!r} is not a type", f"Types: {', '.join(TYPES)}.")


def _check_ranks(ranks: Sequence[int]) -> None:
    if not all(0 <= rank <= _MOST_RANK for rank in ranks):
        raise InputError(f"ranks are 0 to {_MOST_RANK}", _HINT)


def rules_of(tables: Sequence[Any]) -> tuple[RewriteRule, ...]:
    """Reads rules from tables, as TOML or JSON gives them.

    Raises:
        InputError: One is not a rule, or two have one name.
    """
    rules = tuple(_rule(number, table) for number, table in enumerate(tables, 1))
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"there are two rules of rewriting {name!r}", "Rename one.")
    if len(rules) > MOST_RULES:
        raise InputError(f"there are more than {MOST_RULES} rules of rewriting", "Leave some out.")
    return rules


def _rule(number: int, table: Any) -> RewriteRule:
    if isinstance(table, str):
        raise InputError(f"{table!r} is a file, which only a configuration on this machine can name", _HINT)
    name = repr(table.get("name", number)) if isinstance(table, Mapping) else number
    try:
        if unknown := next(_unknown(RewriteRule, table, ""), None):
            raise Fault(f"there is no key {unknown}")
        return decoded(RewriteRule, table)
    except (Fault, InputError) as error:
        raise InputError(f"rule of rewriting {name}: {error}", getattr(error, "hint", _HINT)) from error


def _unknown(kind: type, table: Any, where: str) -> Any:
    """Yields the keys of a table that its class does not have: a condition with a misspelt key would never hold."""
    fields = {field.name for field in dataclasses.fields(kind)}
    inner = {"inputs": InputCondition, "attributes": AttributeCondition} if kind is RewriteRule else {}
    for key, value in table.items() if isinstance(table, Mapping) else ():
        if key not in fields:
            yield where + key
        if key in inner and isinstance(value, Mapping):
            for name, condition in value.items():
                yield from _unknown(inner[key], condition, f"{key}.{name}.")


def read_rules(path: Path) -> tuple[RewriteRule, ...]:
    """Reads a file of rules, TOML with `[[rewrite-rules]]` tables.

    Raises:
        InputError: It cannot be read, or holds something else.
    """
    tables = _tables_in(path)
    try:
        return rules_of(tables)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from error


def _tables_in(path: Path) -> list[Any]:
    document = read_toml(path)
    tables = document.get(KEY)
    if not isinstance(tables, list) or len(document) != 1 or any(isinstance(table, str) for table in tables):
        raise InputError(f"{path} is not a file of rules: it has [[{KEY}]] and nothing else", _HINT)
    return tables


def gathered(entries: Sequence[Any], folder: Path) -> list[Any]:
    """Returns the tables that a configuration means: its own, and those of the files that it names.

    Args:
        entries: Tables, and paths of files from the configuration's folder.
        folder: That folder.

    Raises:
        InputError: A file lies outside of it, or as `read_rules`.
    """
    tables: list[Any] = []
    for entry in entries:
        if isinstance(entry, str):
            # A stranger would learn what is there, and how it begins.
            if not real_path(folder / entry).is_relative_to(real_path(folder)):
                raise InputError(
                    f"the file of rules {entry!r} is outside the folder of the configuration",
                    "Keep it inside; or name it on the command line, with --rewrite-rules.",
                )
            read_rules(folder / entry)  # so that what is wrong is said of that file
            tables += _tables_in(folder / entry)
        else:
            tables.append(entry)
    return tables


def read_files(files: Sequence[str]) -> tuple[RewriteRule, ...]:
    """Reads the rules of several files together; raises as `read_rules`."""
    rules = tuple(rule for file in files for rule in read_rules(Path(file)))
    return rules_of([rule.to_json() for rule in rules])


def _listed(kinds: str | list[str], about: str, **more: Any) -> dict[str, object]:
    return {"type": "array", "items": {"type": kinds, **more}, "description": about}


def _table(properties: Mapping[str, Any], **more: Any) -> dict[str, object]:
    return {"properties": properties, "additionalProperties": False, **more}


_LEAST = {"type": "number", "description": "Smallest value."}
_MOST = {"type": "number", "description": "Largest value."}
_KINDS = ["string", "integer", "number"]
_TYPE_LIST = _listed("string", "Types of ONNX.", enum=list(TYPES))
_RANKS = _listed("integer", "Numbers of axes.")
RULE_SCHEMA = _table(
    {
        "name": {"type": "string", "description": "Words joined by hyphens."},
        "about": {"type": "string", "description": "What the rule is for."},
        "pattern": {"type": "string", "description": "The nodes that are replaced, as the body of an ONNX function."},
        "replacement": {"type": "string", "description": "What takes their place, with the same inputs and outputs."},
        "opset": {"type": "integer", "description": "Version of ONNX's operators that the texts mean; default: 17."},
        "types": _TYPE_LIST,
        "ranks": _RANKS,
        "inputs": {
            "type": "object",
            "description": "Input to what it must be.",
            "additionalProperties": _table(
                {
                    "types": _TYPE_LIST,
                    "ranks": _RANKS,
                    "shape": _listed(["string", "integer"], "Sizes; axes of one name have one size."),
                    "constant": {"type": "boolean", "description": "Whether it is a constant."},
                    "least": _LEAST,
                    "most": _MOST,
                },
                type="object",
            ),
        },
        "attributes": {
            "type": "object",
            "description": "Name of a bound attribute to what it may be.",
            "additionalProperties": _table(
                {
                    "values": {
                        "type": "array",
                        "description": "The values that it may have.",
                        "items": {"type": [*_KINDS, "array"], "items": {"type": _KINDS}},
                    },
                    "least": _LEAST,
                    "most": _MOST,
                },
                type="object",
            ),
        },
    },
    type=["string", "object"],
    required=["name", "pattern", "replacement"],
)
