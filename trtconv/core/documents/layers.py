"""The layers of a parsed network as a report keeps them: what a page shows where no engine can be loaded."""

from __future__ import annotations

from trtconv.core.encode import Document
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen

_MOST = 1e30
"""Above all multiplications and bytes of a network, and far below where sums of them become infinite."""


@frozen
class TableTensor(Document):
    """A tensor.

    Args:
        name: Its name.
        dtype: Its type, as NumPy calls it.
        shape: Its sizes: numbers, or what they are of the model's dimensions ("height/2"), "?" where not known; None
            where not even the rank is.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None


@frozen
class TableLayer(Document):
    """A layer.

    Args:
        name: Its name.
        kind: Its type, such as "CONVOLUTION".
        node: Name of the ONNX node that it came from.
        inputs: Positions of its tensors; None where an optional one is absent.
        outputs: The same.
        products: Multiplications of products of matrices and convolutions, at opt of each profile; None where sizes are
            not known.
        moved: Bytes of its inputs, outputs and weights, each read or written once; 0 of a layer that only looks at
            its input otherwise; of a `joined` one without that input, which need not be written. The same profiles.
        joined: Position of an input that only it reads, element by element, so that builders make it part of the layer
            that makes that; None where there is none.
    """

    name: str
    kind: str
    node: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    products: tuple[float | None, ...]
    moved: tuple[float | None, ...]
    joined: int | None = None


@frozen
class LayerTable(Document):
    """The layers of a network, in its order, that depend on the values of its inputs.

    Args:
        tensors: Those of its layers.
        layers: The layers.
        aside: How many layers were left out that are constants, or compute constants and sizes.
        left: How many others were: of very large networks the first are kept.
    """

    tensors: tuple[TableTensor, ...]
    layers: tuple[TableLayer, ...]
    aside: int = 0
    left: int = 0

    def __post_init__(self) -> None:
        ends = {n for layer in self.layers for n in (*layer.inputs, *layer.outputs, layer.joined) if n is not None}
        if not all(0 <= end < len(self.tensors) for end in ends):
            raise InputError("its layers have tensors that it does not list", "Build the engine again.")
        counts = {len(column) for layer in self.layers for column in (layer.products, layer.moved)}
        if len(counts) > 1 or 0 in counts:
            raise InputError("its layers are not of the same profiles", "Build the engine again.")
        amounts = [amount or 0 for layer in self.layers for amount in (*layer.products, *layer.moved)]
        if not all(0 <= amount <= _MOST for amount in amounts):
            raise InputError("its layers have amounts that no network has", "Build the engine again.")
