"""A project's configuration: which models, for which targets, with which sizes. `trtconv.toml`, or `[tool.trtconv]` in
pyproject.toml; docs/config.md describes it and docs/trtconv.schema.json is `SCHEMA`.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core import budget
from trtconv.core.agreement import CodeFile
from trtconv.core.dims import Range
from trtconv.core.errors import InputError
from trtconv.core.files import real_path, with_ending
from trtconv.core.frozen import frozen
from trtconv.core.options import of_settings, schemas, without_unmet
from trtconv.core.outputs import check_all
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.common import BOUNDS_PATTERN, TARGET_PATTERN
from trtconv.core.rewrite_rules import KEY, gathered
from trtconv.core.target import Target
from trtconv.core.toml import read_toml

FILE = "trtconv.toml"
PYPROJECT = "pyproject.toml"

_SETTINGS = {**schemas(BuildRequest), **schemas(CheckRequest)}
_SETTINGS["check-targets"] = {
    **{key: value for key, value in _SETTINGS["targets"].items() if key != "minItems"},
    "description": "What to check against besides; build leaves these out, so they need not be installed.",
}
SCHEMA: dict[str, object] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "trtconv.toml",
    "description": "Models that trtconv checks and builds. All settings but models are defaults for every model.",
    "type": "object",
    "properties": {
        **_SETTINGS,
        "models": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The .onnx file, from this file's folder.",
                    },
                    "engine": {"type": "string", "minLength": 1, "description": "Where build writes the engine."},
                    **_SETTINGS,
                },
                "required": ["path"],
                "additionalProperties": False,
            },
        },
        "farm": {
            "type": "object",
            "description": "Other machines that build; keys are given on the command line alone.",
            "properties": {
                "address": {"type": "string", "minLength": 1, "description": "As build --on: the scheduler's address."},
                "store": {
                    "type": "string",
                    "minLength": 1,
                    "description": "As build --store: a folder that machines share, from this file's folder.",
                },
            },
            "additionalProperties": False,
        },
    },
    "required": ["models"],
    "additionalProperties": False,
}


@frozen
class Entry:
    """One model for one target.

    Args:
        check: What `trtconv check` is asked.
        build: What `trtconv build` is asked; None for a target that is only checked against.
        inherited: Keys that are defaults of the file; one that does not apply to this model is without meaning.
    """

    check: CheckRequest
    build: BuildRequest | None
    inherited: frozenset[str] = frozenset()


@frozen
class Config:
    """A configuration file.

    Args:
        path: The file.
        entries: Every model with every one of its targets, in the order of the file.
        address: The scheduler of the farm that builds; None: none does.
        store: Folder of engines that machines share.
    """

    path: Path
    entries: tuple[Entry, ...]
    address: str | None = None
    store: Path | None = None

    @property
    def builds(self) -> tuple[BuildRequest, ...]:
        """What is built."""
        pairs = ((entry.build, entry.inherited) for entry in self.entries)
        return tuple(without_unmet(build, inherited) for build, inherited in pairs if build is not None)

    @property
    def checks(self) -> tuple[CheckRequest, ...]:
        """What is checked."""
        return tuple(without_unmet(entry.check, entry.inherited) for entry in self.entries)

    def of(self, model: Path) -> tuple[Entry, ...]:
        """Returns the entries of one model, as another path may name it; empty where it is not listed."""
        real = real_path(model)
        return tuple(entry for entry in self.entries if real_path(entry.check.model) == real)


_MOST_ENTRIES = 10_000
_MOST_SETTINGS = 1 << 18
_LARGEST_NUMBER = 1 << 63


def find(folder: Path) -> Path | None:
    """Returns the configuration for a folder: the nearest in it or above it; trtconv.toml before pyproject.toml.

    Looked for up to the root of the repository or the home folder, and not in a file of somebody else's above `folder`:
    whoever may write to /tmp says nothing of what is done below it.
    """
    for place in (folder, *folder.parents):
        if _counts(place / FILE, place == folder):
            return place / FILE
        pyproject = place / PYPROJECT
        if _counts(pyproject, place == folder) and "trtconv" in _tools(pyproject):
            return pyproject
        if (place / ".git").exists() or place == Path.home():
            return None
    return None


def _counts(path: Path, is_here: bool) -> bool:
    try:
        owner = path.stat().st_uid
    except OSError:
        return False
    ours = is_here or not hasattr(os, "geteuid") or owner in (0, os.geteuid())
    return path.is_file() and ours


def load(path: Path) -> Config:
    """Reads a configuration.

    Raises:
        InputError: It is missing, no TOML, or says something that trtconv does not know; the message names the key.
        BudgetExceeded: It asks for more profiles than an engine may have.
    """
    document: Mapping[str, Any] = _tools(path).get("trtconv", {}) if path.name == PYPROJECT else read_toml(path)
    _hold_to_budget(path, document)
    for fault in _faults(document, SCHEMA, ""):
        raise InputError(
            f"{path}: {fault}", "docs/config.md describes the file; docs/trtconv.schema.json is its schema."
        )
    stream = (entry for model in document["models"] for entry in _entries(_defaults(document), model, path))
    entries = list(itertools.islice(stream, _MOST_ENTRIES + 1))
    if len(entries) > _MOST_ENTRIES:
        raise InputError(f"{path} lists more than {_MOST_ENTRIES} models and targets", "Divide it into several files.")
    _check_outputs(path, entries)
    farm = document.get("farm", {})
    store = path.parent / farm["store"] if "store" in farm else None
    return Config(path, tuple(entries), farm.get("address"), store)


def _hold_to_budget(path: Path, document: Mapping[str, Any]) -> None:
    """Raises the error for a file that multiplies, before anything of it is looked at.

    Raises:
        InputError: Models and targets have too many settings, those that each inherits counted for each.
        BudgetExceeded: A table lists too many profiles.
    """
    entries = document.get("models")
    models = [model for model in entries if isinstance(model, dict)] if isinstance(entries, list) else []
    for table in (document, *models):
        if isinstance(table.get("profiles"), list):
            budget.spend("profiles", len(table["profiles"]), f"an engine of {path}")
    defaults = _defaults(document)
    inherited, settings = _size(defaults), 0
    for own in models:
        targets = [own.get(key, defaults.get(key)) for key in ("targets", "check-targets")]
        settings += (inherited + _size(own)) * max(1, sum(len(names) for names in targets if isinstance(names, list)))
    if settings > _MOST_SETTINGS:
        raise InputError(
            f"{path} has more than {_MOST_SETTINGS} settings, with those that each model inherits for each target",
            "Divide it into several files.",
        )


def _size(value: Any) -> int:
    """Returns how many numbers and texts a value of TOML has in all."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if inside is None else sum(map(_size, inside))


def _check_outputs(path: Path, entries: Sequence[Entry]) -> None:
    """Raises InputError where an engine or its report would replace a model, the configuration or one another."""
    models = dict.fromkeys(entry.check.model for entry in entries)
    inputs = [("the configuration", path), *(("a model of the configuration", model) for model in models)]
    outputs = [output for entry in entries if entry.build is not None for output in entry.build.outputs]
    try:
        check_all(outputs, inputs, and_disk=False)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from error


def settings_fault(table: Mapping[str, Any]) -> str:
    """Returns what is wrong with a table of settings of a model, without its paths; empty where nothing is."""
    return next(_faults(table, {"type": "object", "properties": _SETTINGS}, ""), "")


def _tools(pyproject: Path) -> Mapping[str, Any]:
    """Returns the tables under [tool] of a pyproject.toml."""
    tools = read_toml(pyproject).get("tool", {})
    return tools if isinstance(tools, dict) else {}


def _defaults(document: Mapping[str, Any]) -> dict[str, object]:
    return {key: value for key, value in document.items() if key not in ("models", "farm")}


def _entries(defaults: Mapping[str, Any], own: Mapping[str, Any], file: Path) -> Iterator[Entry]:
    model, inherited = {**defaults, **own}, frozenset(defaults.keys() - own.keys())
    try:
        if KEY in model:
            model[KEY] = gathered(model[KEY], file.parent)
        targets = [Target.of_flag(text) for text in model.get("targets", ["auto"])]
        for target in targets:
            build = _build_request(model, file, target, several=len(targets) > 1)
            yield Entry(_check_request(model, file, target), build, inherited)
        for text in model.get("check-targets", ()):
            yield Entry(_check_request(model, file, Target.of_flag(text)), None, inherited)
    except InputError as error:
        raise InputError(f"{file}: {model['path']}: {error.message}", error.hint) from error
    except ValueError as error:
        raise InputError(
            f"{file}: {model['path']!r}: {error}", "Correct the paths and numbers of this entry."
        ) from error


def _build_request(model: Mapping[str, Any], file: Path, target: Target | None, several: bool) -> BuildRequest:
    folder = file.parent
    path = folder / model["path"]
    engine = folder / model["engine"] if "engine" in model else with_ending(path, ".engine")
    if several:
        engine = with_ending(engine, f".{target or 'auto'}{engine.suffix}")
    settings = _settings(BuildRequest, model, file, target)
    build = BuildRequest(path, engine, within=folder, **settings)
    if build.data is not None:
        if ".py:" in build.data or build.data.endswith(".py"):
            hint = "Name a folder or an .npz file; or build the model by itself, with --data FILE.py:FUNC."
            raise InputError(f"data = {build.data!r} is code, and no configuration makes trtconv run any", hint)
        build = dataclasses.replace(build, data=str(folder / build.data))
    return build


def _check_request(model: Mapping[str, Any], file: Path, target: Target | None) -> CheckRequest:
    return CheckRequest(file.parent / model["path"], **_settings(CheckRequest, model, file, target))


def _settings(kind: type, model: Mapping[str, Any], file: Path, target: Target | None) -> dict[str, Any]:
    """Returns the fields of a request; code among them is marked as what this file names."""
    fields = of_settings(kind, {**model, "targets": [str(target or "auto")]})
    return {name: _code_of(value, file) for name, value in fields.items()}


def _code_of(value: Any, file: Path) -> Any:
    names_code = isinstance(value, tuple) and any(isinstance(entry, CodeFile) for entry in value)
    return tuple(entry.of(file) for entry in value) if names_code else value


_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def _faults(value: Any, schema: Mapping[str, Any], key: str) -> Iterator[str]:
    """Holds a value to the part of JSON Schema that `SCHEMA` uses; yields what is wrong."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(
        isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)) for kind in kinds
    ):
        yield f"{key or 'it'} must be {' or '.join(_with_article(kind) for kind in kinds)}"
    elif isinstance(value, dict):
        yield from _object_faults(value, schema, key)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{key} is empty"
        for index, item in enumerate(value):
            yield from _faults(item, schema["items"], f"{key}[{index}]")
    else:
        yield from _plain_faults(value, schema, key)


def _object_faults(value: Mapping[str, Any], schema: Mapping[str, Any], key: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{_join(key, name)} is missing"
    for name, item in value.items():
        own = properties.get(name, schema.get("additionalProperties"))
        if own:
            yield from _faults(item, own, _join(key, name))
        else:
            yield f"there is no key {_join(key, name)}{_suggestion(name, properties)}"


def _plain_faults(value: Any, schema: Mapping[str, Any], key: str) -> Iterator[str]:
    if isinstance(value, int) and abs(value) > _LARGEST_NUMBER:
        yield f"{key} is a number beyond all sizes"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{key} is {value!r}, not one of {', '.join(schema['enum'])}"
    if "minimum" in schema and not value >= schema["minimum"]:
        yield f"{key} is {value}, and at least {schema['minimum']} is needed"
    if schema.get("maximum") is not None and not value <= schema["maximum"]:
        yield f"{key} is {value}, and {schema['maximum']} is the most"
    pattern = schema.get("pattern")
    if pattern and not re.search(pattern, str(value)):
        yield _unread(value, pattern, schema, key)
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        yield f"{key} is empty"


_READERS: Mapping[str, Callable[[str], object]] = {BOUNDS_PATTERN: Range.parse, TARGET_PATTERN: Target.of_flag}
"""Who reads a text of this pattern, and can say what is wrong with another one."""


def _unread(value: Any, pattern: str, schema: Mapping[str, Any], key: str) -> str:
    """Says what is wrong with a text, as the command line does."""
    try:
        _READERS.get(pattern, str)(str(value))
    except InputError as error:
        return f"{key}: {error.message}. {error.hint}"
    return f"{key} is {value!r}: {schema.get('description', 'that cannot be read')}"


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _suggestion(name: str, schemas: Mapping[str, Mapping[str, Any]]) -> str:
    table = next((key for key, schema in schemas.items() if name in schema.get("properties", ())), None)
    if table:
        return f"; it belongs in {table}: {table} = {{ {name} = ... }}"
    near = difflib.get_close_matches(name[:100], schemas, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(schemas)}"


def _with_article(kind: str) -> str:
    return {"object": "a table", "array": "an array", "integer": "an integer"}.get(kind, f"a {kind}")
