"""What runs of one network share."""

from __future__ import annotations

import numpy as np
import pytest

from trtconv.runtimes.tensorrt.readback import execute
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.prepared import Prepared
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor


def network(size: int = 2) -> ReadNetwork:
    """y = x + (c + c), and z is the shape of x; x may have any length."""
    shapes = [(-1,), (size,), (size,), (-1,), (1,)]
    dtypes = ["float32"] * 4 + ["int64"]
    tensors = tuple(
        ReadTensor(i, name, dtype, shape)
        for i, (name, dtype, shape) in enumerate(zip("xcdyz", dtypes, shapes, strict=True))
    )
    layers = (
        ReadLayer(0, "constant", "CONSTANT", (), (1,), {"weights": np.ones(size, np.float32), "shape": (size,)}),
        ReadLayer(1, "twice", "ELEMENTWISE", (1, 1), (2,), {"op": "SUM"}),
        ReadLayer(2, "sum", "ELEMENTWISE", (0, 2), (3,), {"op": "SUM"}),
        ReadLayer(3, "shape", "SHAPE", (0,), (4,), {}),
    )
    return ReadNetwork(tensors, layers, (0,), (3, 4))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the layers that were computed."""
    names: list[str] = []
    compute = execute.kernel_results

    def counted(network, layer, *rest):
        names.append(layer.name)
        return compute(network, layer, *rest)

    monkeypatch.setattr(execute, "kernel_results", counted)
    return names


def test_what_follows_from_constants_and_shapes_is_computed_once(ran: list[str]) -> None:
    prepared = Prepared(network())
    for value in (1.0, 5.0):
        run = Run(prepared.network, {"x": np.full(2, value, np.float32)}, prepared=prepared)
        outputs = run.outputs()
        np.testing.assert_array_equal(outputs["y"], np.full(2, value + 2))
        np.testing.assert_array_equal(outputs["z"], [2])
        assert run.ran == {0, 1, 2, 3}
    assert sorted(ran) == ["constant", "shape", "sum", "sum", "twice"]


def test_inputs_of_other_shapes_are_another_matter(ran: list[str]) -> None:
    prepared = Prepared(network(size=1))
    for size in (3, 4):
        outputs = Run(prepared.network, {"x": np.zeros(size, np.float32)}, prepared=prepared).outputs()
        np.testing.assert_array_equal(outputs["z"], [size])
    assert ran.count("shape") == 2


def test_runs_of_their_own_share_nothing(ran: list[str]) -> None:
    for _ in range(2):
        Run(network(), {"x": np.zeros(2, np.float32)}).outputs()
    assert ran.count("constant") == 2


def test_large_values_are_computed_again(ran: list[str]) -> None:
    prepared = Prepared(network(size=1 << 15))
    for _ in range(2):
        Run(prepared.network, {"x": np.zeros(1 << 15, np.float32)}, prepared=prepared).outputs()
    assert ran.count("twice") == 2
