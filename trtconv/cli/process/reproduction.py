"""What is left where native code ended the process: a folder with all that it takes to see it happen again."""

from __future__ import annotations

import json
import platform
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.cli.versions import versions
from trtconv.core import process
from trtconv.core.errors import TrtconvError
from trtconv.core.frozen import frozen
from trtconv.core.reading import read_plain, sha256_of
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.target import Target

MODEL = "model.onnx"
"""What the model is called in the folder, where no file has a name that a stranger chose."""
COPIED_BYTES = 64 << 20
"""A model up to this size is copied; of a larger one path and SHA-256 are written down."""
REWRITE_SECONDS = 120.0
_SIZES = frozenset(("--dim", "--input", "--profile", "--minShapes", "--optShapes", "--maxShapes", "--value", "--split"))
_LEFT_OUT = ("-o", "--output", "--report", "--config")


def save(what: str, log: Sequence[str], arguments: Sequence[str], params: Mapping[str, Any]) -> str:
    """Writes a reproduction folder into the user's temporary folder.

    Args:
        what: What happened, and where.
        log: The end of what TensorRT and other native code said.
        arguments: The command line's.
        params: The same as click read them; `model` or the only one of `models` is the model.

    Returns:
        What to do with it, as a hint for the user; the log itself where nothing can be written.
    """
    models = params.get("models") or (params.get("model") or params["file"],)
    source = Path(models[0])
    try:
        folder = Path(tempfile.mkdtemp(prefix="trtconv-crash-"))
        _write(folder / "log.txt", "\n".join([what, "", *log]))
        _write(folder / "command.txt", f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(['trtconv', *arguments])}")
        system = {"python": sys.version, "platform": platform.platform(), "packages": versions()}
        _write(folder / "versions.json", json.dumps(system, indent=2))
        model = _keep_model(source, folder)
        again = _again(arguments, models[0], model, "build" in arguments[:1])
        rerun = shlex.join(["trtconv", *again, *_configured(arguments, source, params)])
        _write(folder / "rerun.sh", f'#!/bin/sh\ncd "$(dirname "$0")" && exec {rerun}')
        _rewrite(folder, model, params)
    except OSError:
        return "No reproduction could be written. The log:\n" + "\n".join(log)
    return (
        f"{folder} has the log and all that is needed to repeat it: sh {shlex.quote(str(folder / 'rerun.sh'))}\n"
        "Where it repeats, report it to NVIDIA with that folder; narrower --dim bounds may avoid it."
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def _keep_model(source: Path, folder: Path) -> str:
    """Copies the model and its external data, or writes down which it was. Returns how to name it from the folder."""
    task = CopyTask(source, folder / MODEL, COPIED_BYTES)
    try:
        # In a process of its own: the model has just ended one.
        files = process.call("trtconv.cli.process.reproduction:copy_model", task, REWRITE_SECONDS)
    except (process.Lost, process.WorkerBug, TrtconvError):
        files = _copy_alone(source, folder)
    if not files:
        return MODEL
    identities = [{"path": str(f), "sha256": sha256_of(f), "bytes": f.stat().st_size} for f in map(Path, files)]
    _write(folder / "model.json", json.dumps(identities, indent=2))
    return str(source.absolute())


@frozen
class CopyTask:
    """A model to copy.

    Args:
        source: Its file.
        target: Where it goes.
        most_bytes: How many bytes it may have, with its external data.
    """

    source: Path
    target: Path
    most_bytes: int


def copy_model(task: CopyTask, tell: process.Tell) -> list[str]:
    """Copies a model with its external data inside: files of their own would have names that a stranger chose.

    Args:
        task: What to copy, and where to.
        tell: Not used.

    Returns:
        Nothing where it was copied; otherwise the files that are too large.
    """
    from trtconv.graph.model import OnnxModel

    source, target = task.source, task.target
    model = OnnxModel.load(source)
    files = [source, *model.external_files]
    if sum(file.stat().st_size for file in files) > task.most_bytes:
        return [str(file.absolute()) for file in files]
    if model.external_files:
        model.save(target)
    else:
        target.write_bytes(read_plain(source, COPIED_BYTES))
    return []


def _copy_alone(source: Path, folder: Path) -> list[str]:
    """Copies a file that cannot be read as a model, unless it is too large."""
    if source.stat().st_size > COPIED_BYTES:
        return [str(source.absolute())]
    (folder / MODEL).write_bytes(read_plain(source, COPIED_BYTES))
    return []


def _again(arguments: Sequence[str], name: str, model: str, builds: bool) -> list[str]:
    """Returns the arguments with another model, no configuration and, for a build, with an output of its own."""
    words: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in _LEFT_OUT:
            next(rest, None)
        elif argument.startswith(("--output=", "--report=", "--config=")) or (argument[:2] == "-o" and argument[2:]):
            continue
        else:
            words.append(model if argument == name else argument)
    return [*words, "--force", "-o", "again.engine"] if builds else words


def _configured(arguments: Sequence[str], source: Path, params: Mapping[str, Any]) -> list[str]:
    """Returns the flags that stand for what a configuration says of the model, and the command line does not."""
    from trtconv.cli.commands.many import ManyFlags, configured, for_target
    from trtconv.core.options import command_line
    from trtconv.core.requests.reduce import ReduceRequest

    try:
        _, (entries,) = configured(ManyFlags("text", params.get("config"), None, True, False), [str(source)])
    except TrtconvError:
        return []
    names = {argument.partition("=")[0] for argument in arguments}
    target = params["target"] if "--target" in names else None
    entry = next(iter(for_target(entries, target)), None)
    if entry is None:
        return []
    words = command_line(entry.build or entry.check, ReduceRequest)
    flags = [word for word in words if word.startswith("--")]
    left_out = names | (_SIZES if names & _SIZES else set())
    rest, keeps = [], False
    for word in words:
        keeps = word not in left_out if word in flags else keeps
        rest += [word] if keeps else []
    return rest


def _rewrite(folder: Path, model: str, params: Mapping[str, Any]) -> None:
    """Adds what the passes make of the model, which is what TensorRT was given, and their report."""
    if params.get("no_rewrite") or Path(model).is_absolute():
        return
    target = Target.of_flag(params.get("target", "auto"))
    request = RewriteRequest(folder / model, folder / "rewritten.onnx", target=target)
    try:
        passes = process.call("trtconv.cli.process.reproduction:rewrite_model", request, REWRITE_SECONDS)
    except (process.Lost, process.WorkerBug, TrtconvError):
        return
    _write(folder / "passes.json", passes)


def rewrite_model(request: RewriteRequest, _: process.Tell) -> str:
    """Rewrites a model in a process of its own; returns the report as JSON."""
    from trtconv import pipeline
    from trtconv.cli.formats import json

    return json.render(pipeline.rewrite(request).to_json())
