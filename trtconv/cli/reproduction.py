"""What is left where native code ended the process: a folder with all that it takes to see it happen again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trtconv.cli.versions import versions

COPIED_BYTES = 64 << 20
"""A model up to this size is copied; of a larger one path and SHA-256 are written down."""
REWRITE_SECONDS = 120.0
_OUTPUT_FLAGS = ("-o", "--output", "--report")


def save(what: str, log: Sequence[str], arguments: Sequence[str], params: dict[str, Any]) -> str:
    """Writes a reproduction folder into the user's temporary folder.

    Args:
        what: What happened, and where.
        log: The end of what TensorRT and other native code said.
        arguments: The command line's.
        params: The same as click read them; `model` or the only one of `models` is the model.

    Returns:
        What to do with it, as a hint for the user; the log itself where nothing can be written.
    """
    models = params.get("models") or (params["model"],)
    source = Path(models[0])
    try:
        folder = Path(tempfile.mkdtemp(prefix="trtconv-crash-"))
        _write(folder / "log.txt", "\n".join([what, "", *log]))
        _write(folder / "command.txt", f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(['trtconv', *arguments])}")
        system = {"python": sys.version, "platform": platform.platform(), "packages": versions()}
        _write(folder / "versions.json", json.dumps(system, indent=2))
        model = _keep_model(source, folder)
        rerun = shlex.join(["trtconv", *_again(arguments, models[0], model, "build" in arguments[:1])])
        _write(folder / "rerun.sh", f'#!/bin/sh\ncd "$(dirname "$0")" && exec {rerun}')
        _rewrite(folder, model, params)
    except OSError:
        return "No reproduction could be written. The log:\n" + "\n".join(log)
    return (
        f"{folder} has the log and all that is needed to repeat it: sh {folder}/rerun.sh\n"
        "Where it repeats, report it to NVIDIA with that folder; narrower --dim bounds may avoid it."
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def _keep_model(source: Path, folder: Path) -> str:
    """Copies the model and its external data, or writes down which it was. Returns how to name it from the folder."""
    files = [source, *_external_files(source)]
    if sum(file.stat().st_size for file in files) <= COPIED_BYTES:
        for file in files:
            target = folder / (source.name if file == source else file.relative_to(source.parent))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        return source.name
    known = [{"path": str(f.absolute()), "sha256": _sha256(f), "bytes": f.stat().st_size} for f in files]
    _write(folder / "model.json", json.dumps(known, indent=2))
    return str(source.absolute())


def _external_files(source: Path) -> tuple[Path, ...]:
    """Returns the files of the model's external data, none where the model cannot be read."""
    code = (
        "import sys; from pathlib import Path; from trtconv.model import OnnxModel;"
        "print(*OnnxModel.load(Path(sys.argv[1])).external_files, sep='\\n', end='')"
    )
    done = _python(["-c", code, str(source)])
    return tuple(Path(line) for line in done.splitlines()) if done else ()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        sha = hashlib.sha256()
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    return sha.hexdigest()


def _again(arguments: Sequence[str], named: str, model: str, builds: bool) -> list[str]:
    """Returns the arguments with another model and, for a build, with an output of its own."""
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in _OUTPUT_FLAGS:
            next(rest, None)
        elif argument.startswith(("--output=", "--report=")) or (argument[:2] == "-o" and argument[2:]):
            continue
        else:
            kept.append(model if argument == named else argument)
    return [*kept, "--force", "-o", "again.engine"] if builds else kept


def _rewrite(folder: Path, model: str, params: dict[str, Any]) -> None:
    """Adds what the passes make of the model, which is what TensorRT was given, and their report."""
    if params.get("no_rewrite") or Path(model).is_absolute():
        return
    command = ["-m", "trtconv", "rewrite", model, "-o", "rewritten.onnx", "--format", "json", "-q"]
    target = params.get("target", "auto")
    report = _python([*command, *(["--target", target] if target != "auto" else [])], folder)
    if report:
        _write(folder / "passes.json", report.rstrip())


def _python(arguments: Sequence[str], folder: Path | None = None) -> str:
    """Runs Python as this one runs, apart from it: whatever the model does to it. Returns its stdout."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=REWRITE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
