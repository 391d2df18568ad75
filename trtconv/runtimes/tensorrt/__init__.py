"""The only door to TensorRT: one protocol, one adapter a family, capabilities probed once by attribute."""

from trtconv.runtimes.tensorrt.base import (
    BuildMonitor,
    Capabilities,
    DeconvLayer,
    EngineBlob,
    ParsedNetwork,
    ParserIssue,
    Runtime,
    RuntimeInfo,
    RuntimeStatus,
)
from trtconv.runtimes.tensorrt.engine_base import (
    Engine,
    EngineLoader,
    Execution,
    ProfileTaken,
    RangeNames,
    Refitter,
    WeightKey,
)
from trtconv.runtimes.tensorrt.gpu import card
from trtconv.runtimes.tensorrt.loader import available, is_installed, keep_network, load, load_engines, open_libraries
from trtconv.runtimes.tensorrt.logger import follow_log

__all__ = [
    "BuildMonitor",
    "Capabilities",
    "DeconvLayer",
    "Engine",
    "EngineBlob",
    "EngineLoader",
    "Execution",
    "ParsedNetwork",
    "ParserIssue",
    "ProfileTaken",
    "RangeNames",
    "Refitter",
    "Runtime",
    "RuntimeInfo",
    "RuntimeStatus",
    "WeightKey",
    "available",
    "card",
    "follow_log",
    "is_installed",
    "keep_network",
    "load",
    "load_engines",
    "open_libraries",
]
