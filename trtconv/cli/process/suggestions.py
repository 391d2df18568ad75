"""What to write instead of what other tools call it: flags of trtexec and Polygraphy, their commands, other habits."""

from __future__ import annotations

import re
import shlex

import click

from trtconv.cli.help import EVERYDAY, HELP_ALL
from trtconv.cli.process.outcome import EmptyText, NotAChoice

FLAGS = {
    "--onnx": "The model stands by itself: trtconv build MODEL.onnx",
    "--model": "The model stands by itself: trtconv build MODEL.onnx",
    "--saveEngine": "It is -o ENGINE",
    "--out": "It is -o ENGINE",
    "--loadEngine": "trtconv bench ENGINE times an engine, trtconv inspect ENGINE shows it",
    "--fp16": "It is --precision fp16",
    "--bf16": "It is --precision bf16",
    "--int8": "It is --precision int8, for a model that is quantised",
    "--fp8": "There is none; --precision takes as-is, fp16, bf16, int8",
    "--best": "Choose one: --precision fp16, or int8 for a model that is quantised",
    "--noTF32": "It is --no-tf32",
    "--stronglyTyped": "That is how it is: --precision as-is, the default",
    "--shapes": "It is --optShapes x:1x3x64x64 alone, or --input x=1,3,64,64",
    "--trt-min-shapes": "It is --dim NAME=MIN:OPT:MAX, or --minShapes x:1x3x64x64",
    "--trt-opt-shapes": "It is --dim NAME=MIN:OPT:MAX, or --optShapes x:1x3x64x64",
    "--trt-max-shapes": "It is --dim NAME=MIN:OPT:MAX, or --maxShapes x:1x3x64x64",
    "--layerPrecisions": "It is --node-precision NODE=fp16, with * and type:OPERATOR",
    "--layerOutputTypes": "It is --node-precision NODE=fp16, which is the type of its outputs too",
    "--precisionConstraints": "Leave it out: the builder has to obey --node-precision",
    "--memPoolSize": "It is --workspace 4096M",
    "--pool-limit": "It is --workspace 4096M",
    "--maxWorkspaceSize": "It is --workspace 4096M",
    "--builderOptimizationLevel": "It is --optimization-level",
    "--builder-optimization-level": "It is --optimization-level",
    "--timingCacheFile": "It is --timing-cache FILE",
    "--load-timing-cache": "It is --timing-cache FILE",
    "--save-timing-cache": "It is --timing-cache FILE",
    "--versionCompatible": "It is --version-compatible",
    "--hardwareCompatibilityLevel": "It is --hardware-compatibility",
    "--stripWeights": "It is --strip-weights",
    "--refit": "It is --refittable",
    "--allowWeightStreaming": "It is --weight-streaming",
    "--maxAuxStreams": "It is --max-aux-streams",
    "--profilingVerbosity": "It is --profiling-verbosity",
    "--computeCapabilities": "It is --compute-capability 8.9",
    "--skipInference": "Leave it out: build never runs the engine",
    "--buildOnly": "Leave it out: build never runs the engine",
    "--dumpProfile": "trtconv inspect ENGINE times layers",
    "--exportLayerInfo": "trtconv inspect ENGINE --format json lists layers",
    "--dumpLayerInfo": "trtconv inspect ENGINE lists layers",
    "--useCudaGraph": "Leave it out: bench times with and without",
    "--iterations": "It is bench --duration, in seconds",
    "--avgRuns": "It is bench --duration, in seconds",
    "--warmUp": "It is bench --warmup, in seconds",
    "--calib": "Quantise the model first, with its scales: trtconv quantize MODEL --cache CALIB.cache -o OUT.onnx",
    "--sparsity=enable": "It is --sparsity",
    "--load-inputs": "It is verify --inputs FILE.npz",
    "--loadInputs": "It is verify --inputs FILE.npz",
    "--atol": "It is verify --tolerance",
    "--rtol": "It is verify --tolerance",
    "--dims": "It is --dim NAME=MIN:OPT:MAX, once a dimension",
    "--batch": "It is --dim batch=N",
}
"""A flag of another tool to what is written here."""

COMMANDS = {"convert": "build", "compile": "build", "trtexec": "build", "lint": "check", "surgeon": "rewrite"}
"""A command of another tool to ours."""
_MODELS = (".onnx", ".onnx.gz")
_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)")


_BOUNDS = re.compile(r"\d+(:\d+){0,2}")


def _unbound(error: click.UsageError) -> str:
    """Returns a name that was given to --dim without its bounds; empty where there is none."""
    given = error.ctx.params.get("dim") if error.ctx is not None else None
    return next((str(text) for text in given or () if isinstance(text, str) and text.isidentifier()), "")


def command_hint(name: str) -> str:
    """Returns what to write instead of a command that there is none of; empty where nothing comes to mind."""
    if name.lower().endswith(_MODELS):
        return f" Did you mean trtconv build {shlex.quote(name)}?"
    return f" Did you mean {COMMANDS[name]}?" if name in COMMANDS else ""


def usage_failure(error: click.UsageError) -> tuple[str, str]:
    """Returns the message and the hint of a call that click refuses."""
    command = error.ctx.command if error.ctx is not None else None
    path = error.ctx.command_path if error.ctx is not None else "trtconv"
    message = " ".join(error.format_message().split())
    if isinstance(error, (EmptyText, NotAChoice)):
        return message, error.hint
    if isinstance(error, click.NoSuchOption) and error.option_name in FLAGS:
        page = HELP_ALL if command is not None and command.name in EVERYDAY else "--help"
        return f"There is no option {error.option_name}.", f"{FLAGS[error.option_name]}. '{path} {page}' lists all."
    extra = _EXTRA.match(message)
    if extra and command is not None and command.name == "build":
        words = extra[1].split() or ["''"]
        if _BOUNDS.fullmatch(words[0]) and (name := _unbound(error)):
            hint = f"Join the two by an equals sign: --dim {name}={words[0]}"
        elif words[0].lower().endswith(_MODELS):
            hint = "For several models: list them in trtconv.toml (docs/config.md), or call trtconv build for each."
        else:
            hint = f"The engine's path goes behind -o: -o {words[0]}"
        return f"build takes one MODEL, not also {', '.join(words)}", hint
    return message, f"Try '{path} --help'."
