"""Samples of a network's inputs: from a folder, an .npz file, a function of the user's, or at random.

A sample is made when it is asked for and forgotten afterwards, so that a thousand images need no more memory than one.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from trtconv.core import budget
from trtconv.core.dims import InputSpec, Shape
from trtconv.core.errors import InputError, TrtconvError
from trtconv.core.preprocessing import Preprocessing
from trtconv.core.reading import open_plain
from trtconv.core.samples import ARRAYS, IMAGES, function_of, sample_files
from trtconv.graph.arrays import Feeds
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.facts import Facts, facts_of
from trtconv.precision.quantize.images import read_image, read_taken
from trtconv.runtimes.inputs import call_generator, checked_inputs, header_of, load_generator, read_arrays
from trtconv.runtimes.onnxruntime import random_feeds

Shapes = Mapping[str, Shape]
_MOST_SAMPLES = 100_000


class InputSamples(Sequence[Feeds]):
    """Inputs that are made when they are asked for.

    Args:
        makers: One function for each sample.
        source: Where they come from, in words.
        files: The file of each; empty where that is the source.
    """

    def __init__(self, makers: Sequence[Callable[[], Feeds]], source: str, files: Sequence[str] = ()) -> None:
        self._makers = tuple(makers)
        self.source = source
        self.files = tuple(files) or (source,) * len(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, index: int) -> Feeds: ...

    @overload
    def __getitem__(self, index: slice) -> InputSamples: ...

    def __getitem__(self, index: int | slice) -> Feeds | InputSamples:
        if isinstance(index, slice):
            return self._some(range(len(self))[index])
        return self._makers[index]()

    def _some(self, positions: Iterable[int]) -> InputSamples:
        """Returns some of the samples; what is known of them is not found out again."""
        indices = tuple(positions)
        part = InputSamples([self._makers[i] for i in indices], self.source, [self.files[i] for i in indices])
        if "facts" in vars(self):
            part.facts = tuple(self.facts[i] for i in indices)
        return part

    @functools.cached_property
    def facts(self) -> tuple[Facts, ...]:
        """What each sample holds; all are made once for that.

        Raises:
            InputError: One cannot be made, or holds a value that is not finite.
        """
        return tuple(facts_of(feeds, name) for feeds, name in zip(self, self.names, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """What each is called in messages: its file, with a number where that has several."""
        counts, numbers = Counter(self.files), Counter[str]()
        names = []
        for file in self.files:
            numbers[file] += 1
            names.append(file if counts[file] == 1 else f"{file}, sample {numbers[file]} of {counts[file]}")
        return tuple(names)

    def distinct(self) -> InputSamples:
        """Returns the samples without repetitions: one that measures must be none that calibrated."""
        first: dict[str, int] = {}
        for index, fact in enumerate(self.facts):
            first.setdefault(fact.sha256, index)
        return self if len(first) == len(self) else self._some(first.values())

    def parted(self, held_out: float) -> tuple[InputSamples, InputSamples]:
        """Returns the samples to calibrate with, and those that calibration does not see.

        These are spread over the whole, but in no rhythm: sizes, or kinds, that take turns in the data are in both.

        Args:
            held_out: The share of the second; at least one sample of two.

        Raises:
            InputError: There is but one sample.
        """
        if len(self) < 2:
            raise InputError(
                f"{self.source} has {len(self)} sample",
                "Give two or more: one to calibrate with, and another, which calibration does not see, to measure on.",
            )
        count = min(len(self) - 1, max(1, round(len(self) * held_out)))
        random = np.random.default_rng(len(self))
        ends = [round(number * len(self) / count) for number in range(count + 1)]
        picks = {int(random.integers(*pair)) for pair in itertools.pairwise(ends)}
        return self._some(number for number in range(len(self)) if number not in picks), self._some(sorted(picks))

    def digest(self) -> str:
        """Returns the SHA-256 of all values, in hexadecimal."""
        return hashlib.sha256("".join(fact.sha256 for fact in self.facts).encode()).hexdigest()

    def sizes(self) -> list[dict[str, tuple[int, ...]]]:
        """Returns the different shapes of the inputs, in the order of the samples."""
        sizes: dict[tuple[Any, ...], dict[str, tuple[int, ...]]] = {}
        for fact in self.facts:
            sizes.setdefault(tuple((name, *shape) for name, shape in fact.shapes.items()), dict(fact.shapes))
        return list(sizes.values())


def read_samples(
    model: OnnxModel, data: str, shapes: Sequence[Shapes], count: int, seed: int, preprocessing: Preprocessing | None
) -> InputSamples:
    """Finds the samples that `--data` names.

    Args:
        model: The network.
        data: A folder, an .npz file, or FILE.py:FUNCTION.
        shapes: Sizes at which a function is called, in turns.
        count: How many samples a function is asked for.
        seed: Of the first of them.
        preprocessing: What becomes of images.

    Raises:
        InputError: There is nothing, or it does not fit the network.
    """
    path = Path(data)
    if path.is_dir():
        return _folder(model, path, preprocessing)
    if function_of(data) is not None or data.endswith(".py"):
        function = load_generator(data)
        calls = ((shapes[number % len(shapes)], seed + number) for number in range(count))
        return InputSamples(
            [functools.partial(_sample_of, model, function, data, at, call_seed) for at, call_seed in calls], data
        )
    return InputSamples(_of_archive(model, path, read_arrays(path)), data)


def random_samples(model: OnnxModel, shapes: Sequence[Shapes], count: int, seed: int) -> InputSamples:
    """Returns normally distributed inputs, at some sizes in turns."""
    calls = ((shapes[number % len(shapes)], seed + number) for number in range(count))
    makers = [functools.partial(random_feeds, model.inputs, at, call_seed) for at, call_seed in calls]
    return InputSamples(makers, "random data")


def _sample_of(model: OnnxModel, function: Callable[..., Any], source: str, shapes: Shapes, seed: int) -> Feeds:
    arrays = call_generator(function, source, shapes, seed)
    return checked_inputs(model.inputs, arrays, source, None)


def _folder(model: OnnxModel, folder: Path, preprocessing: Preprocessing | None) -> InputSamples:
    """Returns the samples of a folder: each .npz file has some, each .npy file and each image is one."""
    files = sample_files(folder)
    arrays = [path for path in files if path.suffix.lower() in ARRAYS]
    images = [path for path in files if path.suffix.lower() in IMAGES]
    if arrays:
        makers: list[Callable[[], Feeds]] = []
        names: list[str] = []
        for path in arrays:
            makers += _of_file(model, path)
            names += [str(path)] * (len(makers) - len(names))
        return InputSamples(makers, str(folder), names)
    if not images:
        raise InputError(
            f"{folder} has no samples", f"It may hold .npz and .npy files, or images ({', '.join(sorted(IMAGES))})."
        )
    spec = model.inputs[0] if has_planes(model) else _only_input(model, f"{folder} holds images")
    if preprocessing is None:
        raise InputError(
            f"{folder} holds images, and how they become inputs is not said",
            "Add what the network was trained with: --preprocess size=224x224,scale=1/255,mean=0.485:0.456:0.406,"
            "std=0.229:0.224:0.225",
        )
    calls = (functools.partial(_image, model, spec, path, preprocessing, i) for i, path in enumerate(images))
    return InputSamples(list(calls), str(folder), [str(path) for path in images])


def has_planes(model: OnnxModel) -> bool:
    """Whether the inputs of a model are the planes of one image."""
    images = model.images
    return images is not None and {spec.name for spec in model.inputs} == {images.name, images.chroma}


def _only_input(model: OnnxModel, what: str) -> InputSpec:
    if len(model.inputs) != 1:
        inputs = ", ".join(str(spec) for spec in model.inputs)
        raise InputError(
            f"{what}, and the model has {len(model.inputs)} inputs: {inputs}", "Give .npz files with one array each."
        )
    return model.inputs[0]


def _image(model: OnnxModel, spec: InputSpec, path: Path, preprocessing: Preprocessing, number: int) -> Feeds:
    images = model.images
    # A network that takes images preprocesses them itself.
    values = {spec.name: read_image(path, preprocessing, number)} if images is None else read_taken(path, images)
    return checked_inputs(model.inputs, values, str(path), None)


def _of_file(model: OnnxModel, path: Path) -> list[Callable[[], Feeds]]:
    """Returns the samples of an array file; the file is read again for each, so that memory stays flat."""
    count = len(_of_archive(model, path, _read(model, path)))
    return [functools.partial(_one_of, model, path, index) for index in range(count)]


def _one_of(model: OnnxModel, path: Path, index: int) -> Feeds:
    return _of_archive(model, path, _read(model, path))[index]()


def _read(model: OnnxModel, path: Path) -> dict[str, NDArray[Any]]:
    if path.suffix.lower() == ".npz":
        return read_arrays(path)
    spec = _only_input(model, f"{path} is one array")
    try:
        with open_plain(path) as file:
            shape, dtype = header_of(file)
            budget.spend("megabytes", math.prod(shape) * dtype.itemsize / 1e6, f"{path}: its array")
            file.seek(0)
            return {spec.name: np.load(file, allow_pickle=False)}
    except (TrtconvError, MemoryError):
        raise
    except Exception as error:  # Python's own tokenizer reads the header.
        raise InputError(f"{path} is not an .npy file of plain values", "Write it with numpy.save.") from error


def _of_archive(model: OnnxModel, path: Path, arrays: Mapping[str, NDArray[Any]]) -> list[Callable[[], Feeds]]:
    """Returns the samples in some arrays.

    Arrays of one dimension more than the inputs hold as many samples as their first dimension says. Others hold as many
    as fit the batch: of an array of 100 images for an input of batch 1, or of any batch, each image is one.
    """
    cut = {spec.name: _cut(spec, arrays[spec.name], path) for spec in model.inputs if spec.name in arrays}
    counts = {name: len(pieces) for name, pieces in cut.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"{path} has different numbers of samples: {counts}", "Give each input as many.")
    # Names that are no inputs, and inputs without values, are told of by the check.
    others = {name: array for name, array in arrays.items() if name not in cut}
    total = next(iter(counts.values()), 1)
    rows = ({**others, **{name: pieces[i] for name, pieces in cut.items()}} for i in range(total))
    return [functools.partial(checked_inputs, model.inputs, row, str(path), None) for row in rows]


def _cut(spec: InputSpec, array: NDArray[Any], path: Path) -> list[NDArray[Any]]:
    size = 1
    if array.ndim == len(spec.dims) and spec.dims:
        size = spec.dims[0] if isinstance(spec.dims[0], int) else 1
    elif array.ndim != len(spec.dims) + 1:
        return [array]
    # However many an array without elements says that it has.
    if size < 1 or array.size == 0 or array.shape[0] % size:
        return [array]
    if array.shape[0] // size > _MOST_SAMPLES:
        raise InputError(f"{path} has {array.shape[0] // size} samples, more than {_MOST_SAMPLES}", "Give fewer.")
    return list(array) if array.ndim > len(spec.dims) else np.split(array, array.shape[0] // size)
