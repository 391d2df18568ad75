"""The flags of `trtconv build` that tell TensorRT's builder how to work, and where its timing cache lies."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtconv.cli.options import chain
from trtconv.core.frozen import frozen

if TYPE_CHECKING:
    from trtconv.core.builder_options import BuilderOptions

builder_options = chain(
    click.option("--workspace", metavar="SIZE", help="Most scratch memory that a layer may use, such as 512M or 2G."),
    click.option(
        "--optimization-level",
        type=click.IntRange(0, 5),
        metavar="0-5",
        help="How long TensorRT looks for fast kernels; its default is 3.",
    ),
    click.option(
        "--timing-cache",
        metavar="FILE|auto|none",
        default="auto",
        show_default=True,
        help="Where TensorRT keeps what it measured, which later builds need not measure again. auto: the user's cache "
        "folder, a file for each version and GPU. TensorRT-RTX measures nothing and has none.",
    ),
    click.option("--version-compatible", is_flag=True, help="Make an engine that newer versions of TensorRT run too."),
    click.option(
        "--hardware-compatibility",
        type=click.Choice(["none", "ampere+", "same-compute-capability"]),
        default="none",
        show_default=True,
        help="On which other GPUs the engine runs.",
    ),
    click.option("--strip-weights", is_flag=True, help="Leave the weights out; refitting puts them back."),
    click.option("--refittable", is_flag=True, help="Make an engine whose weights can be replaced."),
    click.option("--weight-streaming", is_flag=True, help="Let weights stay in host memory while the engine runs."),
    click.option("--sparsity", is_flag=True, help="Allow kernels for weights with 2:4 sparsity."),
    click.option(
        "--tf32/--no-tf32",
        default=None,
        help="Compute float32 in TF32 where the GPU has it; the default is yes.",
    ),
    click.option(
        "--profiling-verbosity",
        type=click.Choice(["none", "layer-names", "detailed"]),
        help="What the engine tells of its layers; TensorRT's default is layer-names.",
    ),
    click.option(
        "--compute-capability",
        "compute_capabilities",
        multiple=True,
        metavar="X.Y",
        help="Build for this GPU, such as 8.9; TensorRT-RTX only. Repeatable. 7.5 must be asked for.",
    ),
)


@frozen
class BuilderFlags:
    """The flags of `builder_options`."""

    workspace: str | None
    optimization_level: int | None
    timing_cache: str
    version_compatible: bool
    hardware_compatibility: str
    strip_weights: bool
    refittable: bool
    weight_streaming: bool
    sparsity: bool
    tf32: bool | None
    profiling_verbosity: str | None
    compute_capabilities: tuple[str, ...]

    def builder(self) -> BuilderOptions:
        """Returns the options.

        Raises:
            InputError: One cannot be read.
        """
        from trtconv.core.builder_options import BuilderOptions, parse_bytes

        return BuilderOptions(
            workspace_bytes=None if self.workspace is None else parse_bytes(self.workspace),
            optimization_level=self.optimization_level,
            version_compatible=self.version_compatible,
            hardware=self.hardware_compatibility,
            strip_weights=self.strip_weights,
            refittable=self.refittable,
            weight_streaming=self.weight_streaming,
            sparsity=self.sparsity,
            tf32=self.tf32,
            profiling_verbosity=self.profiling_verbosity,
            compute_capabilities=self.compute_capabilities,
        )

    def cache_file(self) -> Path | None:
        """Returns the file that was named for the timing cache."""
        return None if self.timing_cache in ("auto", "none") else Path(self.timing_cache)

    def cache_folder(self) -> Path | None:
        """Returns the folder for files of timing caches."""
        return timing_folder() if self.timing_cache == "auto" else None


NO_BUILDER_FLAGS: dict[str, object] = {
    "workspace": None,
    "optimization_level": None,
    "timing_cache": "auto",
    "version_compatible": False,
    "hardware_compatibility": "none",
    "strip_weights": False,
    "refittable": False,
    "weight_streaming": False,
    "sparsity": False,
    "tf32": None,
    "profiling_verbosity": None,
    "compute_capabilities": (),
}
"""The flags of `builder_options` where none is given."""


def timing_folder() -> Path | None:
    """Returns the folder for timing caches in the user's cache folder; None where there is no place for it."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "trtconv" / "timing" if base else None
    except RuntimeError:  # A user without a home.
        return None
