"""Arguments inside others: dictionaries, lists, tuples, dataclasses, numbers and None."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import onnxruntime  # noqa: E402

import trtconv  # noqa: E402
from trtconv import ExportOptions, InputError  # noqa: E402
from trtconv.exporter import ExportRequest, export_spec  # noqa: E402
from trtconv.exporter.inputs import parse_dynamic, parse_inputs  # noqa: E402
from trtconv.exporter.module.nested import Leaves, Nested, flat_axes, slots_of_names  # noqa: E402

QUICK = ExportOptions(check=False)
Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Sample:
    """An image, and perhaps a mask."""

    image: torch.Tensor
    mask: torch.Tensor | None = None


class Deep(torch.nn.Module):
    """Takes nested arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, batch: Any, features: Any, times: int = 1) -> dict[str, Any]:
        image = batch["sample"].image if isinstance(batch["sample"], Sample) else batch["sample"]["image"]
        return {"y": self.conv(image) * batch["scale"], "sums": [f.sum(1) * times for f in features]}


def _arguments(height: int) -> tuple[Any, ...]:
    batch = {"sample": Sample(torch.randn(1, 3, height, 20)), "scale": torch.randn(1)}
    return batch, Pair(torch.randn(2, 5), torch.randn(3, height)), 3


def _same(module: torch.nn.Module, arguments: Any, file: Path) -> None:
    leaves = Leaves()
    leaves.take(arguments[0], "batch")
    leaves.take(arguments[1], "features")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    got = session.run(None, {n: t.numpy() for n, t in leaves.tensors.items() if n in names})
    with torch.no_grad():
        found = module(*arguments)
    for array, tensor in zip(got, (found["y"], *found["sums"]), strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), 1e-4, 1e-5)


def test_nested_arguments_are_inputs_named_by_their_places(tmp_path: Path) -> None:
    module, file = Deep().eval(), tmp_path / "m.onnx"
    axes = {"batch": {"sample": {"image": (None, None, "height", None)}}, "features": [(None, None), (None, "height")]}
    report = trtconv.export(module, _arguments(16), file, axes, {"height": (8, 40)}, QUICK)
    assert list(report.inputs) == ["batch.sample.image", "batch.scale", "features.0", "features.1"]
    assert {"times is 3 in the file", "batch.sample.mask is None in the file"} <= set(report.notes)
    for height in (8, 23, 40):
        _same(module, _arguments(height), file)


def deep() -> torch.nn.Module:
    """Returns the module, for the command line."""
    torch.manual_seed(0)
    return Deep().eval()


def test_nested_arguments_on_the_command_line(tmp_path: Path) -> None:
    names = ["batch.sample.image=1x3x16x20", "batch.scale=1", "features.0=2x5", "features.1=3x16"]
    dynamic = dict([parse_dynamic("batch.sample.image=_,_,height,_"), parse_dynamic("features.1=_,height")])
    file = tmp_path / "m.onnx"
    request = ExportRequest(f"{__file__}:deep", file, parse_inputs(names), dynamic, options=QUICK)
    assert export_spec(request).exit_code == 0
    _same(deep(), (*_arguments(23)[:2], 1), file)


def test_tensors_come_back_to_their_places() -> None:
    seen: list[Any] = []

    class Keeping(torch.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            seen.append((args, kwargs))
            return torch.ones(1)

    value = {"a": [torch.ones(1), (torch.ones(2), None)], "b": Pair(torch.ones(3), "text")}
    leaves = Leaves()
    taken = leaves.take(value, "v")
    assert list(leaves.tensors) == ["v.a.0", "v.a.1.0", "v.b.0"]
    Nested(Keeping(), [taken], {"k": taken}).call(*(torch.zeros(n) for n in range(1, 4)))
    ((given,), named) = seen[0]
    assert [given["a"][0].numel(), given["a"][1][0].numel(), given["b"].first.numel()] == [1, 2, 3]
    assert (given["a"][1][1], given["b"].second, type(given["b"])) == (None, "text", Pair)
    assert torch.equal(named["k"]["b"].first, torch.zeros(3))
    assert value["a"][0].item() == 1  # the caller's own is not changed


def test_names_of_places() -> None:
    found = slots_of_names(["x", "batch.image", "batch.more.0", "batch.more.1"])
    assert found["batch"]["image"].number == 1
    assert [slot.number for slot in found["batch"]["more"]] == [2, 3]
    with pytest.raises(InputError):
        slots_of_names(["batch.image", "batch"])
    with pytest.raises(InputError):
        slots_of_names(["batch", "batch.image.left"])
    assert dict(flat_axes({"b": {"i": ("n", None)}, "f": [(None,), ("m",)], "x": ("k",)})) == {
        "b.i": ("n", None),
        "f.0": (None,),
        "f.1": ("m",),
        "x": ("k",),
    }


def test_an_example_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        trtconv.export(Deep().eval(), ({"a": 1}, None), tmp_path / "m.onnx")
