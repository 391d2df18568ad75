"""Networks of public libraries by name: `timm:resnet18`, `smp:Unet?encoder_name=resnet18`, `transformers:DIR`.

Each is made by the library itself, with random weights unless the files are here: nothing is downloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.suggest import did_you_mean
from trtconv.exporter.library_names import LIBRARIES
from trtconv.exporter.module.source_line import first_line

Arguments = Mapping[str, Any]


def _timm(library: Any, name: str, arguments: Arguments) -> Any:
    if ":" not in name and hasattr(library, "list_models"):  # "hf-hub:..." is a place
        _check_name("timm", name.partition(".")[0], library.list_models())
    return library.create_model(name, **arguments)


def _torchvision(library: Any, name: str, arguments: Arguments) -> Any:
    models = importlib.import_module("torchvision.models")
    _check_name("torchvision", name, models.list_models())
    return models.get_model(name, **{"weights": None, **arguments})


def _smp(library: Any, name: str, arguments: Arguments) -> Any:
    _check_name("smp", name, [attribute for attribute in vars(library) if attribute[0].isupper()])
    for encoder in (str(value) for key, value in arguments.items() if key == "encoder_name"):
        if not encoder.startswith("tu-") and hasattr(library, "encoders"):  # "tu-" begins those of timm
            _check_name("smp.encoders", encoder, library.encoders.get_encoder_names())
    return getattr(library, name)(**{"encoder_weights": None, **arguments})


def _check_name(scheme: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        hint = did_you_mean(name, names, f"Their names are those of {LIBRARIES[scheme.partition('.')[0]].package}.")
        raise InputError(f"{scheme} has no network {name!r}", hint)


def _transformers(library: Any, name: str, arguments: Arguments) -> Any:
    if not Path(name).is_dir():
        raise InputError(f"transformers:{name}: there is no folder {name}", "Name one with config.json and weights.")
    config = library.AutoConfig.from_pretrained(name, local_files_only=True)
    (kind, *_) = config.architectures or ["AutoModel"]
    return getattr(library, kind).from_pretrained(name, local_files_only=True, **arguments)


_MAKERS: dict[str, Callable[[Any, str, Arguments], Any]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "smp": _smp,
    "transformers": _transformers,
}


def maker_of(scheme: str, name: str) -> Callable[..., Any] | None:
    """Returns what makes a network of a library by name, None where the SPEC means something else.

    Args:
        scheme: What stands before the colon.
        name: What stands behind it. An attribute of the package itself is no name of a network: `timm:create_model`.

    Raises:
        EnvironmentMissing: The library is not installed.
        InputError: The library cannot be imported.
    """
    if scheme not in _MAKERS:
        return None
    package, make = LIBRARIES[scheme].package, _MAKERS[scheme]
    try:
        library = importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise EnvironmentMissing(f"{scheme}:{name} needs {error.name}", f"pip install {error.name}") from error
    except Exception as error:
        raise InputError(
            f"{package} cannot be imported: {first_line(error)}", "Install a version of it that goes with this torch."
        ) from error
    if scheme == package and hasattr(library, name) and not Path(name).is_dir():
        return None

    def maker(**arguments: Any) -> Any:
        return make(library, name, arguments)

    return maker


def load_ultralytics(path: Path) -> torch.nn.Module:
    """Reads a checkpoint of ultralytics, which is a pickle, through that library; runs whatever code is in it.

    Raises:
        EnvironmentMissing: ultralytics is not installed.
        InputError: The file is no such checkpoint.
    """
    try:
        from ultralytics import YOLO
    except ModuleNotFoundError as error:
        raise EnvironmentMissing(f"{path} needs {error.name}", f"pip install {error.name}") from error
    try:
        module: torch.nn.Module = YOLO(path).model.float()
    except Exception as error:
        raise InputError(f"{path} is not a checkpoint of ultralytics: {first_line(error)}", "") from error
    for part in module.modules():
        # What its own exporter sets: one tensor out of the head, anchors for every size.
        if hasattr(part, "export") and hasattr(part, "dynamic"):
            part.export = part.dynamic = True
    return module
