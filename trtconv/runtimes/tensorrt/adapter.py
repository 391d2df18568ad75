"""TensorRT and TensorRT-RTX behind the `Runtime` protocol.

One adapter serves both families and every version: where they differ, it asks whether an attribute is there
(`probe`), never what the version is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trtconv.core import foreign
from trtconv.core.errors import BuildFailed
from trtconv.runtimes.tensorrt import plugins, tactics
from trtconv.runtimes.tensorrt.base import Capabilities, ParsedNetwork, ParserIssue, PluginCreator, RuntimeInfo
from trtconv.runtimes.tensorrt.engine_base import EngineLoader
from trtconv.runtimes.tensorrt.gpu import gpu_name
from trtconv.runtimes.tensorrt.logger import Log
from trtconv.runtimes.tensorrt.messages import clean, distinct, refusal
from trtconv.runtimes.tensorrt.network import Handles, Network


def _text(read: Callable[[], str]) -> str:
    """Reads a message; some repeat bytes of the model that are no text."""
    try:
        return read()
    except UnicodeDecodeError:
        return "TensorRT's ONNX parser refused the node, with a message that is not text"


def probe(trt: Any) -> Capabilities:
    """Finds out what a TensorRT module can do by the presence of attributes."""
    strong = hasattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
    return Capabilities(
        # TensorRT 10 has both; typed strongly it means the same as its successors.
        builder_precision_flags=hasattr(trt.BuilderFlag, "FP16") and not strong,
        explicit_batch_flag=hasattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH"),
        progress_monitor=hasattr(trt, "IProgressMonitor"),
        parser_node_names=hasattr(trt.ParserError, "node_name"),
        # Only a runtime that can be told which GPU to build for does not need one to build.
        builds_without_gpu=hasattr(trt.IBuilderConfig, "set_compute_capability"),
        # TensorRT-RTX measures on the user's machine; setting a cache only makes its builder ask for a GPU.
        timing_cache=not hasattr(trt.IBuilderConfig, "set_compute_capability"),
        algorithm_selector=tactics.has_selector(trt),
        editable_timing_cache=tactics.has_editable_cache(trt),
    )


class Installed:
    """A TensorRT that is installed and works here; implements `Runtime`.

    Args:
        family: "rtx" or "tensorrt".
        trt: The imported module.
        keeps_network: Whether a network lives until the next one is parsed.

    Raises:
        TypeError: No builder can be made (pybind11's way to say that the C++ function returned null).
        RuntimeError: The same, in newer versions.
    """

    def __init__(self, family: str, trt: Any, keeps_network: bool = False) -> None:
        self._trt = trt
        self._log = Log(trt)
        self._capabilities = probe(trt)
        self._family = family
        self._keeps_network = keeps_network
        self._network: Network | None = None
        with self._log.session() as session:
            try:
                self._builder = trt.Builder(self._log.logger)
            except (TypeError, RuntimeError) as error:
                reasons = [r.text for r in session.records if r.is_error]
                raise type(error)("\n".join(reasons) or str(error)) from error

    @property
    def info(self) -> RuntimeInfo:
        """Family, version, GPU and capabilities."""
        return RuntimeInfo(self._family, self._trt.__version__, gpu_name(), self._capabilities)

    def creators(self) -> tuple[PluginCreator, ...]:
        """Returns the plugins that there are, by name."""
        plugins.prepare(self._family, self._trt, self._log)
        return tuple(plugins.creators(self._trt)) if plugins.takes_plugins(self._trt) else ()

    def engines(self) -> EngineLoader:
        """Returns what runs the engines that are built here."""
        from trtconv.runtimes.tensorrt.engine import Engines

        return Engines(self._family, self._trt, self._log)

    def parse(self, model: bytes, path: Path) -> ParsedNetwork | tuple[ParserIssue, ...]:
        """Parses an ONNX model; see `Runtime.parse`."""
        network, issues = self._network_of(model, path)
        if network is not None:
            return network
        # Loaded only here: most models are accepted, and it needs onnx.
        from trtconv.runtimes.tensorrt import refusals

        return refusals.all_issues(model, issues, lambda variant: self._parse_once(variant, path)[1], self._knows)

    def accept(self, model: bytes | memoryview, path: Path) -> ParsedNetwork | None:
        """Parses as `parse`; None where the parser refuses a node, whichever, and whatever else it would refuse."""
        return self._network_of(model, path)[0]

    def _network_of(self, model: bytes | memoryview, path: Path) -> tuple[Network | None, tuple[ParserIssue, ...]]:
        plugins.prepare(self._family, self._trt, self._log)
        # There are never two at a time.
        self._network = None
        handles, issues = self._parse_once(model, path)
        if issues:
            return None, issues
        serialized = tuple(str(library.path.absolute()) for library in foreign.current().serialized)
        network = Network(self._trt, self._log, self._capabilities, handles, serialized)
        self._network = network if self._keeps_network else None
        return network, ()

    def _parse_once(self, model: bytes | memoryview, path: Path) -> tuple[Handles, tuple[ParserIssue, ...]]:
        """Parses once, and lists what the parser itself reports, which may be its first complaint only."""
        trt = self._trt
        with self._log.session() as session:
            network = self._builder.create_network(self._network_flags())
            # Else it is called by a number, and no two engines that a process builds are the same.
            network.name = "network"
            parser = trt.OnnxParser(network, self._log.quiet)
            try:
                accepted = parser.parse(model, _as_text(path))
            except (MemoryError, RuntimeError, TypeError, ValueError) as error:
                session.raise_failure()
                raise BuildFailed(f"TensorRT's ONNX parser broke down: {clean(str(error))}") from error
            issues = tuple(self._issue(parser.get_error(i)) for i in range(parser.num_errors))
            if not accepted and not issues:
                issues = (ParserIssue(-1, "", "", self._logged(model, path)),)
            # Bytes that are no model at all are "accepted", with nothing in them.
            if accepted and network.num_outputs == 0:
                issues = (ParserIssue(-1, "", "", "there is no graph with an output in the model"),)
        return Handles(self._builder, network, parser), issues if not accepted or network.num_outputs == 0 else ()

    def _logged(self, model: bytes | memoryview, path: Path) -> str:
        """Parses a refused model again for what the parser logs, since its list of errors is empty."""
        with self._log.session() as session:
            network = self._builder.create_network(self._network_flags())
            self._trt.OnnxParser(network, self._log.logger).parse(model, _as_text(path))
            text = "\n".join(distinct(r.text for r in session.records if r.is_error))
        return text or "TensorRT's ONNX parser refused the model without a reason"

    def _network_flags(self) -> int:
        # Those that have no EXPLICIT_BATCH are typed strongly in any case.
        if not self._capabilities.explicit_batch_flag:
            return 0
        flags = self._trt.NetworkDefinitionCreationFlag
        strong = 0 if self._capabilities.builder_precision_flags else 1 << int(flags.STRONGLY_TYPED)
        return strong | 1 << int(flags.EXPLICIT_BATCH)

    def _issue(self, error: Any) -> ParserIssue:
        has_names = self._capabilities.parser_node_names
        return ParserIssue(
            node_index=max(error.node(), -1),
            node_name=error.node_name() if has_names else "",
            op=error.node_operator() if has_names else "",
            message=refusal(_text(error.desc)),
            inside=tuple(error.local_function_stack()) if hasattr(error, "local_function_stack") else (),
        )

    def _knows(self, op: str) -> bool:
        """Whether the parser has an importer for a standard operator."""
        with self._log.session():
            network = self._builder.create_network(self._network_flags())
            return bool(self._trt.OnnxParser(network, self._log.logger).supports_operator(op))


def _as_text(path: Path) -> str:
    """Returns a path for the parser, which wants it for the folder of external data alone, and takes only UTF-8."""
    text = str(path)
    if text.encode(errors="replace").decode() == text:
        return text
    return str(path.with_name("model.onnx")).encode(errors="replace").decode()
