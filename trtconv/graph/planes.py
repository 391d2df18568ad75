"""Images as video has them: a plane of luma, and one of chroma with half as many rows and columns (NV12)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trtconv.core.preprocessing import PLANES

_BLACK, _LUMA_LEVELS, _GRAY, _CHROMA_LEVELS = 16.0, 219.0, 128.0, 224.0
"""Levels of bytes: of black, from black to white, of no color, and from one end of a color to the other."""


def to_rgb(kind: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns what makes red, green and blue, 0 to 255, of bytes of luma, blue difference and red difference.

    Source: ITU-R BT.601 and BT.709, limited range, as video has it.

    Args:
        kind: One of `core.preprocessing.PLANES`.

    Returns:
        A matrix (3, 3), by whose columns bytes are multiplied, and what is added then (3).
    """
    red, blue = PLANES[kind]
    green = 1 - red - blue
    luma, chroma = 255 / _LUMA_LEVELS, 2 * 255 / _CHROMA_LEVELS
    matrix = np.array(
        [
            [luma, luma, luma],
            [0, -chroma * (1 - blue) * blue / green, chroma * (1 - blue)],
            [chroma * (1 - red), -chroma * (1 - red) * red / green, 0],
        ]
    )
    added = -np.array([_BLACK, _GRAY, _GRAY]) @ matrix
    return matrix.astype(np.float32), added.astype(np.float32)


def of_rgb(pixels: NDArray[np.uint8], kind: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns the planes of an image; chroma is the mean of four pixels.

    Args:
        pixels: Red, green and blue, (height, width, 3), of even sides.
        kind: One of `core.preprocessing.PLANES`.

    Returns:
        Luma (height, width, 1), and chroma (height / 2, width / 2, 2).
    """
    red, blue = PLANES[kind]
    colors = pixels.astype(np.float64) / 255
    luma = colors @ np.array([red, 1 - red - blue, blue])
    differences = [(colors[..., 2] - luma) / (1 - blue), (colors[..., 0] - luma) / (1 - red)]
    height, width = luma.shape
    means = np.stack(differences, axis=-1).reshape(height // 2, 2, width // 2, 2, 2).mean(axis=(1, 3))
    return (_as_bytes(_BLACK + _LUMA_LEVELS * luma[..., np.newaxis]), _as_bytes(_GRAY + _CHROMA_LEVELS / 2 * means))


def _as_bytes(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.asarray(np.clip(values.round(), 0, 255), np.uint8)
