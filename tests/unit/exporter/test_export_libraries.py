"""Networks of public libraries by name; the libraries themselves stand in for."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from support import export_nets as nets  # noqa: E402
from trtconv import EnvironmentMissing, InputError, exporter  # noqa: E402
from trtconv.exporter.library_names import check_name  # noqa: E402
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


def test_a_misspelt_encoder_is_told_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    encoders = types.SimpleNamespace(get_encoder_names=lambda: ["resnet18", "mit_b0"])
    _library(monkeypatch, "segmentation_models_pytorch", Unet=lambda **_: nets.Skip(), encoders=encoders)
    with pytest.raises(InputError) as caught:
        load_spec("smp:Unet?encoder_name=resnet81", {})
    assert caught.value.hint == "Did you mean resnet18?"
    for name in ("resnet18", "tu-resnet81"):
        assert isinstance(load_spec(f"smp:Unet?encoder_name={name}", {}), nets.Skip)


_SOURCES = {
    "timm/__init__.py": "from .models import create_model",
    "timm/models/resnet.py": """
@register_model
def resnet18(pretrained=False, **kwargs):
    pass

@register_model
def resnet50(pretrained=False, **kwargs):
    pass

register_model_deprecations(__name__, {"tv_resnet18": "resnet18.tv"})
""",
    "torchvision/__init__.py": "raise ImportError('imported')",
    "torchvision/models/quantization/mobile.py": """
@register_model(
    name="quantized_mobilenet_v2",
)
@handle_legacy_interface(
    weights=("pretrained", None),
)
def mobilenet_v2(*, weights=None):
    pass
""",
    "segmentation_models_pytorch/__init__.py": "from .decoders.unet import Unet\nfrom .decoders.v3 import V3, V3Plus",
}


@pytest.mark.parametrize(
    ("spec", "meant"),
    {
        "timm:resnet81": "resnet18",
        "timm:resnet81.a1_in2k?num_classes=3": "resnet18",
        "torchvision:mobilnet_v2": "mobilenet_v2",
        "smp:Unett?classes=2": "Unet",
        "smp:V3Pluss": "V3Plus",
        "torchvison:mobilenet_v2": "torchvision",
        "tim:resnet18": "timm",
        "timm:resnet18": "",
        "timm:tv_resnet18": "",
        "timm:create_model": "",
        "timm:creat_model": "",
        "timm:hf-hub:some/resnet81": "",
        "torchvision:quantized_mobilenet_v2": "",
        "mine:resnet18": "",
        "tims:build": "",
        "nets.py:resnet81": "",
        "models/timm.py:resnet81": "",
    }.items(),
)
def test_near_names_are_told_before_anything_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: str, meant: str
) -> None:
    for name, text in {**_SOURCES, "tims.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def require_torch() -> None:
        raise EnvironmentMissing("torch is asked for")

    monkeypatch.setattr(exporter, "require_torch", require_torch)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError if meant else EnvironmentMissing) as caught:
        exporter.export_spec(exporter.ExportRequest(spec, tmp_path / "m.onnx"))
    assert not meant or caught.value.hint == f"Did you mean {meant}?"


def test_a_folder_that_is_not_there_is_told_before_transformers_is_imported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        check_name(f"transformers:{tmp_path}/gone")
    check_name(f"transformers:{tmp_path}")
    check_name("transformers:AutoModel")


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
