"""The only door to TensorRT: one protocol, one adapter a family, capabilities probed once by attribute."""

from trtconv.runtime.base import (
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
from trtconv.runtime.loader import available, load
from trtconv.runtime.logger import follow_log

__all__ = [
    "BuildMonitor",
    "Capabilities",
    "DeconvLayer",
    "EngineBlob",
    "ParsedNetwork",
    "ParserIssue",
    "Runtime",
    "RuntimeInfo",
    "RuntimeStatus",
    "available",
    "follow_log",
    "load",
]
