"""From a SPEC on the command line to a module: running the user's code, or reading a saved program."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import traceback
import types
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from trtconv.core.errors import InputError, TrtconvError
from trtconv.core.suggest import did_you_mean
from trtconv.exporter.module.libraries import load_ultralytics, maker_of
from trtconv.exporter.module.source_line import blame_exception, first_line, is_users
from trtconv.exporter.parts import ExportPart, is_parts
from trtconv.exporter.request import parse_argument

_FORMS = "Write path/to/file.py:factory, package.module:Class, timm:NAME, program.pt2 or scripted.pt."
Loaded: TypeAlias = "torch.nn.Module | torch.export.ExportedProgram"
Given: TypeAlias = "Loaded | Sequence[ExportPart]"


@contextlib.contextmanager
def module_path(spec: str) -> Iterator[None]:
    """Lets the user's files import what lies beside them, as `python file.py` would, while the block runs."""
    file, _, _ = spec.rpartition(":")
    folder = Path(file).resolve().parent if file.endswith(".py") else Path.cwd()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def load_spec(spec: str, arguments: Mapping[str, Any], trust: bool = False) -> Given:
    """Makes or reads what a SPEC names.

    Args:
        spec: One of the forms.
        arguments: Keyword arguments of the factory or class.
        trust: Whether a pickle may be read, which runs the code that is in it.

    Raises:
        InputError: The SPEC does not resolve, the factory raises, or it returns no module.
    """
    scheme, _, rest = spec.partition(":")
    name, _, query = rest.partition("?")
    maker = maker_of(scheme, name) if name else None
    if maker is not None:
        return _make(spec, maker, {**dict(parse_argument(text) for text in query.split("&") if text), **arguments})
    target, colon, attribute = spec.rpartition(":")
    if colon and target and attribute.replace(".", "").isidentifier():
        owner = _import_file(Path(target)) if target.endswith(".py") else _import_module(target)
        return _make(spec, _attribute(owner, target, attribute), arguments)
    if arguments:
        raise InputError("--arg goes with a factory or class only", _FORMS)
    path = Path(spec)
    if path.suffix == ".py":
        raise InputError(f"{spec} names no factory", f"Write {spec}:build, where build() returns the module.")
    if not path.exists():
        raise InputError(f"{spec} is neither a file nor MODULE:NAME", _FORMS)
    if path.suffix == ".pt2":
        return _load_program(path)
    return load_ultralytics(path) if trust and _is_checkpoint(path) else _load_script(path)


def _import_file(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise InputError(f"{path} does not exist", _FORMS)
    # A file called like an imported module must not replace it; dataclasses and pickles look their module up by name.
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_trtconv_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file", _FORMS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise _users_failure(f"{path} cannot be imported", error) from error
    return module


def _import_module(name: str) -> types.ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"{name!r} is not the name of a module", _FORMS)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise InputError(f"there is no module {error.name!r}", "Install it, or call from its folder.") from error
        raise _users_failure(f"{name} cannot be imported", error) from error
    except Exception as error:
        raise _users_failure(f"{name} cannot be imported", error) from error


def _attribute(owner: types.ModuleType, target: str, attribute: str) -> Any:
    value: Any = owner
    for part in attribute.split("."):
        if not hasattr(value, part):
            own = [n for n, v in vars(owner).items() if callable(v) and not n.startswith("_")]
            mine = [n for n in own if getattr(getattr(owner, n), "__module__", None) == owner.__name__] or own
            raise InputError(f"{target} has no {attribute!r}", did_you_mean(attribute, mine))
        value = getattr(value, part)
    return value


def _make(spec: str, value: Any, arguments: Mapping[str, Any]) -> Given:
    if callable(value) and not isinstance(value, torch.nn.Module):
        _check_arguments(spec, value, arguments)
        torch.manual_seed(0)  # a factory that does not seed gives the same file every time
        try:
            value = value(**arguments)
        except TrtconvError:
            raise
        except Exception as error:
            raise _users_failure(f"{spec} raised", error) from error
    elif arguments:
        raise InputError(f"{spec} is a module already, --arg has nothing to be given to", "Leave out --arg.")
    if is_parts(value):
        return tuple(value)
    if not isinstance(value, torch.nn.Module | torch.export.ExportedProgram):
        raise InputError(f"{spec} gives a {type(value).__name__}, no torch.nn.Module", "Return the module itself.")
    loaded: Loaded = value
    return loaded


def _check_arguments(spec: str, factory: Any, arguments: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise InputError(f"{spec}: {error}", f"It takes {signature}; give them with --arg KEY=VALUE.") from error


def _users_failure(what: str, error: Exception) -> InputError:
    """Shows the user's own traceback; our frames and Python's import machinery are left out."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    lines = "".join(traceback.format_list(frames[-6:])).rstrip()
    message = f"{what}: {type(error).__name__}: {first_line(error)}"
    where = blame_exception(error)
    hint = f"It comes from {where}." if where is not None else "Run it in Python to see more."
    return InputError(f"{message}\n{lines}" if lines else message, hint)


def _load_program(path: Path) -> torch.export.ExportedProgram:
    try:
        program: torch.export.ExportedProgram = torch.export.load(path)
    except Exception as error:
        raise InputError(
            f"{path} is not an ExportedProgram: {first_line(error)}", "Save it with torch.export.save."
        ) from (error)
    return program


def _load_script(path: Path) -> torch.nn.Module:
    if path.is_dir():
        raise InputError(f"{path} is a folder", _FORMS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            module: torch.nn.Module = torch.jit.load(path, map_location="cpu")
    except Exception as error:
        hint = (
            "A state dict or pickled module cannot be exported alone: name its class, and give --weights. A checkpoint "
            "of ultralytics is read with --trust, which runs the code that is in it."
        )
        raise InputError(
            f"{path} is not a TorchScript file: {first_line(error)}", hint if _pickled(path) else _FORMS
        ) from (error)
    return module


def _is_checkpoint(path: Path) -> bool:
    """Whether a file is what torch.save writes, and not TorchScript, which has its code beside the data."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return not any(name.rpartition("/")[2] == "constants.pkl" for name in archive.namelist())


def _pickled(path: Path) -> bool:
    return zipfile.is_zipfile(path) or path.suffix in (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
