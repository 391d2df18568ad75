"""Images as inputs of a network, with a preprocessing that the user states."""

from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core import budget
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.frozen import frozen
from trtconv.core.reading import open_plain

_EXAMPLE = "--preprocess size=224x224,scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is looked for in a file, whatever its name says: others of Pillow's readers start programs, as Ghostscript."""
_BYTES_A_PIXEL = 3 * 5
"""Of an image as it is read, and as float32."""
_CHANNELS = {"rgb": "RGB", "bgr": "RGB", "gray": "L"}
_LAYOUTS = ("nchw", "nhwc")


@frozen
class Preprocessing:
    """How an image becomes an input: resized, times `scale`, minus `mean`, over `std`.

    Args:
        sizes: (height, width), one for each image in turns; empty keeps that of the image.
        scale: What the values, 0 to 255, are multiplied with.
        mean: Subtracted afterwards; one value, or one a channel.
        std: Divided by at last; one value, or one a channel.
        color: "rgb", "bgr" or "gray".
        layout: "nchw" or "nhwc".
        crop: Whether an image is scaled until it covers the size and then cut in the middle, rather than stretched.
    """

    sizes: tuple[tuple[int, int], ...] = ()
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    color: str = "rgb"
    layout: str = "nchw"
    crop: bool = False


def parse_preprocessing(text: str) -> Preprocessing:
    """Reads `--preprocess`, as in "size=224x224+256x256,scale=1/255,mean=0.5,std=0.5,color=bgr,layout=nhwc,crop".

    Raises:
        InputError: It says something else.
    """
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        try:
            found |= _setting(key, value)
        except (ValueError, ArithmeticError) as error:
            raise InputError(f"--preprocess {part.strip()!r}: {error}", f"Write {_EXAMPLE}.") from error
    return Preprocessing(**found)


def _setting(key: str, value: str) -> dict[str, Any]:
    if key == "size":
        return {"sizes": tuple(_size(each) for each in value.split("+"))}
    if key == "scale":
        return {"scale": float(Fraction(value))}
    if key in ("mean", "std"):
        numbers = tuple(float(each) for each in value.split(":"))
        if key == "std" and 0.0 in numbers:
            raise ValueError("a standard deviation of 0")
        return {key: numbers}
    if key == "crop" and not value:
        return {"crop": True}
    for name, choices in (("color", tuple(_CHANNELS)), ("layout", _LAYOUTS)):
        if key == name:
            if value not in choices:
                raise ValueError(f"not one of {', '.join(choices)}")
            return {name: value}
    raise ValueError("there is no such setting")


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise ValueError("not HEIGHTxWIDTH")
    return int(height), int(width)


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
            image = _of_8_bits(opened).convert(_CHANNELS[preprocessing.color])
    except (TrtconvError, MemoryError):
        raise
    except Exception as error:  # Each format has its own ways to fail.
        raise InputError(f"{path} cannot be read as an image: {error}", "Take it out of the folder.") from error
    if preprocessing.sizes:
        height, width = preprocessing.sizes[number % len(preprocessing.sizes)]
        image = _resized(image, height, width, preprocessing.crop, path)
    return as_input(np.asarray(image), preprocessing, str(path))


def _of_8_bits(image: Any) -> Any:
    """Returns an image whose values are 0 to 255; Pillow itself would make all that is brighter white."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        from PIL import Image

        return Image.fromarray((np.asarray(image).astype(np.float32) / 257).round().astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("its values have 32 bits, and what stands for white is not known")
    return image


def _resized(image: Any, height: int, width: int, crop: bool, path: Path) -> Any:
    if not crop:
        return image.resize((width, height))
    ratio = max(width / image.width, height / image.height)
    covering = max(width, round(image.width * ratio)), max(height, round(image.height * ratio))
    # Of a line of pixels there is nearly nothing to be cut off at one side, and nearly all at the other.
    budget.spend("megabytes", covering[0] * covering[1] * _BYTES_A_PIXEL / 1e6, f"{path}: the image, scaled,")
    image = image.resize(covering)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


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
