"""Images in the network beside images in front of it: the same numbers, by another way."""

from __future__ import annotations

import dataclasses

import numpy as np

from trtconv.core.documents.images import ImageInput
from trtconv.core.errors import Bug
from trtconv.core.preprocessing import PIXELS, Preprocessing
from trtconv.graph.images import front_of
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.images import of_pixels, of_planes
from trtconv.runtimes.onnxruntime import session

_ANY = ((48, 64),)
"""Size of images where the network takes any."""
_ROUNDED, _EXACT = 0.6, 0.02
"""Levels of 0 to 255 that may be between both: Pillow rounds what is gray."""


def compared_images(model: OnnxModel, image: ImageInput) -> ImageInput:
    """Runs what is in front of a network on random images, beside what Pillow and NumPy make of them.

    Args:
        model: The network with it, as it was loaded.
        image: The input.

    Returns:
        The input, with the largest difference; as it is where Pillow or ONNX Runtime cannot tell.

    Raises:
        Bug: They differ.
    """
    how = model.interface.images or Preprocessing()
    ran = session(OnnxModel(front_of(model, image), model.path))
    if isinstance(ran, str):
        return image  # ONNX Runtime is older than the model.
    random, largest = np.random.default_rng(0), 0.0
    # Levels that a difference of 1 stands for, channel by channel.
    steps = np.abs(np.array(how.std, np.float64)) / max(abs(how.scale), 1e-30)
    for size in image.sizes or _ANY:
        pixels = random.integers(0, 256, (*size, PIXELS[how.pixels]), np.uint8)
        feeds = {image.name: pixels[np.newaxis]}
        try:
            if image.chroma is None:
                expected = of_pixels(pixels, how, image.resized_to)
            else:
                chroma = random.integers(0, 256, (size[0] // 2, size[1] // 2, 2), np.uint8)
                feeds[image.chroma] = chroma[np.newaxis]
                expected = of_planes(pixels, chroma, how, image.resized_to)
        except ImportError:
            return image
        (result,) = ran.run(None, feeds)
        difference = np.abs(result.astype(np.float64) - expected)
        levels = difference * (steps.reshape(-1, 1, 1) if how.layout == "nchw" else steps)
        largest = max(largest, float(levels.max()))
    grays = how.color == "gray" and how.pixels != "gray"
    # Of float32, however large a mean is.
    rounding = 1e-5 * float((np.abs(how.mean) * steps).max())
    if largest > (_ROUNDED if grays else _EXACT) + rounding:
        raise Bug(f"images become other inputs in the network: by {largest:g} levels of 255", "Please report it.")
    return dataclasses.replace(image, difference=round(largest, 6))
