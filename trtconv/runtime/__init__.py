"""The only door to TensorRT: one protocol, one adapter a family, capabilities probed once by attribute."""

from trtconv.runtime.base import (
    BuildMonitor,
    Capabilities,
    DeconvLayer,
    Engine,
    EngineBlob,
    EngineLoader,
    Execution,
    ParsedNetwork,
    ParserIssue,
    Runtime,
    RuntimeInfo,
    RuntimeStatus,
)
from trtconv.runtime.loader import available, load, load_engines
from trtconv.runtime.logger import follow_log

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
    "Runtime",
    "RuntimeInfo",
    "RuntimeStatus",
    "available",
    "follow_log",
    "load",
    "load_engines",
]
