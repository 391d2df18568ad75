"""Plugins in TensorRT's registry: NVIDIA's own library, and those that a command was given.

The registry is one for the process, and TensorRT forgets no library: each is loaded once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from trtconv.core import foreign
from trtconv.core.agreement import AgreedCode
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.runtimes.tensorrt.base import PluginCreator
from trtconv.runtimes.tensorrt.library_file import broken, why_refused
from trtconv.runtimes.tensorrt.logger import Log
from trtconv.runtimes.tensorrt.messages import distinct

_FOR_LIBRARIES = "It must be a library of TensorRT plugins, built for this version of TensorRT and this machine."
_FIELDLESS = frozenset({"CaskConvShaderWeightsTransformerPlugin", "CaskDeconvShaderWeightsTransformerPlugin"})
"""Plugins of TensorRT's own, which writes internal errors to stderr where it is asked for their fields (8.6)."""
_loaded: set[AgreedCode] = set()
_initialised: set[str] = set()


def prepare(family: str, trt: Any, log: Log) -> None:
    """Has TensorRT know NVIDIA's plugins, where it has any, and those that the command was given.

    Args:
        family: "rtx" or "tensorrt".

    Raises:
        EnvironmentMissing: There are libraries, and this TensorRT takes no plugins.
        InputError: A library does not load, or was changed since it was agreed to.
    """
    if family == "tensorrt" and family not in _initialised and hasattr(trt, "init_libnvinfer_plugins"):
        with log.session():
            trt.init_libnvinfer_plugins(log.logger, "")
        _initialised.add(family)
    libraries = foreign.current().plugins
    if libraries and not takes_plugins(trt):
        raise EnvironmentMissing(
            f"TensorRT-RTX {trt.__version__} takes no plugins: its networks have no layer for them",
            "Build for the full TensorRT (--target tensorrt), or leave out --plugin.",
        )
    for library in libraries:
        if library not in _loaded:
            _load(trt, log, library)


def takes_plugins(trt: Any) -> bool:
    """Whether networks of a TensorRT have layers for plugins; without, its parser ends the process on a plugin."""
    return any(hasattr(trt.INetworkDefinition, f"add_plugin{version}") for version in ("_v3", "_v2", ""))


def creators(trt: Any) -> Iterator[PluginCreator]:
    """Yields what is in TensorRT's registry, by name."""
    registry = trt.get_plugin_registry()
    entries = registry.all_creators if hasattr(registry, "all_creators") else registry.plugin_creator_list
    for creator in sorted(entries, key=lambda entry: (entry.name, entry.plugin_version)):
        names = () if creator.name in _FIELDLESS else creator.field_names
        fields = tuple(field.name for field in names or ())
        yield PluginCreator(creator.name, creator.plugin_version, creator.plugin_namespace, fields)


def _load(trt: Any, log: Log, library: AgreedCode) -> None:
    library.require_unchanged()
    if sys.platform == "linux" and (why := broken(library.path)):
        raise InputError(f"{library.path} does not load: {why}", _FOR_LIBRARIES)
    with log.session() as session:
        try:
            # TensorRT refuses a name without a folder, which it would look for elsewhere.
            handle = trt.get_plugin_registry().load_library(str(library.path.absolute()))
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{library.path} does not load: {error}", _FOR_LIBRARIES) from error
        errors = "\n".join(distinct(record.text for record in session.records if record.is_error))
    if handle is None:
        reason = "; ".join(filter(None, (errors, why_refused(library.path))))
        raise InputError(f"{library.path} does not load: {reason}", _FOR_LIBRARIES)
    _loaded.add(library)
