"""The read-back against the real surface of each TensorRT that it is for."""

from __future__ import annotations

import gc
import json
import types
import weakref
from typing import Any

import numpy as np
import pytest

from support.paths import SURFACES as FOLDER
from trtconv.runtimes.tensorrt.readback.execute import KINDS, Run
from trtconv.runtimes.tensorrt.readback.flow import BOUNDARIES, LOOP_LAYERS
from trtconv.runtimes.tensorrt.readback.read import read
from trtconv.runtimes.tensorrt.readback.surface import ATTENTION, SURFACES, Surface

NAMES = ("tensorrt-8.6.0", "tensorrt-10.16.1", "tensorrt-11.4.0", "tensorrt-rtx-1.7.1")
API = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in NAMES}
NOT_RUN = {
    "PLUGIN",
    "RAGGED_SOFTMAX",
    "RNN_V2",
    "MOE",
    "DIST_COLLECTIVE",
    "DYNAMIC_QUANTIZE",
}
"""Kinds that no parser makes of an ONNX operator, or whose attributes Python does not give."""


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_of_a_kind_exists_wherever_the_kind_does(name: str) -> None:
    api = API[name]
    for kind, surface in SURFACES.items():
        if kind in api["LayerType"]["enum"]:
            members = {*api[surface.interface]["members"], *api["ILayer"]["members"]}
            assert set(surface.attributes) <= members, f"{name}: {kind}"
    if "IAttention" in api:
        assert set(ATTENTION.attributes) <= set(api["IAttention"]["members"])


@pytest.mark.parametrize(("kind", "surface"), [*SURFACES.items(), ("IAttention", ATTENTION)])
def test_newer_attributes_exist_somewhere(kind: str, surface: Surface) -> None:
    everywhere = {member for api in API.values() for member in api.get(surface.interface, {}).get("members", ())}
    assert set(surface.newer) <= everywhere


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_is_run_or_named(name: str) -> None:
    known = {*KINDS, *BOUNDARIES, *LOOP_LAYERS, "CONDITIONAL_OUTPUT"}
    assert known == set(SURFACES)
    assert set(API[name]["LayerType"]["enum"]) - known <= NOT_RUN
    assert not NOT_RUN & known


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_of_every_layer_and_tensor_exists(name: str) -> None:
    layer = {"type", "name", "metadata", "num_inputs", "num_outputs", "get_input", "get_output"}
    assert layer <= set(API[name]["ILayer"]["members"])
    assert {"dtype", "shape"} <= set(API[name]["ITensor"]["members"])
    assert {"num_layers", "get_layer"} <= set(API[name]["INetworkDefinition"]["members"])


class Fake:
    """An object that has the members which a surface records, and values for some of them."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def get_input(self, index: int) -> Any:
        return self.ins[index]  # type: ignore[attr-defined]

    def get_output(self, index: int) -> Any:
        return self.outs[index]  # type: ignore[attr-defined]


def fake_module(name: str) -> types.SimpleNamespace:
    """Makes a module with the layer classes of a version, each without the members that it lacks there."""
    made = {
        each: type(each, (Fake,), {member: None for member in entry.get("members", ()) if member not in dir(Fake)})
        for each, entry in API[name].items()
        if each.startswith("I") and "members" in entry
    }
    return types.SimpleNamespace(**made)


def named(name: str) -> types.SimpleNamespace:
    return types.SimpleNamespace(name=name)


def fake_network(trt: Any, kind: str, interface: str, arrays: list[Any], made: tuple[int, ...], **values: Any) -> Any:
    """Makes a network of one layer."""
    ins = [trt.ITensor(name=f"x{i}", dtype=named("FLOAT"), shape=each.shape) for i, each in enumerate(arrays)]
    outs = [trt.ITensor(name="y", dtype=named("FLOAT"), shape=made)]
    assert hasattr(trt, interface)
    layer = trt.ILayer(
        ins=ins, outs=outs, name="layer", metadata="", num_inputs=len(ins), num_outputs=1, type=named(kind), **values
    )
    return types.SimpleNamespace(
        num_layers=1,
        get_layer=lambda index: layer,
        num_inputs=len(ins),
        get_input=lambda index: ins[index],
        num_outputs=1,
        get_output=lambda index: outs[0],
    )


def ran(name: str, kind: str, interface: str, arrays: list[Any], made: tuple[int, ...], **values: Any) -> Any:
    """Reads a layer through a version's surface, and returns what it computes."""
    trt = fake_module(name)
    network = read(trt, fake_network(trt, kind, interface, arrays, made, **values))
    run = Run(network, {f"x{i}": each for i, each in enumerate(arrays)})
    got = run.outputs()
    assert run.unproven == {}
    return got["y"]


def test_fully_connected_of_8_6() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 1, 2)).astype(np.float32)
    kernel, bias = np.arange(24, dtype=np.float32), np.ones(4, np.float32)
    got = ran(
        NAMES[0],
        "FULLY_CONNECTED",
        "IFullyConnectedLayer",
        [x],
        (2, 4, 1, 1),
        num_output_channels=4,
        kernel=kernel,
        bias=bias,
    )
    np.testing.assert_allclose(got.reshape(2, 4), x.reshape(2, 6) @ kernel.reshape(4, 6).T + 1, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_padding_crops_and_fills_on_every_version(name: str) -> None:
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    pads = {"pre_padding_nd": (1, -1), "post_padding_nd": (0, 2)}
    got = ran(name, "PADDING", "IPaddingLayer", [x], (1, 1, 4, 4), **pads)
    np.testing.assert_array_equal(got[0, 0], np.pad(x[0, 0, :, 1:], ((1, 0), (0, 2))))


@pytest.mark.parametrize("name", NAMES)
def test_slices_are_read_with_and_without_axes(name: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    asked = {"start": (2, 0), "shape": (2, 2), "stride": (-1, 2), "mode": named("STRICT_BOUNDS")}
    np.testing.assert_array_equal(ran(name, "SLICE", "ISliceLayer", [x], (2, 2), **asked), x[2:0:-1, ::2])


@pytest.mark.parametrize("name", NAMES)
def test_permutations_end_with_the_rank(name: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    asked = {
        "first_transpose": (0, 2, 1, 7, 7, 0, 3, 9),
        "reshape_dims": (0, -1),
        "second_transpose": (1, 0, 5, 5, 5, 5, 5, 5),
        "zero_is_placeholder": True,
    }
    expected = x.transpose(0, 2, 1).reshape(1, 6).T
    np.testing.assert_array_equal(ran(name, "SHUFFLE", "IShuffleLayer", [x], (6, 1), **asked), expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_lives_as_long_as_what_was_read_of_it_and_no_longer(name: str) -> None:
    trt = fake_module(name)
    x = np.ones((1, 1, 3, 3), np.float32)
    network = fake_network(trt, "PADDING", "IPaddingLayer", [x], (1, 1, 4, 4), pre_padding_nd=(1, 1))
    # Layers of TensorRT keep their network.
    layer = weakref.ref(network.get_layer(0))
    gc.disable()
    try:
        got = read(trt, network)
        del network
        assert layer() is not None
        # Its weights are the most that a process holds, and a short one never searches for cycles.
        del got
        assert layer() is None
    finally:
        gc.enable()


class Unranked:
    """`Dims` whose rank is not known, as TensorRT 8.6 returns them where an input says the shape."""

    def __len__(self) -> int:
        return -1


@pytest.mark.parametrize("name", NAMES)
def test_shapes_of_unknown_rank_are_left_to_the_input_that_says_them(name: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    asked = {"first_transpose": range(8), "reshape_dims": Unranked(), "second_transpose": range(8)}
    got = ran(name, "SHUFFLE", "IShuffleLayer", [x, np.array([3, 2])], (3, 2), zero_is_placeholder=False, **asked)
    np.testing.assert_array_equal(got, x.reshape(3, 2))


def test_a_kind_that_is_not_known_is_named() -> None:
    trt = fake_module(NAMES[0])
    x = np.ones((1, 2), np.float32)
    network = read(trt, fake_network(trt, "RNN_V2", "IRNNv2Layer", [x], (1, 2)))
    run = Run(network, {"x0": x})
    assert run.outputs() == {}
    assert run.unproven == {0: "layers of kind RNN_V2 are not known"}
    run = Run(network, {"x0": x}, stand_in=lambda tensor: x + 1 if tensor.name == "y" else None)
    np.testing.assert_array_equal(run.outputs()["y"], x + 1)
    assert 0 in run.unproven


def test_what_is_not_set_is_none() -> None:
    """TensorRT raises then; the other attributes are read all the same."""

    def raises(_: object) -> None:
        raise RuntimeError("not set")

    trt = fake_module(NAMES[0])
    x = np.ones((1, 2), np.float32)
    for name in SURFACES["TRIP_LIMIT"].attributes:
        setattr(trt.ITripLimitLayer, name, property(raises))
    network = read(trt, fake_network(trt, "TRIP_LIMIT", "ITripLimitLayer", [x], (1, 2)))
    assert network.layers[0].values == {"loop": None, "kind": None}
