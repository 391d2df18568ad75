"""What a run of a network costs, counted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from trtconv.runtimes.proof.cost import products
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

ELEMENT = 64
"""Products that one element of a result counts as."""


def network(
    kind: str, shapes: Sequence[tuple[int, ...] | None], outputs: int = 1, values: dict[str, Any] | None = None
) -> ReadNetwork:
    """Returns a network of one layer; its last tensors are its outputs."""
    tensors = tuple(ReadTensor(number, f"t{number}", "float32", shape) for number, shape in enumerate(shapes))
    first = len(shapes) - outputs
    numbers = tuple(range(len(shapes)))
    layer = ReadLayer(0, "layer", kind, (*numbers[:first], None), numbers[first:], values or {})
    return ReadNetwork(tensors, (layer,), numbers[:first], numbers[first:])


def conv(groups: int) -> dict[str, Any]:
    return {"num_output_maps": 6, "kernel_size_nd": (3, 5), "num_groups": groups}


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_multiply_at_each_place_of_the_result_and_deconvolutions_of_the_source(groups: int) -> None:
    source, result = (2, 4, 10, 20), (2, 6, 9, 7)
    window = 4 * 6 * 15 / groups
    of_result = ELEMENT * 2 * 6 * 9 * 7
    assert products(network("CONVOLUTION", [source, result], values=conv(groups)), {}) == 2 * 63 * window + of_result
    assert products(network("DECONVOLUTION", [source, result], values=conv(groups)), {}) == 2 * 200 * window + of_result


@pytest.mark.parametrize(("op", "source"), [("NONE", (3, 5, 7)), ("TRANSPOSE", (3, 7, 5))])
def test_products_of_matrices_multiply_along_what_they_share(op: str, source: tuple[int, ...]) -> None:
    found = products(network("MATRIX_MULTIPLY", [source, (3, 7, 2), (3, 5, 2)], values={"op0": op}), {})
    assert found == 3 * 5 * 2 * (7 + ELEMENT)
    found = products(network("MATRIX_MULTIPLY", [source[1:], (7, 2), (5, 2)], values={"op0": op}), {})
    assert found == 5 * 2 * (7 + ELEMENT)


def test_a_product_with_a_vector_counts_each_element_once() -> None:
    found = products(network("MATRIX_MULTIPLY", [(7,), (7, 2), (2,)], values={"op0": "VECTOR"}), {})
    assert found == 2 * (1 + ELEMENT)


def test_all_results_are_written_and_constants_are_not() -> None:
    assert products(network("SPLIT", [(2, 9), (2, 4), (2, 5)], outputs=2), {}) == ELEMENT * 18
    assert products(network("CONSTANT", [(2, 9)]), {}) == 0
    assert products(network("ELEMENTWISE", [(2, 1), (2, 3)]), {}) == ELEMENT * 6


@pytest.mark.parametrize(
    ("shape", "known", "counted"),
    [
        ((2, 3), {}, 6),
        ((2, 3), {"t1": (9, 9)}, 6),
        ((-1, 3), {"t1": (4, 3)}, 12),
        (None, {"t1": (4, 3)}, 12),
        ((-1, 3), {}, 0),
        (None, {}, 0),
        ((-1, 3), {"t1": (None, 3)}, 0),
        ((-1, 3), {"t0": (4, 3)}, 0),
    ],
)
def test_sizes_that_are_not_known_count_nothing(
    shape: tuple[int, ...] | None, known: dict[str, Sequence[int | None]], counted: int
) -> None:
    assert products(network("IDENTITY", [(1,), shape]), known) == ELEMENT * counted
    assert products(network("CONVOLUTION", [None, None], values=conv(1)), {}) == 0
    assert products(network("DECONVOLUTION", [None, None], values=conv(1)), {}) == 0


def test_layers_add_up() -> None:
    one = network("IDENTITY", [(1,), (2, 3)])
    two = ReadNetwork(one.tensors, (*one.layers, *one.layers), one.inputs, one.outputs)
    assert products(two, {}) == 2 * products(one, {})
