"""How images become inputs of a network, as the user states it: `--preprocess` and `--images`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen

EXAMPLE = "size=224x224,scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"
CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1}
"""What a network takes, and in how many channels."""
PLANES = {"nv12": (0.299, 0.114), "nv12-bt709": (0.2126, 0.0722)}
"""Images in a plane of luma and one of chroma, an input each, and how much of luma red and blue are."""
PIXELS = {"rgb": 3, "bgr": 3, "rgba": 4, "bgra": 4, "gray": 1, **dict.fromkeys(PLANES, 1)}
"""How the bytes of a pixel lie in an image that an engine takes, and how many they are (of planes, in that of luma)."""
LAYOUTS = ("nchw", "nhwc")
FITS = ("stretch", "crop", "letterbox")
FILTERS = ("bicubic", "bilinear", "linear", "nearest")
"""Pillow's, which average over all that a pixel of a smaller image stands for; "linear" is OpenCV's, of four pixels."""
_WORDS = {"color": tuple(CHANNELS), "layout": LAYOUTS, "filter": FILTERS, "pixels": tuple(PIXELS)}
_SETTINGS = ("size", "image", "scale", "mean", "std", *FITS, *_WORDS, "input")
_MOST_SIDE = 16384
_MOST_SIZES = 32

Size = tuple[int, int]
"""Height and width in pixels."""


@frozen
class Preprocessing:
    """How an image becomes an input: resized, times `scale`, minus `mean`, over `std`.

    Args:
        sizes: (height, width) of the input, one for each image in turns; empty keeps that of the image.
        scale: What the values, 0 to 255, are multiplied with.
        mean: Subtracted afterwards; one value, or one a channel.
        std: Divided by at last; one value, or one a channel.
        color: What the network takes, one of `CHANNELS`.
        layout: How the network takes it, one of `LAYOUTS`.
        fit: What becomes of an image of other proportions: stretched; scaled until it covers the size and cut in the
            middle; or scaled until it fits, with `fill` around.
        fill: Value, 0 to 255, of what a letterbox adds.
        filter: One of `FILTERS`.
        images: (height, width) of the images that an engine takes; empty: those of the input.
        pixels: How their bytes lie, one of `PIXELS`.
        input: The input that takes images; empty: the only one that can.
    """

    sizes: tuple[Size, ...] = ()
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    color: str = "rgb"
    layout: str = "nchw"
    fit: str = "stretch"
    fill: float = 0.0
    filter: str = "bicubic"
    images: tuple[Size, ...] = ()
    pixels: str = "rgb"
    input: str = ""

    def __str__(self) -> str:
        """Returns what is not as usual, as it is written."""
        usual, words = Preprocessing(), []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != getattr(usual, field.name) and field.name != "fill":
                words.append(_WRITERS.get(field.name, lambda value, key=field.name: f"{key}={value}")(value))
        if self.fit == "letterbox" and self.fill:
            words[words.index("letterbox")] = f"letterbox={self.fill:g}"
        return ",".join(words)

    to_json = __str__

    @classmethod
    def from_json(cls, value: Any) -> Preprocessing:
        """Reads the text that `to_json` makes."""
        return parse_images(str(value))


def _listed(sizes: tuple[Size, ...]) -> str:
    return "+".join(f"{height}x{width}" for height, width in sizes)


_WRITERS: dict[str, Any] = {
    "sizes": lambda sizes: f"size={_listed(sizes)}",
    "images": lambda sizes: f"image={_listed(sizes)}",
    "scale": lambda scale: f"scale={scale!r}",
    "mean": lambda values: f"mean={':'.join(map(repr, values))}",
    "std": lambda values: f"std={':'.join(map(repr, values))}",
    "fit": str,
}
"""Field to what writes it where that is not "FIELD=VALUE"."""
_OF_ENGINES = ("image", "pixels", "input")


def parse_preprocessing(text: str) -> Preprocessing:
    """Reads `--preprocess`, as in "size=224x224+256x256,scale=1/255,mean=0.5,std=0.5,color=bgr,layout=nhwc,crop".

    Raises:
        InputError: It says something else.
    """
    keys = [part.partition("=")[0].strip() for part in text.split(",")]
    wrong = [key for key in keys if key in _OF_ENGINES]
    if wrong:
        raise InputError(f"--preprocess: {wrong[0]} is about an engine that takes images", "It goes with build alone.")
    return _parsed(text, "--preprocess")


def parse_images(text: str, flag: str = "--images") -> Preprocessing:
    """Reads what `build` is told of the images that the engine is to take.

    Raises:
        InputError: It says something else, or something that an engine cannot do.
    """
    parsed = _parsed(text, flag)
    if len(parsed.sizes) > 1:
        raise InputError(f"{flag}: the network has one size", "Name one size=; image=HxW+HxW lists those of images.")
    return parsed


def _parsed(text: str, flag: str) -> Preprocessing:
    settings: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = part.partition("=")
        try:
            setting = dict(_setting(key, value))
            if not settings.keys().isdisjoint(setting):
                raise ValueError("it is said twice")
            settings |= setting
        except (ValueError, ArithmeticError) as error:
            raise InputError(f"{flag} {part!r}: {error}", f"Write {flag} {EXAMPLE}.") from error
    return Preprocessing(**settings)


def _setting(key: str, value: str) -> Iterator[tuple[str, Any]]:
    if key in ("size", "image"):
        yield "sizes" if key == "size" else "images", _sizes(value, alike=key == "size")
    elif key == "scale":
        yield key, _scale(value)
    elif key in ("mean", "std"):
        numbers = tuple(_finite(float(number)) for number in value.split(":"))
        if key == "std" and 0.0 in numbers:
            raise ValueError("a standard deviation of 0")
        yield key, numbers
    elif (key in ("crop", "stretch") and not value) or key == "letterbox":
        yield "fit", key
        if value:
            yield "fill", _byte(float(value))
    elif key in _WORDS:
        if value not in _WORDS[key]:
            raise ValueError(f"not one of {', '.join(_WORDS[key])}")
        yield key, value
    elif key == "input" and value:
        yield key, value
    else:
        raise ValueError(f"there is no such setting; there are {', '.join(_SETTINGS)}")


def _sizes(text: str, *, alike: bool) -> tuple[Size, ...]:
    sizes = tuple(_size(part) for part in text.split("+"))
    if not alike and (len(set(sizes)) < len(sizes) or len(sizes) > _MOST_SIZES):
        raise ValueError(f"a size comes twice, or there are more than {_MOST_SIZES}")
    return sizes


def _scale(text: str) -> float:
    # Loaded only here: few models take images, and it takes a hundredth of a small build.
    from fractions import Fraction

    try:
        scale = _finite(float(Fraction(text)))
    except ZeroDivisionError as error:
        raise ValueError("a division by 0") from error
    if scale == 0:
        raise ValueError("a scale of 0, which makes all images the same")
    return scale


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def _byte(number: float) -> float:
    if not 0 <= number <= 255:
        raise ValueError("not 0 to 255")
    return number


def _size(text: str) -> Size:
    height, _, width = text.partition("x")
    if not all(side.isascii() and side.isdecimal() and 0 < int(side[:9]) <= _MOST_SIDE for side in (height, width)):
        raise ValueError(f"{text!r} is not HEIGHTxWIDTH, each 1 to {_MOST_SIDE}")
    return int(height), int(width)


@frozen
class ImagePlacement:
    """Where an image comes to lie in an input: scaled, then cut or surrounded.

    Args:
        scaled: Size that it is scaled to.
        top: Rows of the input above it; negative: as many rows of it are cut off.
        left: Columns to its left, likewise.
    """

    scaled: Size
    top: int
    left: int


def placement(fit: str, image: Size, size: Size) -> ImagePlacement:
    """Returns where an image comes to lie.

    Args:
        fit: One of `FITS`.
        image: Its size.
        size: That of the input.
    """
    if fit == "stretch":
        return ImagePlacement(size, 0, 0)
    ratios = size[0] / image[0], size[1] / image[1]
    if fit == "crop":
        scaled = [max(size[axis], round(image[axis] * max(ratios))) for axis in (0, 1)]
    else:
        scaled = [min(size[axis], max(1, round(image[axis] * min(ratios)))) for axis in (0, 1)]
    # Of an odd difference the larger half is at the end.
    top, left = (
        -((scaled[axis] - size[axis]) // 2) if fit == "crop" else (size[axis] - scaled[axis]) // 2 for axis in (0, 1)
    )
    return ImagePlacement((scaled[0], scaled[1]), top, left)
