"""Exports from end to end: files, proofs, and what is said where it cannot be done."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import onnx  # noqa: E402

import trtconv  # noqa: E402
from support import export_nets as nets  # noqa: E402
from trtconv import ExportFailed, ExportOptions, InputError, pipeline  # noqa: E402
from trtconv.core.dims import Range  # noqa: E402
from trtconv.exporter import ExportRequest, export_spec  # noqa: E402
from trtconv.exporter.file import write  # noqa: E402
from trtconv.exporter.inputs import InputDecl  # noqa: E402
from trtconv.exporter.module.weights import load_weights  # noqa: E402

NETS = Path(nets.__file__)
ALL = ("batch", None, "height", "width")
QUICK = ExportOptions(check=False)


def _export(module, path: Path, shape=(1, 3, 32, 32), dims=None, **changes):
    options = dataclasses.replace(QUICK, **changes)
    return trtconv.export(module.eval(), torch.zeros(shape), path, {"x": ALL}, dims, options)


def _spec(name: str, path: Path, shape=(1, 3, 32, 32), **changes) -> trtconv.ExportReport:
    request = ExportRequest(f"{NETS}:{name}", path, (InputDecl("x", shape),), options=QUICK)
    return export_spec(dataclasses.replace(request, **changes))


def test_export(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    report = _export(nets.Skip(), path, dims={"height": "16:64", "width": (16, 64)}, outputs=("y",))
    assert report.exit_code == 0
    assert (report.exporter, report.opset) == ("torch.export", 20)
    assert report.inputs == {"x": ("batch", 3, "height", "width")}
    assert report.outputs == {"y": ("batch", 6, "height", "width")}
    assert "multiple of 2" in {r.name: r for r in report.sizes}["height"].sentence()
    assert len(report.proof.runs) >= 5
    assert any(run.inputs["x"][2] % 4 for run in report.proof.runs)
    assert report.proof.worst is not None
    assert report.proof.worst < 1e-5
    json.dumps(report.to_json(), allow_nan=False)

    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version <= 10
    (deconv,) = (n for n in model.graph.node if n.op_type == "ConvTranspose")
    told = {p.key: p.value for p in deconv.metadata_props}
    assert told["trtconv.module"] == "up"
    assert told["trtconv.source"].endswith("export_nets.py:18")
    assert deconv.name == "/up/ConvTranspose"
    names = [n.name for n in model.graph.node]
    assert len(names) == len(set(names))
    assert str(tmp_path).encode() not in path.read_bytes()
    assert str(NETS.parent).encode() not in path.read_bytes()


@pytest.mark.parametrize("limit", [1, 1 << 30])
def test_weights_beyond_one_file_are_checked_without_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """It would hold them twice beside the module; what is left out is told."""
    asked = []

    def check(request: trtconv.CheckRequest) -> None:
        asked.append(request.prove)
        raise trtconv.EnvironmentMissing("nothing here checks")

    monkeypatch.setattr(pipeline, "check", check)
    monkeypatch.setattr(write, "ONE_PIECE_LIMIT", limit)
    path = tmp_path / "m.onnx"
    report = _export(nets.Skip(), path, check=True)
    assert asked == ["none" if limit == 1 else "quick"]
    assert (tmp_path / "m.onnx.data").exists() is (limit == 1)
    assert any(f"trtconv check {path}" in note for note in report.notes) is (limit == 1)
    # What an older file left behind is nobody's.
    (tmp_path / "m.onnx.data").touch()
    monkeypatch.setattr(write, "ONE_PIECE_LIMIT", 1 << 30)
    _export(nets.Skip(), path, check=True)
    assert asked[1:] == ["quick"]


def test_the_same_file_twice(tmp_path: Path) -> None:
    files = []
    for name in ("a.onnx", "b.onnx"):
        torch.manual_seed(7)
        _export(nets.Skip(), tmp_path / name, proof=False)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]


def test_old_target(tmp_path: Path) -> None:
    report = _export(nets.Skip(), tmp_path / "m.onnx", target=trtconv.Target("tensorrt", (8, 6)))
    assert (report.opset, report.ir_version) == (17, 8)
    model = onnx.load(tmp_path / "m.onnx")
    (deconv,) = (n for n in model.graph.node if n.op_type == "ConvTranspose")
    assert {p.key: p.value for p in deconv.metadata_props}["trtconv.module"] == "up"


def test_static(tmp_path: Path) -> None:
    report = _export(nets.Fixed(), tmp_path / "m.onnx", static=True)
    assert report.inputs == {"x": (1, 3, 32, 32)}
    assert report.sizes == ()
    assert len(report.proof.runs) == 1


def test_odd_and_equal_sizes(tmp_path: Path) -> None:
    report = _export(nets.Odd(), tmp_path / "odd.onnx", (1, 3, 33, 33), {"height": "16:65"})
    assert report.exit_code == 0
    assert "height is valid from 17 to 65 of 16:65" in report.notes
    report = _export(nets.Square(), tmp_path / "square.onnx", dims={"height": "16:64", "width": "16:64"})
    assert report.exit_code == 0
    assert report.joint == ("width == height",)


def test_a_limit_inside_the_bounds(tmp_path: Path) -> None:
    report = _export(nets.Limited(), tmp_path / "m.onnx", dims={"height": "16:64", "width": "16:48"})
    assert report.exit_code == 0
    assert any(note.startswith("height is valid from 16 to 48 of 16:64, from") for note in report.notes)


def test_named_inputs_and_outputs(tmp_path: Path) -> None:
    example = {"x": torch.ones(1, 3, 8, 8), "scale": torch.tensor(2.0)}
    report = trtconv.export(
        nets.Named().eval(), example, tmp_path / "m.onnx", {"x": ("n", None, None, None)}, {}, QUICK
    )
    assert report.exit_code == 0
    assert report.outputs == {"picture": ("n", 3, 8, 8), "extra": ("n", 8, 8)}


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        (nets.Baked(), "height = int(x.shape[2])", "height becomes a constant"),
        (nets.Fixed(), "return x.reshape(x.shape[0], 3, 32 * 32)", "height must be 32"),
        (nets.Values(), "if x.sum() > 0:", "the values of the inputs decide"),
        (nets.Branch(), "if x.shape[2] > 40:", "for height from 16 to 40 only"),
    ],
)
def test_what_cannot_be_exported_names_its_line(
    module, line: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")
    with pytest.raises(ExportFailed) as caught:
        _export(module, path, dims={"height": "16:64"})
    assert said in caught.value.message
    assert f"`{line}` at " in caught.value.message
    assert "export_nets.py:" in caught.value.message
    assert path.read_bytes() == b"old"
    assert capfd.readouterr() == ("", "")


def test_a_file_that_differs_from_pytorch_is_not_written(tmp_path: Path) -> None:
    report_path = tmp_path / "m.onnx"
    with pytest.raises(ExportFailed):
        _export(nets.Baked(), report_path, exporter="torch.export")
    report = _export(nets.Baked(), report_path, exporter="torchscript")
    assert report.exit_code == 1
    assert report.output is None
    assert report.proof.failed
    assert not list(tmp_path.iterdir())


def test_fake_quantised_deconvolution(tmp_path: Path) -> None:
    report = _export(nets.FakeQuantized(), tmp_path / "m.onnx", (1, 6, 8, 8))
    assert report.exit_code == 0
    assert report.exporter == "torchscript"
    model = onnx.load(tmp_path / "m.onnx")
    weights = {t.name: list(t.dims) for t in model.graph.initializer}
    assert [n.op_type for n in model.graph.node if n.op_type.endswith("Linear")] == [
        "QuantizeLinear",
        "DequantizeLinear",
    ] * 2
    channel = [
        n
        for n in model.graph.node
        if n.op_type != "Constant" and n.input[0] in weights and n.op_type == "QuantizeLinear"
    ]
    assert [{a.name: a.i for a in n.attribute}["axis"] for n in channel] == [1]


def test_quantisers_that_say_their_onnx_nodes(tmp_path: Path) -> None:
    report = _export(nets.Symbolic(), tmp_path / "m.onnx", (1, 6, 8, 8))
    assert report.exit_code == 0
    assert "TensorQuantizer" in report.attempts[0].outcome
    ops = [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]
    assert {"QuantizeLinear", "DequantizeLinear", "ConvTranspose"} <= set(ops)


def test_half_precision(tmp_path: Path) -> None:
    module = nets.Skip().half().eval()
    report = trtconv.export(module, torch.zeros(1, 3, 16, 16, dtype=torch.float16), tmp_path / "m.onnx", {}, {}, QUICK)
    assert report.exit_code == 0
    assert report.proof.tolerance == pytest.approx(2e-2)


def test_train_mode_is_refused_in_the_library(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train mode") as caught:
        trtconv.export(nets.Dropped(), torch.zeros(1, 3, 8, 8), tmp_path / "m.onnx")
    assert caught.value.hint == "Call module.eval() first."


def test_train_mode_is_left_for_a_spec(tmp_path: Path) -> None:
    report = _spec("Dropped", tmp_path / "m.onnx")
    assert any("train mode" in note for note in report.notes)
    assert report.exit_code == 0


def test_weights(tmp_path: Path) -> None:
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in nets.Dropped(3, 1).state_dict().items()}}, tmp_path / "w.pt"
    )
    report = _spec("Dropped", tmp_path / "m.onnx", weights=tmp_path / "w.pt")
    assert any("prefix" in note for note in report.notes)
    wanted = nets.Dropped(3, 1).conv.weight.detach().numpy()
    (got,) = (
        onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "m.onnx").graph.initializer if len(t.dims) == 4
    )
    np.testing.assert_array_equal(got, wanted)


def test_weights_inside_containers(tmp_path: Path) -> None:
    weights = tmp_path / "nested.pt"
    state = {f"module.{key}": value for key, value in nets.Dropped(seed=5).state_dict().items()}
    torch.save({"epoch": 3, "checkpoint": {"optimizer": {"lr": 0.1}, "state_dict": state}, "args": {"a": 1}}, weights)
    with pytest.raises(InputError, match="holds several: checkpoint, args"):
        _spec("Dropped", tmp_path / "m.onnx", weights=weights)
    torch.save({"epoch": 3, "model": {"lr": 0.1, "state_dict": state}}, weights)
    report = _spec("Dropped", tmp_path / "m.onnx", weights=weights)
    assert any("weights taken from 'model/state_dict' of nested.pt" in note for note in report.notes)


def test_weights_of_other_habits(tmp_path: Path) -> None:
    module, path = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)), tmp_path / "w.pt"
    state = {f"model.module.{k}": v + 1 for k, v in module.state_dict().items() if "num_batches" not in k}
    torch.save({"state_dict": {**state, "step": 5}, "epoch": 3}, path)
    notes = load_weights(module, path)
    assert notes == (
        "weights taken from 'state_dict' of w.pt",
        "left out of w.pt, as no tensors: step",
        "prefix 'model.' taken off the keys of w.pt",
        "prefix 'module.' taken off the keys of w.pt",
    )
    assert all(torch.equal(module.state_dict()[k.removeprefix("model.module.")], v) for k, v in state.items())


def test_weights_that_do_not_match(tmp_path: Path) -> None:
    state = {"conv.weight": torch.zeros(4, 3, 1, 1), "more": torch.zeros(1)}
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(InputError) as caught:
        _spec("Dropped", tmp_path / "m.onnx", weights=tmp_path / "w.pt")
    for part in ("missing: conv.bias", "unexpected: more", "conv.weight (4, 3, 1, 1) for (3, 3, 1, 1)"):
        assert part in caught.value.message


def test_weights_are_never_unpickled(tmp_path: Path) -> None:
    torch.save(nets.Dropped(), tmp_path / "w.pt")
    with pytest.raises(InputError, match="cannot be read: it holds more than tensors"):
        _spec("Dropped", tmp_path / "m.onnx", weights=tmp_path / "w.pt")


def test_factory_arguments(tmp_path: Path) -> None:
    report = _spec("Dropped", tmp_path / "m.onnx", arguments={"width": 5})
    assert report.outputs == {"output": (1, 5, 32, 32)}
    with pytest.raises(InputError, match="unexpected keyword argument 'breadth'"):
        _spec("Dropped", tmp_path / "m.onnx", arguments={"breadth": 5})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (f"{NETS}:nothing", "has no 'nothing'"),
        (f"{NETS}:number", "gives a int"),
        (str(NETS), "names no factory"),
        ("nowhere.py:build", "does not exist"),
        ("no_such_package_here.net:Net", "no module 'no_such_package_here'"),
        ("nowhere.pt2", "neither a file"),
    ],
)
def test_a_spec_that_does_not_resolve(spec: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        export_spec(ExportRequest(spec, tmp_path / "m.onnx", (InputDecl("x", (1,)),)))


def test_a_factory_that_raises_shows_its_own_traceback(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        _spec("broken", tmp_path / "m.onnx")
    assert "KeyError: 'no such weight'" in caught.value.message
    assert "in broken" in caught.value.message
    assert "exporter" not in caught.value.message


def test_wrong_rank_and_wrong_size(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not run on x=1x3x8"):
        _spec("Skip", tmp_path / "m.onnx", (1, 3, 8, 8, 8))
    with pytest.raises(InputError) as caught:
        _spec("Skip", tmp_path / "m.onnx", (1, 3, 31, 31), dynamic={"x": ALL})
    assert "torch.cat" in caught.value.message
    assert caught.value.hint == "It does run with height 30, width 30."


def test_inputs_that_do_not_fit_forward(tmp_path: Path) -> None:
    request = ExportRequest(f"{NETS}:Skip", tmp_path / "m.onnx", (InputDecl("x", (1,)), InputDecl("t", (1,))))
    with pytest.raises(InputError, match="do not fit forward"):
        export_spec(request)
    with pytest.raises(InputError, match="no inputs"):
        export_spec(dataclasses.replace(request, inputs=()))


def test_a_saved_program(tmp_path: Path) -> None:
    dim = torch.export.Dim("h")
    program = torch.export.export(nets.Skip().eval(), (torch.zeros(2, 3, 16, 16),), dynamic_shapes=({2: 2 * dim},))
    torch.export.save(program, tmp_path / "m.pt2")
    request = ExportRequest(str(tmp_path / "m.pt2"), tmp_path / "m.onnx", options=QUICK)
    report = export_spec(request)
    assert report.exit_code == 0
    assert report.inputs == {"x": (2, 3, "x_2", 16)}
    wanted = dataclasses.replace(request, dynamic={"x": (None, None, "h", "w")})
    with pytest.raises(InputError, match="saved with x:3 fixed"):
        export_spec(wanted)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
def test_torchscript(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(nets.Skip()), tmp_path / "m.pt")
    request = ExportRequest(
        str(tmp_path / "m.pt"), tmp_path / "m.onnx", (InputDecl("x", (1, 3, 16, 16)),), {"x": ALL}, options=QUICK
    )
    report = export_spec(request)
    assert (report.exit_code, report.exporter) == (0, "torchscript")


def test_a_state_dict_is_no_module(tmp_path: Path) -> None:
    torch.save(nets.Skip().state_dict(), tmp_path / "w.pt")
    with pytest.raises(InputError, match="is not a TorchScript file") as caught:
        export_spec(ExportRequest(str(tmp_path / "w.pt"), tmp_path / "m.onnx", (InputDecl("x", (1, 3, 16, 16)),)))
    assert "--weights" in caught.value.hint


def test_bounds_are_kept_apart_from_what_is_valid(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match="height must be a multiple of 2"):
        _export(nets.Skip(), tmp_path / "m.onnx", dims={"height": Range(32, 32, 33)})


def test_convert(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    dims = {"batch": Range(1, 1, 2), "height": Range(16, 32, 64), "width": Range(16, 32, 64)}
    build = trtconv.BuildRequest(tmp_path / "m.onnx", dims=dims, target=trtconv.Target("rtx"))
    report = trtconv.convert(nets.Skip().eval(), torch.zeros(1, 3, 32, 32), build, {"x": ALL})
    assert report.exit_code == 0
    assert report.build is not None
    assert (tmp_path / "m.engine").stat().st_size > 1000
    json.dumps(report.to_json(), allow_nan=False)


class Mean(torch.nn.Module):
    """Returns a scalar."""

    def forward(self, x):
        return x.mean()


class InPlace(torch.nn.Module):
    """Writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.ConvTranspose2d(3, 4, 2, 2)

    def forward(self, x):
        x *= 255
        return self.up(x)


@pytest.mark.parametrize("module", [Mean(), InPlace()])
def test_modules_that_return_scalars_or_write_into_their_input(module: torch.nn.Module, tmp_path: Path) -> None:
    example = torch.ones(1, 3, 8, 8)
    report = trtconv.export(module.eval(), example, tmp_path / "m.onnx", options=QUICK)
    assert report.exit_code == 0
    assert report.proof.worst < 1e-5
    assert torch.equal(example, torch.ones(1, 3, 8, 8))
