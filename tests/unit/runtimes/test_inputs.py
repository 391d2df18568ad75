"""Inputs of a model, by the arrays that there are."""

from __future__ import annotations

import numpy as np

from trtconv.runtimes.inputs import resized


def test_a_sample_lends_its_values_to_other_shapes() -> None:
    sample = {"x": np.arange(6, dtype=np.float32).reshape(1, 2, 3), "state": np.zeros((1, 4), np.float32)}
    made = resized(sample, {"x": (1, 3, 3), "state": (1, 8)})
    # Zeros tell no places apart: whoever asks fills such inputs otherwise.
    assert made.keys() == {"x"}
    assert (made["x"].shape, made["x"].dtype, made["x"].ravel().tolist()) == (
        (1, 3, 3),
        np.float32,
        [0, 1, 2, 3, 4, 5, 0, 1, 2],
    )
