"""A project's configuration: which models, for which targets, with which sizes. `trtconv.toml`, or `[tool.trtconv]` in
pyproject.toml; docs/config.md describes it and docs/trtconv.schema.json is `SCHEMA`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.builder_options import HARDWARE, VERBOSITIES, BuilderOptions, parse_bytes
from trtconv.core.dim_flags import parse_values
from trtconv.core.dims import Range
from trtconv.core.errors import InputError
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.common import PRECISIONS, Bounds
from trtconv.core.selection import Selection
from trtconv.core.target import Target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "trtconv.toml"
PYPROJECT = "pyproject.toml"

_DIMS = {
    "type": "object",
    "description": "Dimension name, or INPUT:AXIS, to its bounds: MIN:OPT:MAX, MIN:MAX or N.",
    "additionalProperties": {"type": ["string", "integer"], "pattern": r"^\d+(:\d+){0,2}$"},
}
_SETTINGS: dict[str, Any] = {
    "targets": {
        "type": "array",
        "items": {"type": "string", "pattern": r"^(auto|(rtx|tensorrt)(-\d+(\.\d+)*)?)$"},
        "minItems": 1,
        "description": "What to check against and build for; default: auto, the TensorRT that is installed.",
    },
    "dims": _DIMS,
    "profiles": {
        "type": "array",
        "items": _DIMS,
        "description": "One entry an optimization profile, each laid over dims.",
    },
    "values": {
        "type": "object",
        "description": "Input that holds a shape or a count to the bounds of its elements, as --value takes them.",
        "additionalProperties": {"type": ["string", "integer"]},
    },
    "round": {"type": "boolean", "description": "Move sizes that the network does not accept; default: false."},
    "split": {
        "type": ["string", "integer"],
        "pattern": r"^(auto|[1-9]\d*)$",
        "description": "Divide the ranges into that many profiles, or auto.",
    },
    "precision": {"type": "string", "enum": list(PRECISIONS), "description": "What to compute in; default: as-is."},
    "cast-io": {"type": "boolean", "description": "Cast inputs and outputs to the precision too; default: false."},
    "options": {
        "type": "object",
        "description": "How TensorRT's builder works, as the flags of build of the same names.",
        "properties": {
            "workspace": {"type": ["string", "integer"], "description": "Most scratch memory of a layer: 512M, 2G."},
            "optimization-level": {"type": "integer", "description": "0 to 5; TensorRT's default is 3."},
            "version-compatible": {"type": "boolean"},
            "hardware-compatibility": {"type": "string", "enum": list(HARDWARE)},
            "strip-weights": {"type": "boolean"},
            "refittable": {"type": "boolean"},
            "weight-streaming": {"type": "boolean"},
            "sparsity": {"type": "boolean"},
            "tf32": {"type": "boolean"},
            "profiling-verbosity": {"type": "string", "enum": list(VERBOSITIES)},
            "compute-capabilities": {
                "type": "array",
                "items": {"type": "string", "pattern": r"^\d{1,2}\.\d$"},
                "description": "GPUs to build for, such as 7.5; TensorRT-RTX only.",
            },
        },
        "additionalProperties": False,
    },
    "rewrite": {"type": "boolean", "description": "Whether the passes run; default: true."},
    "requantize": {"type": "boolean", "description": "Requantise asymmetric tensors symmetrically; default: false."},
    "thorough": {"type": "boolean", "description": "Whether check builds engines to be sure; default: false."},
    "fail-on": {
        "type": "string",
        "enum": ["error", "warning", "never"],
        "description": "Lowest severity of a finding that fails; default: error.",
    },
    "select": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Rule codes, beginnings of codes (TC3) or rule names that count; default: all.",
    },
    "ignore": {
        "type": "array",
        "description": "Findings that are known and accepted.",
        "items": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "A rule code, the beginning of one, or a rule name."},
                "reason": {"type": "string", "minLength": 1, "description": "Why it is accepted."},
            },
            "required": ["code", "reason"],
            "additionalProperties": False,
        },
    },
}
SCHEMA: dict[str, Any] = {
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
    },
    "required": ["models"],
    "additionalProperties": False,
}


@frozen
class Entry:
    """One model for one target.

    Args:
        check: What `trtconv check` is asked.
        build: What `trtconv build` is asked.
    """

    check: CheckRequest
    build: BuildRequest


@frozen
class Config:
    """A configuration file.

    Args:
        path: The file.
        entries: Every model with every one of its targets, in the order of the file.
    """

    path: Path
    entries: tuple[Entry, ...]


def find(folder: Path) -> Path | None:
    """Returns the configuration for a folder: the nearest in it or above it; trtconv.toml before pyproject.toml."""
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return place / FILE
        pyproject = place / PYPROJECT
        if pyproject.is_file() and "trtconv" in _read(pyproject).get("tool", {}):
            return pyproject
    return None


def load(path: Path) -> Config:
    """Reads a configuration.

    Raises:
        InputError: It is missing, no TOML, or says something that trtconv does not know; the message names the key.
    """
    document = _read(path)
    if path.name == PYPROJECT:
        document = document.get("tool", {}).get("trtconv", {})
    for fault in _faults(document, SCHEMA, ""):
        raise InputError(
            f"{path}: {fault}", "docs/config.md describes the file; docs/trtconv.schema.json is its schema."
        )
    entries = [entry for model in document["models"] for entry in _entries({**_defaults(document), **model}, path)]
    engines = [entry.build.engine_path for entry in entries]
    for engine in engines:
        if engines.count(engine) > 1:
            raise InputError(f"{path}: {engine} is the engine of two entries", "Give each model its own 'engine'.")
    return Config(path, tuple(entries))


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document: dict[str, Any] = tomllib.load(file)
            return document
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "Check the path of the configuration.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}", "Correct the file.") from error


def _defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "models"}


def _entries(model: Mapping[str, Any], file: Path) -> Iterator[Entry]:
    try:
        targets = [Target.asked(text) for text in model.get("targets", ["auto"])]
        for target in targets:
            yield _entry(model, file.parent, target, several=len(targets) > 1)
    except InputError as error:
        raise InputError(f"{file}: {model['path']}: {error.message}", error.hint) from error


def _entry(model: Mapping[str, Any], folder: Path, target: Target | None, several: bool) -> Entry:
    path = folder / model["path"]
    engine = folder / model["engine"] if "engine" in model else path.with_suffix(".engine")
    if several:
        engine = engine.with_suffix(f".{target or 'auto'}{engine.suffix}")
    fail_on = model.get("fail-on", "error")
    check = CheckRequest(
        model=path,
        dims=_bounds(model.get("dims", {})),
        profiles=tuple(_bounds(profile) for profile in model.get("profiles", ())),
        target=target,
        rewrite=model.get("rewrite", True),
        requantize=model.get("requantize", False),
        fail_on=None if fail_on == "never" else Severity(fail_on),
        selection=Selection(
            tuple(model.get("select", ())), {each["code"]: each["reason"] for each in model.get("ignore", ())}
        ),
        thorough=model.get("thorough", False),
        values=parse_values([f"{name}={text}" for name, text in model.get("values", {}).items()]),
    )
    build = BuildRequest(
        model=path,
        engine=engine,
        dims=check.dims,
        profiles=check.profiles,
        target=target,
        precision=model.get("precision", "as-is"),
        rewrite=check.rewrite,
        requantize=check.requantize,
        fail_on=check.fail_on,
        selection=check.selection,
        values=check.values,
        rounded=model.get("round", False),
        split=str(model["split"]) if "split" in model else None,
        cast_interface=model.get("cast-io", False),
        options=_options(model.get("options", {})),
    )
    return Entry(check, build)


def _options(table: Mapping[str, Any]) -> BuilderOptions:
    """Reads the table `options`; its keys are the flags' names."""
    return BuilderOptions(
        workspace_bytes=parse_bytes(str(table["workspace"])) if "workspace" in table else None,
        optimization_level=table.get("optimization-level"),
        version_compatible=table.get("version-compatible", False),
        hardware=table.get("hardware-compatibility", "none"),
        strip_weights=table.get("strip-weights", False),
        refittable=table.get("refittable", False),
        weight_streaming=table.get("weight-streaming", False),
        sparsity=table.get("sparsity", False),
        tf32=table.get("tf32"),
        profiling_verbosity=table.get("profiling-verbosity"),
        compute_capabilities=tuple(table.get("compute-capabilities", ())),
    )


def _bounds(dims: Mapping[str, str | int]) -> Bounds:
    return {name: Range.parse(str(text)) for name, text in dims.items()}


_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
}


def _faults(value: Any, schema: Mapping[str, Any], key: str) -> Iterator[str]:
    """Holds a value to the part of JSON Schema that `SCHEMA` uses; yields what is wrong."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, _TYPES[kind]) and (kind == "boolean" or value is not True) for kind in kinds):
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
            yield f"there is no key {_join(key, name)}{_suggestion(name, list(properties))}"


def _plain_faults(value: Any, schema: Mapping[str, Any], key: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{key} is {value!r}, not one of {', '.join(schema['enum'])}"
    if "pattern" in schema and not re.search(schema["pattern"], str(value)):
        yield f"{key} is {value!r}: {schema.get('description', 'that cannot be read')}"
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        yield f"{key} is empty"


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _suggestion(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _with_article(kind: str) -> str:
    return {"object": "a table", "array": "an array", "integer": "an integer"}.get(kind, f"a {kind}")
