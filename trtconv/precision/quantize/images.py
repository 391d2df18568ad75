"""Images as inputs of a network, with a preprocessing that the user states."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core import budget
from trtconv.core.documents.images import ImageInput
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.preprocessing import Preprocessing, Size, placement
from trtconv.core.reading import open_plain
from trtconv.graph.planes import of_rgb, to_rgb
from trtconv.graph.resampling import resampling

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is looked for in a file, whatever its name says: others of Pillow's readers start programs, as Ghostscript."""
_BYTES_A_PIXEL = 3 * 5
"""Of an image as it is read, and as float32."""
_AS_IT_IS = Preprocessing()
_MODES = {"rgb": "RGB", "bgr": "RGB", "gray": "L"}
"""What Pillow calls what a network takes."""
_MODES_OF_PIXELS = {"rgb": "RGB", "bgr": "RGB", "rgba": "RGBA", "bgra": "RGBA", "gray": "L"}
"""What Pillow calls what an engine takes, but for the order."""


def read_image(path: Path, preprocessing: Preprocessing, number: int) -> NDArray[np.float32]:
    """Reads an image as an input of batch 1.

    Args:
        path: The file.
        preprocessing: What becomes of it.
        number: Its place among the images, which decides its size where there are several.

    Returns:
        (1, channels, height, width), or (1, height, width, channels) as the layout says.

    Raises:
        InputError: It cannot be read.
        EnvironmentMissing: Pillow is not installed.
    """
    image = _opened(path, _MODES[preprocessing.color])
    size = preprocessing.sizes[number % len(preprocessing.sizes)] if preprocessing.sizes else None
    return _of_image(image, size, preprocessing, str(path))


def of_pixels(pixels: NDArray[np.uint8], preprocessing: Preprocessing, size: Size | None) -> NDArray[np.float32]:
    """Returns what a network's input is of an image that an engine takes, by Pillow and NumPy alone.

    Args:
        pixels: (height, width, channels), as `preprocessing.pixels` says.
        preprocessing: What becomes of it.
        size: Size that it is brought to; None: its own.

    Raises:
        ImportError: Pillow is not installed.
    """
    from PIL import Image

    order = preprocessing.pixels
    if order.startswith("bgr"):
        pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]
    image = Image.fromarray(np.ascontiguousarray(pixels[..., 0] if order == "gray" else pixels[..., :3]))
    return _of_image(image.convert(_MODES[preprocessing.color]), size, preprocessing, "the image")


def of_planes(
    luma: NDArray[np.uint8], chroma: NDArray[np.uint8], preprocessing: Preprocessing, size: Size | None
) -> NDArray[np.float32]:
    """Returns what a network's input is of the planes of an image, by Pillow and NumPy alone; see `of_pixels`.

    Args:
        luma: (height, width, 1).
        chroma: (height / 2, width / 2, 2).
        preprocessing: What becomes of it.
        size: Size that it is brought to; None: its own.
    """
    matrix, added = to_rgb(preprocessing.pixels)
    wide = chroma.repeat(2, axis=0).repeat(2, axis=1)
    colors = np.clip(np.concatenate([luma, wide], axis=2).astype(np.float32) @ matrix + added, 0, 255)
    if preprocessing.color == "gray":
        colors = colors @ np.array([[0.299], [0.587], [0.114]], np.float32)
    return as_input(colors if size is None else _resized(colors, size, preprocessing, "the image"), preprocessing, "")


def read_taken(path: Path, image: ImageInput, preprocessing: Preprocessing = _AS_IT_IS) -> dict[str, NDArray[np.uint8]]:
    """Reads an image as the inputs of an engine that takes images; see `read_pixels`."""
    if image.chroma is None:
        return {image.name: read_pixels(path, image.pixels, image.sizes, preprocessing)}
    luma, chroma = of_rgb(read_pixels(path, "rgb", image.sizes, preprocessing)[0], image.pixels)
    return {image.name: luma[np.newaxis], image.chroma: chroma[np.newaxis]}


def _of_image(image: Any, size: Size | None, preprocessing: Preprocessing, source: str) -> NDArray[np.float32]:
    pixels = np.asarray(image)
    return as_input(pixels if size is None else _resized(pixels, size, preprocessing, source), preprocessing, source)


def read_pixels(
    path: Path, order: str, sizes: Sequence[Size], preprocessing: Preprocessing = _AS_IT_IS
) -> NDArray[np.uint8]:
    """Reads an image as the bytes that an engine takes.

    Args:
        path: The file.
        order: How the bytes of a pixel lie, one of `PIXELS`.
        sizes: Which sizes the engine takes; empty: any.
        preprocessing: How it is resized before; all else is in the engine.

    Returns:
        (1, height, width, channels).

    Raises:
        InputError: It cannot be read, has another size, or is to be preprocessed twice.
        EnvironmentMissing: Pillow is not installed.
    """
    resized = {name: getattr(preprocessing, name) for name in ("sizes", "fit", "fill", "filter")}
    if preprocessing != dataclasses.replace(_AS_IT_IS, **resized):
        raise InputError(
            f"the engine preprocesses images itself, and --preprocess {preprocessing} would do so twice",
            "Leave all of it out but size, crop, letterbox and filter.",
        )
    pixels = np.asarray(_opened(path, _MODES_OF_PIXELS[order]))
    if preprocessing.sizes:
        pixels = _resized(pixels, preprocessing.sizes[0], preprocessing, str(path)).round().astype(np.uint8)
    size = pixels.shape[0], pixels.shape[1]
    if sizes and size not in sizes:
        choices = ", ".join(f"{height}x{width}" for height, width in sizes)
        raise InputError(
            f"{path} has {size[0]}x{size[1]} pixels (height x width), and the engine takes {choices}",
            "Resize it with --preprocess size=HxW, or build an engine that does: --images image=HxW+HxW lists sizes.",
        )
    pixels = pixels.reshape(1, *size, -1)
    if order.startswith("bgr"):
        pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[3]]]
    return np.ascontiguousarray(pixels)


def _opened(path: Path, mode: str) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise EnvironmentMissing(
            f"{path} is an image, and Pillow, which reads images, is not installed",
            "pip install pillow, or give .npz files.",
        ) from error
    try:
        with warnings.catch_warnings(), open_plain(path) as file, Image.open(file, formats=_FORMATS) as opened:
            # About sizes, which are spent, and about transparency, which is left out.
            warnings.simplefilter("ignore")
            budget.spend("megabytes", opened.width * opened.height * _BYTES_A_PIXEL / 1e6, f"{path}: the image")
            image = _of_8_bits(opened).convert(mode)
    except (TrtconvError, MemoryError):
        raise
    except Exception as error:  # Each format has its own ways to fail.
        raise InputError(f"{path} cannot be read as an image: {error}", "Take it out of the folder.") from error
    return image


def _of_8_bits(image: Any) -> Any:
    """Returns an image whose values are 0 to 255; Pillow itself would make all that is brighter white."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        from PIL import Image

        return Image.fromarray((np.asarray(image).astype(np.float32) / 257).round().astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("its values have 32 bits, and what stands for white is not known")
    return image


def _resized(image: NDArray[Any], size: Size, preprocessing: Preprocessing, source: str) -> NDArray[np.float32]:
    """Resizes without rounding in between, as an engine that takes images does: (height, width) or with channels."""
    from PIL import Image

    place = placement(preprocessing.fit, (image.shape[0], image.shape[1]), size)
    # Of a line of pixels there is nearly nothing to be cut off at one side, and nearly all at the other.
    budget.spend("megabytes", place.scaled[0] * place.scaled[1] * _BYTES_A_PIXEL / 1e6, f"{source}: the image, scaled,")
    planes = np.asarray(image, np.float32).reshape(*image.shape[:2], -1)
    result = np.full((*size, planes.shape[2]), preprocessing.fill, np.float32)
    (top, bottom), (left, right) = (
        (max(0, at), at + n) for at, n in zip((place.top, place.left), place.scaled, strict=True)
    )
    for channel in range(planes.shape[2]):
        if preprocessing.filter == "linear":
            rows, columns = (
                resampling("linear", side, target) for side, target in zip(planes.shape[:2], place.scaled, strict=True)
            )
            scaled = rows @ (planes[..., channel] @ columns.T)
        else:
            plane = Image.fromarray(np.ascontiguousarray(planes[..., channel]))
            method = Image.Resampling[preprocessing.filter.upper()]
            scaled = np.asarray(plane.resize(place.scaled[::-1], method))
        scaled = scaled[max(0, -place.top) :, max(0, -place.left) :]
        result[top:bottom, left:right, channel] = scaled[: size[0] - top, : size[1] - left]
    return np.clip(result, 0, 255)


def as_input(pixels: NDArray[Any], preprocessing: Preprocessing, source: str) -> NDArray[np.float32]:
    """Returns pixels, 0 to 255 and (height, width) or (height, width, channels), as an input of batch 1.

    Raises:
        InputError: There are other numbers of channels than of means or standard deviations.
    """
    values = pixels.astype(np.float32).reshape(*pixels.shape[:2], -1)
    if preprocessing.color == "bgr":
        values = values[..., ::-1]
    for name, numbers in (("mean", preprocessing.mean), ("std", preprocessing.std)):
        if len(numbers) not in (1, values.shape[2]):
            raise InputError(
                f"{source} has {values.shape[2]} channels, and --preprocess {len(numbers)} values of {name}",
                "Give one value, or one for each channel; color=gray makes one channel.",
            )
    scaled = values * np.float32(preprocessing.scale) - np.array(preprocessing.mean, np.float32)
    result = (scaled / np.array(preprocessing.std, np.float32)).astype(np.float32)[np.newaxis]
    return np.ascontiguousarray(result if preprocessing.layout == "nhwc" else result.transpose(0, 3, 1, 2))
