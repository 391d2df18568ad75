"""Deconvolutions to a computed output size: one dynamic file, equal to PyTorch at every size, in one engine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import numpy as np  # noqa: E402
import onnx  # noqa: E402

import trtconv  # noqa: E402
from support import export_nets as nets  # noqa: E402
from support.session import session  # noqa: E402
from trtconv import BuildRequest, ExportOptions, Range, Target  # noqa: E402
from trtconv.core.errors import EnvironmentMissing  # noqa: E402

EXPORTERS = ("torch.export", "torchscript")
FLAT = ("batch", None, "height", "width")
PLANE = [(h, w) for h in range(8, 42) for w in (8, 17, 30, 41)]


def _export(module, path: Path, shape, axes, exporter: str) -> trtconv.ExportReport:
    torch.manual_seed(0)
    bounds = {name: (6 if name == "depth" else 8, 41) for name in axes if name not in (None, "batch")}
    options = ExportOptions(check=False, exporter=exporter)
    return trtconv.export(module.eval(), torch.zeros(shape), path, {"x": axes}, bounds, options)


def _worst(module, path: Path, shapes: Iterable[tuple[int, ...]]) -> float:
    """Returns the largest difference to PyTorch over shapes that PyTorch takes, all of the same shape."""
    loaded, worst = session(path, optimised=True), 0.0
    for shape in shapes:
        x = torch.randn(shape)
        with torch.no_grad():
            wanted = module(x).numpy()
        (got,) = loaded.run(None, {"x": x.numpy()})
        assert got.shape == wanted.shape, shape
        worst = max(worst, float(np.abs(got - wanted).max()))
    return worst


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("pooled", [False, True])
def test_a_unet_for_every_size(tmp_path: Path, pooled: bool, exporter: str) -> None:
    path, module = tmp_path / "m.onnx", nets.AnySize(pooled)
    report = _export(module, path, (1, 3, 37, 24), FLAT, exporter)
    assert [(rule.step, rule.min, rule.max) for rule in report.sizes if rule.name != "batch"] == [(1, 8, 41)] * 2
    assert any("3 transposed convolution(s) with a computed output size" in note for note in report.notes)
    assert _worst(module, path, [(1, 3, *sizes) for sizes in PLANE]) < 1e-5
    assert {n.op_type for n in onnx.load(path).graph.node} >= {"ConvTranspose", "Slice"}
    _builds(path, tmp_path)


def _builds(path: Path, tmp_path: Path) -> None:
    """Builds one engine for all sizes, its deconvolutions audited."""
    bounds = {"batch": Range(1, 1, 2), "height": Range(8, 17, 41), "width": Range(8, 30, 41)}
    request = BuildRequest(path, tmp_path / "m.engine", dims=bounds, target=Target("rtx"))
    try:
        built = trtconv.build(request)
    except EnvironmentMissing as error:
        pytest.skip(error.message)
    assert (built.exit_code, {f.severity.value for f in built.findings} <= {"info"}) == (0, True)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    ("rank", "batch", "layer"),
    [
        (1, True, {"kernel_size": 3, "stride": 2, "padding": 1}),
        (3, True, {"kernel_size": 3, "stride": 2, "padding": 1}),
        (2, False, {"kernel_size": 3, "stride": 2, "padding": 1}),
        (2, True, {"kernel_size": 5, "stride": 3, "padding": 2}),
        (2, True, {"kernel_size": 3, "stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
    ],
)
def test_layers(tmp_path: Path, rank: int, batch: bool, layer: dict[str, int], exporter: str) -> None:
    path, module = tmp_path / "m.onnx", nets.SizedLayer(rank, **layer)
    axes = (*(("batch",) if batch else ()), None, *("depth", "height", "width")[3 - rank :])
    lead = (1, 2) if batch else (2,)
    _export(module, path, (*lead, *(11, 14, 17)[3 - rank :]), axes, exporter)
    spatial = {1: [(n,) for n in range(8, 42)], 2: PLANE[::3], 3: [(d, h, 9) for d in range(6, 12) for h in (8, 11)]}
    assert _worst(module, path, [(*lead, *sizes) for sizes in spatial[rank]]) < 1e-5


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_computed_output_padding(tmp_path: Path, exporter: str) -> None:
    path, module = tmp_path / "m.onnx", nets.ComputedPadding()
    _export(module, path, (1, 3, 37, 24), FLAT, exporter)
    assert _worst(module, path, [(1, 3, *sizes) for sizes in PLANE]) < 1e-5


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_known_sizes_stay_an_output_padding(tmp_path: Path, exporter: str) -> None:
    path, module = tmp_path / "m.onnx", nets.AnySize()
    report = trtconv.export(
        module.eval(), torch.zeros(1, 3, 37, 24), path, options=ExportOptions(check=False, exporter=exporter)
    )
    assert not any("computed output size" in note for note in report.notes)
    assert "Slice" not in {n.op_type for n in onnx.load(path).graph.node}


def test_pytorch_is_left_as_it_was(tmp_path: Path) -> None:
    before = torch.nn.modules.conv._ConvTransposeNd._output_padding
    module = nets.SizedLayer(2, kernel_size=3, stride=2, padding=1)
    _export(module, tmp_path / "m.onnx", (1, 2, 17, 20), FLAT, "torch.export")
    assert torch.nn.modules.conv._ConvTransposeNd._output_padding is before
    with pytest.raises(ValueError, match="valid sizes range"):
        module.up(torch.zeros(1, 4, 8, 8), output_size=(18, 18))
