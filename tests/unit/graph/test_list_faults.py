"""What is wrong with lists of a node, as far as its inputs' shapes are known: a table of each operator's lists."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import helper

from trtconv.graph.list_checker import list_faults, lists_of

IMAGE = (1, 3, 8, 8)
KERNELS = (4, 3, 3, 3)
ROW = (2, 1, 1, None)

FITTING: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("Conv", {"strides": [1, 1], "pads": [0] * 4}, [IMAGE, KERNELS]),
    ("Conv", {"strides": [1, 1]}, [None, None]),
    ("Conv", {"strides": []}, [None, KERNELS]),
    ("Conv", {"strides": [1] * 3}, [(1, 3), None]),
    ("ConvInteger", {"dilations": [1]}, [None, (4, 3, 3)]),
    ("DeformConv", {"kernel_shape": [3, 3]}, [IMAGE]),
    ("QLinearConv", {"strides": [1, 1]}, [None, (1, 1, 1), (), KERNELS]),
    ("QLinearConv", {"strides": [1, 1]}, [None]),
    ("Resize", {"axes": [2, 3]}, [IMAGE]),
    ("MaxPool", {"kernel_shape": [2], "pads": [0, 0]}, [(1, 3, 8)]),
    ("MaxUnpool", {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0] * 4}, [IMAGE, IMAGE]),
    ("Col2Im", {"dilations": [1, 1], "pads": [0] * 4, "strides": []}, [(1, 9, 4), (2,), (2,)]),
    ("Col2Im", {"strides": [1, 1]}, [None, None, (2,)]),
    ("Col2Im", {"strides": [1, 1]}, [None, (2,), (3,)]),
    ("Col2Im", {"strides": [1, 1]}, [None, (3, 1), (2,)]),
    ("Transpose", {"perm": [2, 0, 1]}, [None]),
    ("Transpose", {}, [IMAGE]),
    ("ReduceSum", {"axes": [0]}, [()]),
    ("ReduceSum", {"axes": [-1]}, [()]),
    ("ReduceMax", {"axes": [9]}, [None]),
    ("Squeeze", {"axes": [1, -2]}, [ROW]),
    ("Squeeze", {"axes": [3]}, [ROW]),
    ("Squeeze", {"axes": [7]}, []),
    ("Unsqueeze", {"axes": [0, 4]}, [ROW[:3]]),
    ("Unsqueeze", {"axes": [0, 5]}, [None]),
    ("Unsqueeze", {"axes": [1, -1]}, [None]),
    ("Slice", {"starts": [0, 1], "ends": [1, 2], "axes": [0, -1]}, [IMAGE]),
    ("Slice", {"ends": [1, 2]}, [IMAGE]),
    ("Split", {"split": [1, 2]}, [IMAGE]),
    ("Resize", {"axes": [2, 3]}, [IMAGE, None, (2,)]),
    ("Resize", {"axes": [2, 3]}, [IMAGE, None, (0,), (2,)]),
    ("Resize", {"axes": [2, 3]}, [IMAGE, None, None, (None,)]),
    ("CenterCropPad", {"axes": [-1, 0]}, [IMAGE, (2,)]),
    ("Upsample", {"scales": [1.0] * 4}, [IMAGE]),
    ("Pad", {"pads": [0] * 8}, [IMAGE]),
    ("Pad", {"pads": [0] * 5}, [None]),
    ("MaxRoiPool", {"pooled_shape": [2, 2]}, [IMAGE]),
    ("GRU", {"activations": [b"Tanh"] * 2}, []),
    ("LSTM", {"activations": []}, []),
    ("Relu", {"axes": [9], "pads": [0], "activations": [b"Tanh"], "split": [1]}, [IMAGE]),
]
FAULTY: list[tuple[str, dict[str, Any], list[Any], list[str]]] = [
    ("Conv", {"strides": []}, [IMAGE, None], ["strides"]),
    ("Conv", {"strides": [1]}, [IMAGE, (4, 3, 3)], ["strides"]),
    ("Conv", {"kernel_shape": [3, 3], "dilations": [1], "pads": [0, 0]}, [None, None], ["dilations", "pads"]),
    ("Conv", {"strides": [1] * 3, "pads": [0] * 4}, [IMAGE, KERNELS], ["strides"]),
    ("ConvInteger", {"dilations": [1]}, [None, KERNELS], ["dilations"]),
    ("DeformConv", {"pads": [0] * 2}, [IMAGE], ["pads"]),
    ("QLinearConv", {"strides": [1]}, [None, None, None, KERNELS], ["strides"]),
    ("QLinearConv", {"strides": []}, [(), None, None, KERNELS], ["strides"]),
    *((op, {"kernel_shape": [2, 2]}, [(1, 3, 8)], ["kernel_shape"]) for op in ("MaxPool", "AveragePool", "LpPool")),
    ("LpPool", {"kernel_shape": [2, 2], "strides": [2]}, [(1,)], ["strides"]),
    ("MaxUnpool", {"pads": [0] * 2}, [IMAGE], ["pads"]),
    ("Col2Im", {"dilations": [1], "pads": [0] * 4}, [(1, 9, 4), (2,), (3,)], ["dilations"]),
    ("Col2Im", {"strides": [1] * 3}, [IMAGE, None, (2,)], ["strides"]),
    ("Transpose", {"perm": [1, 0]}, [IMAGE], ["perm"]),
    ("Transpose", {"perm": [1, 1]}, [None], ["perm"]),
    ("Transpose", {"perm": [0, 1, 2, 4]}, [IMAGE], ["perm"]),
    ("ReduceSum", {"axes": [1]}, [()], ["axes"]),
    ("ReduceMax", {"axes": [3, 4]}, [IMAGE], ["axes"]),
    ("ReduceMax", {"axes": [4, 5]}, [IMAGE], ["axes"]),
    ("ReduceMax", {"axes": [-5]}, [IMAGE], ["axes"]),
    ("MeanVarianceNormalization", {"axes": [0.0]}, [IMAGE], ["axes"]),
    ("Squeeze", {"axes": [0]}, [ROW], ["axes"]),
    ("Squeeze", {"axes": [-4]}, [ROW], ["axes"]),
    ("Squeeze", {"axes": [4]}, [ROW], ["axes"]),
    ("Unsqueeze", {"axes": [5, 1]}, [ROW[:3]], ["axes"]),
    ("Unsqueeze", {"axes": [1, -4]}, [ROW[:3]], ["axes"]),
    ("Unsqueeze", {"axes": [1, 1]}, [None], ["axes"]),
    ("Slice", {"starts": [0], "ends": [1, 2], "axes": [0, 1]}, [IMAGE], ["ends", "axes"]),
    ("Slice", {"starts": [0], "axes": [4]}, [IMAGE], ["axes"]),
    ("Resize", {"axes": [2, 3]}, [IMAGE, None, (1,)], ["axes"]),
    ("Resize", {"axes": [2, 3]}, [IMAGE, (2,), (0,), (3,)], ["axes"]),
    ("Resize", {"axes": [4]}, [IMAGE, None, (1,)], ["axes"]),
    ("CenterCropPad", {"axes": [2]}, [IMAGE, (2,)], ["axes"]),
    ("CenterCropPad", {"axes": [2, 4]}, [IMAGE, (2,)], ["axes"]),
    ("Upsample", {"scales": [1.0] * 2}, [IMAGE], ["scales"]),
    ("Pad", {"pads": [0] * 4}, [IMAGE], ["pads"]),
    ("Pad", {"paddings": [0] * 4}, [IMAGE], ["paddings"]),
    ("MaxRoiPool", {"pooled_shape": [2]}, [IMAGE], ["pooled_shape"]),
    ("MaxRoiPool", {"pooled_shape": [2] * 3}, [], ["pooled_shape"]),
    ("RNN", {"activations": [b"Tanh"] * 2}, [], ["activations"]),
]


@pytest.mark.parametrize(("op", "lists", "given"), FITTING)
def test_lists_that_fit_have_no_fault(op: str, lists: dict[str, Any], given: list[Any]) -> None:
    assert list(list_faults(op, lists, given, 2)) == []


@pytest.mark.parametrize(("op", "lists", "given", "names"), FAULTY)
def test_lists_that_do_not_fit_are_named(op: str, lists: dict[str, Any], given: list[Any], names: list[str]) -> None:
    assert [name for name, _ in list_faults(op, lists, given, 2)] == names


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 2), ("LSTM", 3)])
@pytest.mark.parametrize(("direction", "ways"), [(b"", 1), (b"forward", 1), (b"reverse", 1), (b"bidirectional", 2)])
def test_activations_fit_gates_and_directions(op: str, gates: int, direction: bytes, ways: int) -> None:
    taken = [n for n in range(1, 8) if not list(list_faults(op, {"activations": [b"Tanh"] * n}, [], 1, direction))]
    assert taken == [gates * ways]


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_a_split_has_a_length_for_each_output(outputs: int) -> None:
    taken = [n for n in range(5) if not list(list_faults("Split", {"split": [1] * n}, [IMAGE], outputs))]
    assert taken == [outputs]


def test_a_function_s_parameters_and_single_values_are_no_lists() -> None:
    values = {"ints": [1, 2], "floats": [0.5], "strings": [b"a"], "alone": 3, "word": "b"}
    attributes = [helper.make_attribute(name, value) for name, value in values.items()]
    given = helper.make_attribute("given", [1])
    given.ref_attr_name = "caller"
    lists = lists_of([*attributes, given])
    assert {name: list(value) for name, value in lists.items()} == {"ints": [1, 2], "floats": [0.5], "strings": [b"a"]}
