"""Reports as a pipeline returns them, and a pipeline that does as it is told."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

from support.paths import ROOT
from trtconv.core.dims import InputRange, Range, ShapeProfile
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.documents.check import CheckReport, ParserVerdict
from trtconv.core.documents.parts import EngineIdentity, FileIdentity, RuntimeIdentity
from trtconv.core.documents.rewrite import Comparison, Edit, RewriteReport, Skip
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.target import Target

FINDING = Finding(
    "TC101",
    "output-padding-misread",
    "output_padding 1 is ignored with auto_pad=VALID",
    Severity.ERROR,
    Location("", 5, "up1", "ConvTranspose"),
    "Run trtconv rewrite.",
)
MODEL = FileIdentity("m.onnx", "0" * 64)
TARGET = Target("rtx", (1, 7))


def build_report(**changes: Any) -> BuildReport:
    shapes = InputRange((1, 3, 64, 64), (1, 3, 256, 256), (4, 3, 512, 512))
    profile = ShapeProfile({"x": shapes}, {"height": Range(64, 256, 512)})
    report = BuildReport(
        model=MODEL,
        plan=BuildPlan(TARGET, (profile,)),
        runtime=RuntimeIdentity("rtx", "1.7.1.116"),
        edits=(Edit("make-deconv-explicit", "up1", "output_padding 1 into the end pads"),),
        engine=EngineIdentity("m.engine", "1" * 64, 1_234_567),
        io=(TensorInfo("x", "input", "float", (-1, 3, -1, -1)),),
        seconds={"load": 0.1, "build": 1.5},
    )
    return dataclasses.replace(report, **changes)


def check_report(**changes: Any) -> CheckReport:
    parser = ParserVerdict("rtx", "1.7.1.116", True)
    return dataclasses.replace(CheckReport(MODEL, TARGET, (FINDING,), parser, 1), **changes)


def rewrite_report(**changes: Any) -> RewriteReport:
    report = RewriteReport(
        MODEL,
        FileIdentity("out.onnx", "2" * 64, 2048),
        (Edit("make-deconv-explicit", "up1", "auto_pad into pads"),),
        (Skip("dilate-deconv-kernel", "up2", "weight is not constant"),),
        Comparison(1.5e-7, None, {"x": (1, 3, 64, 64)}),
    )
    return dataclasses.replace(report, **changes)


class FakePipeline(types.ModuleType):
    """Remembers what it was asked, and returns a report or raises what the test put into `result`."""

    def __init__(self) -> None:
        super().__init__("trtconv.pipeline")
        self.__path__ = [str(ROOT / "trtconv" / "pipeline")]
        self.requests: list[Any] = []
        self.result: Any = None
        self.meanwhile: Callable[[], None] = lambda: None

    def _answer(self, request: Any, progress: Any, default: Any) -> Any:
        self.requests.append(request)
        with progress.stage("build"):
            progress.phase("timing", 1, 3)
            self.meanwhile()
        if isinstance(self.result, BaseException):
            raise self.result
        return default if self.result is None else self.result

    def build(self, request: Any, progress: Any = None) -> Any:
        return self._answer(request, progress, build_report())

    def check(self, request: Any, progress: Any = None) -> Any:
        return self._answer(request, progress, check_report())

    def rewrite(self, request: Any, progress: Any = None) -> Any:
        return self._answer(request, progress, rewrite_report())


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a call ended."""

    code: int
    out: str
    err: str
