"""What an engine that takes images expects."""

from __future__ import annotations

from trtconv.core.decode import Measured
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen
from trtconv.core.preprocessing import Size

HEIGHT, WIDTH = "image_height", "image_width"
"""Dimensions of an input that takes images of several sizes."""
HALVES = {HEIGHT: "image_height_half", WIDTH: "image_width_half"}
"""Dimensions of the input that takes their planes of chroma."""


@frozen
class ImageInput(Document, keys="name pixels sizes resized_to network_input difference chroma-"):
    """An input that takes images, uint8 and (batch, height, width, channels).

    Args:
        name: The input.
        pixels: How the bytes of a pixel lie, one of `core.preprocessing.PIXELS`.
        sizes: (height, width) of the images; empty: whatever the profiles take.
        resized_to: (height, width) that they are brought to in the network; None: they keep theirs.
        network_input: The tensor that holds the network's own input now.
        difference: Largest difference, in levels of 0 to 255, between that and what Pillow and NumPy make of random
            images; None where Pillow is not installed, or ONNX Runtime does not run the model.
        chroma: The input that takes their planes of chroma; None where images have no planes.
    """

    name: str
    pixels: str
    sizes: tuple[Size, ...]
    resized_to: Size | None
    network_input: str
    difference: Measured | None = None
    chroma: str | None = None

    def __str__(self) -> str:
        sizes = ", ".join(f"{height}x{width}" for height, width in self.sizes) or "sizes of the profiles"
        size = self.resized_to
        resized = "" if size is None or self.sizes == (size,) else f", resized to {size[0]}x{size[1]} in the network"
        names = self.name if self.chroma is None else f"{self.name} and {self.chroma}"
        takes = "takes" if self.chroma is None else "take planes of"
        return f"{names} {takes} images, {self.pixels} in NHWC, {sizes}{resized}"
