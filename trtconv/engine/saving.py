"""Tensors of a verification, written as arrays: what goes in, what the model means, what came out."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write
from trtconv.core.requests.engine import VerifyRequest
from trtconv.engine.cases import Case
from trtconv.graph.inner_tensors import tensors_meant
from trtconv.graph.interface import returning
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.inputs import Feeds


class TensorFolder:
    """A folder of .npz files, one a size; each array is called input/NAME, expected/NAME or got/NAME.

    Args:
        folder: Where they go; new, or empty.
        patterns: Which inner tensors are kept besides the outputs, by their names or those of their operators.

    Raises:
        InputError: There is something in the folder already, or it cannot be made.
    """

    def __init__(self, folder: Path, patterns: Sequence[str]) -> None:
        self._folder = folder
        self.patterns = tuple(patterns)
        self._names: dict[str, None] = {}
        try:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise InputError(f"--save-tensors {folder} is there, and not empty", "Name a new folder.")
        except OSError as error:
            raise InputError(f"--save-tensors {folder}: {error.strerror or error}", "Name another folder.") from error

    def keeps(self, tensor: str) -> bool:
        """Whether an inner tensor is written."""
        return tensor in self._names

    def exposing(self, model: OnnxModel) -> OnnxModel:
        """Returns a model that returns the inner tensors that are meant too, and remembers which they are.

        Raises:
            InputError: A pattern means none.
        """
        if self.patterns:
            self._names = dict.fromkeys(tensors_meant(model, self.patterns, "--tensor"))
        if not self._names:
            return model
        return returning(model, list(self._names))

    def write(self, number: int, case: Case, feeds: Feeds, expected: Feeds, got: Feeds) -> Path:
        """Writes what was computed at one size.

        Args:
            number: Of the size, from 0.
            case: The size.
            feeds: The inputs.
            expected: What the model means.
            got: What was computed.

        Returns:
            The file.
        """
        groups = {"input": feeds, "expected": expected, "got": got}
        arrays = {f"{group}/{name}": plain(array) for group, side in groups.items() for name, array in side.items()}
        data = io.BytesIO()
        np.savez(data, **arrays)  # type: ignore[arg-type]
        path = self._folder / f"{number:03d}-profile{case.profile}-{case.size.replace(' ', '')}.npz"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--save-tensors {path.parent}: {error.strerror or error}", "Name another.") from error
        atomic_write(path, data.getbuffer())
        return path


def folder_of(request: VerifyRequest) -> TensorFolder | None:
    """Returns where a verification keeps tensors; None where it is not asked to.

    Raises:
        InputError: Something is there already, or tensors are named and no folder.
    """
    if request.save_tensors is not None:
        return TensorFolder(request.save_tensors, request.tensors)
    if request.tensors:
        raise InputError("--tensor goes with --save-tensors", "Add --save-tensors FOLDER, or leave out --tensor.")
    return None


def plain(values: NDArray[Any]) -> NDArray[Any]:
    """Returns values of a type that .npz files have: bfloat16 and its like as float32, texts as such of one length."""
    return values.astype({"V": np.float32, "O": np.str_}.get(values.dtype.kind, values.dtype), copy=False)
