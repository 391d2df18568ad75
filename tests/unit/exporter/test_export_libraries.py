"""Networks of public libraries by name; the libraries themselves stand in for."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from support import export_nets as nets  # noqa: E402
from trtconv import EnvironmentMissing, InputError  # noqa: E402
from trtconv.exporter.module.spec import load_spec  # noqa: E402


def _library(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_network_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def create_model(name: str, **arguments: object) -> torch.nn.Module:
        asked.update(arguments, name=name)
        return nets.Skip()

    _library(monkeypatch, "timm", create_model=create_model)
    assert isinstance(load_spec("timm:hrnet_w18.ms", {"num_classes": 3}), nets.Skip)
    assert asked == {"name": "hrnet_w18.ms", "num_classes": 3}


def test_arguments_stand_behind_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def unet(**arguments: object) -> torch.nn.Module:
        asked.update(arguments)
        return nets.Skip()

    _library(monkeypatch, "segmentation_models_pytorch", Unet=unet)
    load_spec("smp:Unet?encoder_name=resnet18&classes=4", {"in_channels": 1})
    # Weights would be downloaded.
    assert asked == {"encoder_weights": None, "encoder_name": "resnet18", "classes": 4, "in_channels": 1}


def test_a_misspelt_network_is_told_with_the_nearest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _library(monkeypatch, "timm", create_model=nets.Skip, list_models=lambda: ["resnet18", "hrnet_w18"])
    _library(monkeypatch, "segmentation_models_pytorch", Unet=nets.Skip, FPN=nets.Skip)
    _library(monkeypatch, "transformers")
    for spec, meant in (("timm:resnet81.a1", "resnet18"), ("smp:UNett", "Unet")):
        with pytest.raises(InputError) as caught:
            load_spec(spec, {})
        assert caught.value.hint == f"Did you mean {meant}?"
        assert "Traceback" not in caught.value.message
    with pytest.raises(InputError, match="there is no folder"):
        load_spec(f"transformers:{tmp_path}/gone", {})


def test_a_folder_of_transformers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Config:
        architectures = ("Net",)

        @staticmethod
        def from_pretrained(folder: str, local_files_only: bool) -> Config:
            assert (folder, local_files_only) == (str(tmp_path), True)
            return Config()

    class Net(nets.Skip):
        @staticmethod
        def from_pretrained(folder: str, local_files_only: bool) -> Net:
            assert (folder, local_files_only) == (str(tmp_path), True)
            return Net()

    _library(monkeypatch, "transformers", AutoConfig=Config, Net=Net)
    assert isinstance(load_spec(f"transformers:{tmp_path}", {}), Net)


def test_an_attribute_of_the_package_is_called_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    _library(monkeypatch, "timm", special=nets.Skip)
    assert isinstance(load_spec("timm:special", {}), nets.Skip)


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(EnvironmentMissing, match="timm:resnet18 needs timm"):
        load_spec("timm:resnet18", {})


def test_a_checkpoint_is_read_with_trust_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Head(nets.Skip):
        export = dynamic = False

    class Yolo:
        def __init__(self, path: Path) -> None:
            self.model = Head().half()

    path = tmp_path / "yolo.pt"
    torch.save({"model": 1}, path)
    _library(monkeypatch, "ultralytics", YOLO=Yolo)
    with pytest.raises(InputError) as caught:
        load_spec(str(path), {})
    assert "--trust" in str(caught.value.hint)
    module = load_spec(str(path), {}, trust=True)
    assert module.export
    assert next(module.parameters()).dtype is torch.float32
