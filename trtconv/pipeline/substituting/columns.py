"""What the outputs of a detector's end consist of: which columns of what was found, in which form."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array

_NEAR = 1e-5


class Form(str, enum.Enum):
    """How an output holds what was found in several images."""

    COUNT = "count"
    """How many there are of each image."""
    PADDED = "padded"
    """(images, most, ...)."""
    SINGLE = "single"
    """(most, ...), of the only image."""
    ROWS = "rows"
    """(all that were found, ...), image by image."""


class Column(enum.IntEnum):
    """What is known of each detection, by its place in `Detections.table`."""

    X1 = 0
    Y1 = 1
    X2 = 2
    Y2 = 3
    SCORE = 4
    CLASS = 5
    IMAGE = 6


@frozen
class Layout:
    """An output.

    Args:
        form: How it holds the detections.
        columns: What of them it has; empty for the count.
        pads: What stands in each column where there is no detection.
        flat: Whether it has no axis for the columns.
        dtype: Its type.
        shape: Of a count: that of the output behind the images, as ones; -1 stands for the images.
    """

    form: Form
    columns: tuple[int, ...]
    pads: tuple[float, ...]
    flat: bool
    dtype: str
    shape: tuple[int, ...] = ()


@frozen
class Detections:
    """What a plugin found: counts (images,), and a table (images, most, columns)."""

    counts: Array
    table: Array

    @property
    def present(self) -> Array:
        """Where of (images, most) there is a detection."""
        mask: Array = np.arange(self.table.shape[1]) < self.counts[:, None]
        return mask

    @classmethod
    def of(cls, outputs: Sequence[Array]) -> Detections:
        """Returns what EfficientNMS_TRT returned."""
        counts, boxes, scores, kinds = outputs
        images = np.broadcast_to(np.arange(len(boxes))[:, None], scores.shape)
        table = np.concatenate([boxes, scores[..., None], kinds[..., None], images[..., None]], -1).astype(np.float64)
        return cls(counts.reshape(-1), table)


def layout_of(outputs: Sequence[Array], runs: Sequence[Detections]) -> Layout | None:
    """Returns what an output consists of, which is the same in every run; None where it is something else."""
    if any(output.dtype != outputs[0].dtype or output.ndim != outputs[0].ndim for output in outputs):
        return None
    for form in Form:
        layout = _count(outputs, runs) if form is Form.COUNT else _table(form, outputs, runs)
        if layout is not None:
            return layout
    return None


def _count(outputs: Sequence[Array], runs: Sequence[Detections]) -> Layout | None:
    for output, run in zip(outputs, runs, strict=True):
        if output.size != len(run.counts) or not (output.reshape(-1) == run.counts).all():
            return None
    shape = (-1,) * min(1, outputs[0].ndim) + (1,) * (outputs[0].ndim - 1)
    if any(
        output.shape != (*((len(run.counts),) * min(1, output.ndim)), *shape[1:])
        for output, run in zip(outputs, runs, strict=True)
    ):
        return None
    return Layout(Form.COUNT, (), (), True, str(outputs[0].dtype), shape)


def _table(form: Form, outputs: Sequence[Array], runs: Sequence[Detections]) -> Layout | None:
    rank = 1 if form in (Form.SINGLE, Form.ROWS) else 2
    flat = outputs[0].ndim == rank
    if outputs[0].ndim not in (rank, rank + 1):
        return None
    inside, there, own = [], [], []
    for output, run in zip(outputs, runs, strict=True):
        images, most = run.table.shape[:2]
        rows = {Form.PADDED: (images, most), Form.SINGLE: (most,), Form.ROWS: (int(run.counts.sum()),)}[form]
        if output.shape[:rank] != rows or (form is Form.SINGLE and images != 1):
            return None
        wide = (output[..., None] if flat else output).astype(np.float64)
        mask = run.present if form is not Form.SINGLE else run.present[0]
        inside.append(wide if form is Form.ROWS else wide[mask])
        there.append(wide[:0] if form is Form.ROWS else wide[~mask])
        own.append(run.table[run.present])
    if len({array.shape[-1] for array in inside}) != 1:
        return None
    values, pads, table = np.concatenate(inside), np.concatenate(there), np.concatenate(own)
    if not len(values) or values.shape[-1] > 64:
        return None
    columns = [_column(values[:, number], table) for number in range(values.shape[1])]
    blank = pads[:1] if len(pads) else np.zeros((1, values.shape[1]))
    if any(column is None for column in columns) or not (pads == blank).all():
        return None
    order = tuple(int(column) for column in columns if column is not None)
    return Layout(form, order, tuple(blank[0].tolist()), flat, str(outputs[0].dtype))


def _column(values: Array, table: Array) -> Column | None:
    for column in Column:
        own = table[:, column]
        if np.abs(values - own).max() <= _NEAR * max(np.abs(own).max(), 1e-6):
            return column
    return None
