"""trtconv: ONNX models made into TensorRT engines.

`trtconv.build(BuildRequest(...))`, `trtconv.check(CheckRequest(...))`, `trtconv.rewrite(RewriteRequest(...))`, and
`verify`, `bench`, `refit` and `inspect` with their requests do what the commands of the same names do, and return a
report instead of printing one. Names are looked up when they are first used, so that `import trtconv` loads nothing
heavy.
"""

from __future__ import annotations

from trtconv.core.version import __version__

TYPE_CHECKING = False  # What typing.TYPE_CHECKING is; spares the import of typing.
if TYPE_CHECKING:
    from trtconv.core.builder_options import BuilderOptions
    from trtconv.core.dims import Range
    from trtconv.core.documents.bench import BenchReport
    from trtconv.core.documents.build import BuildReport
    from trtconv.core.documents.check import CheckReport
    from trtconv.core.documents.rewrite import Edit, RewriteReport
    from trtconv.core.documents.saved import SavedReport, load_report
    from trtconv.core.documents.verify import VerifyReport
    from trtconv.core.errors import (
        BuildFailed,
        EngineFailed,
        EnvironmentMissing,
        ExportFailed,
        InputError,
        TrtconvError,
    )
    from trtconv.core.findings import Finding, Severity
    from trtconv.core.progress import NullProgress, Progress
    from trtconv.core.requests.bench import BenchRequest
    from trtconv.core.requests.build import BuildRequest
    from trtconv.core.requests.check import CheckRequest
    from trtconv.core.requests.engine import InspectRequest, Limits, RefitRequest, RunRequest, VerifyRequest
    from trtconv.core.requests.rewrite import RewriteRequest
    from trtconv.core.requests.upgrade import UpgradeRequest
    from trtconv.core.target import Target
    from trtconv.engine import bench, inspect, refit, run, run_pipeline, verify, verify_pipeline
    from trtconv.engine.pipelines import Pipeline, load_pipeline
    from trtconv.exporter import ConvertReport, ExportOptions, ExportReport, ExportRequest, convert, export, export_spec
    from trtconv.exporter.parts import ExportPart, OutputOf
    from trtconv.exporter.translations import node, translation
    from trtconv.passes.base import NodePass, Pass, PassResult, Refusal
    from trtconv.pipeline.building import build
    from trtconv.pipeline.checking import check
    from trtconv.pipeline.partitioning import build_pipeline
    from trtconv.pipeline.rewriting import rewrite
    from trtconv.pipeline.upgrading.upgrade import upgrade
    from trtconv.plugins.registry import reference
    from trtconv.rules.base import Rule
    from trtconv.rules.operator import OperatorRule
    from trtconv.shapes.lattice.registry import operator
    from trtconv.shapes.report import SizesReport, SizesRequest, sizes

__all__ = [
    "BenchReport",
    "BenchRequest",
    "BuildFailed",
    "BuildReport",
    "BuildRequest",
    "BuilderOptions",
    "CheckReport",
    "CheckRequest",
    "ConvertReport",
    "Edit",
    "EngineFailed",
    "EnvironmentMissing",
    "ExportFailed",
    "ExportOptions",
    "ExportPart",
    "ExportReport",
    "ExportRequest",
    "Finding",
    "InputError",
    "InspectRequest",
    "Limits",
    "NodePass",
    "NullProgress",
    "OperatorRule",
    "OutputOf",
    "Pass",
    "PassResult",
    "Pipeline",
    "Progress",
    "Range",
    "RefitRequest",
    "Refusal",
    "RewriteReport",
    "RewriteRequest",
    "Rule",
    "RunRequest",
    "SavedReport",
    "Severity",
    "SizesReport",
    "SizesRequest",
    "Target",
    "TrtconvError",
    "UpgradeRequest",
    "VerifyReport",
    "VerifyRequest",
    "__version__",
    "bench",
    "build",
    "build_pipeline",
    "check",
    "convert",
    "export",
    "export_spec",
    "inspect",
    "load_pipeline",
    "load_report",
    "node",
    "operator",
    "reference",
    "refit",
    "rewrite",
    "run",
    "run_pipeline",
    "sizes",
    "translation",
    "upgrade",
    "verify",
    "verify_pipeline",
]

_HOMES = {
    "trtconv.engine": ("bench", "inspect", "refit", "run", "run_pipeline", "verify", "verify_pipeline"),
    "trtconv.engine.pipelines": ("Pipeline", "load_pipeline"),
    "trtconv.pipeline.partitioning": ("build_pipeline",),
    "trtconv.pipeline.upgrading.upgrade": ("upgrade",),
    "trtconv.core.errors": (
        "BuildFailed",
        "EngineFailed",
        "EnvironmentMissing",
        "ExportFailed",
        "InputError",
        "TrtconvError",
    ),
    "trtconv.exporter": (
        "ConvertReport",
        "ExportOptions",
        "ExportReport",
        "ExportRequest",
        "convert",
        "export",
        "export_spec",
    ),
    "trtconv.pipeline": ("build", "check", "rewrite"),
    "trtconv.core.documents.build": ("BuildReport",),
    "trtconv.core.documents.check": ("CheckReport",),
    "trtconv.core.documents.bench": ("BenchReport",),
    "trtconv.core.documents.verify": ("VerifyReport",),
    "trtconv.core.documents.rewrite": ("Edit", "RewriteReport"),
    "trtconv.core.findings": ("Finding", "Severity"),
    "trtconv.passes.base": ("NodePass", "Pass", "PassResult", "Refusal"),
    "trtconv.rules.base": ("Rule",),
    "trtconv.rules.operator": ("OperatorRule",),
    "trtconv.shapes.lattice.registry": ("operator",),
    "trtconv.core.requests.build": ("BuildRequest",),
    "trtconv.core.requests.check": ("CheckRequest",),
    "trtconv.core.requests.rewrite": ("RewriteRequest",),
    "trtconv.core.requests.upgrade": ("UpgradeRequest",),
    "trtconv.core.target": ("Target",),
    "trtconv.core.progress": ("NullProgress", "Progress"),
    "trtconv.core.requests.bench": ("BenchRequest",),
    "trtconv.core.requests.engine": ("InspectRequest", "Limits", "RefitRequest", "RunRequest", "VerifyRequest"),
    "trtconv.core.documents.saved": ("SavedReport", "load_report"),
    "trtconv.core.builder_options": ("BuilderOptions",),
    "trtconv.core.dims": ("Range",),
    "trtconv.exporter.parts": ("ExportPart", "OutputOf"),
    "trtconv.exporter.translations": ("node", "translation"),
    "trtconv.plugins.registry": ("reference",),
    "trtconv.shapes.report": ("SizesReport", "SizesRequest", "sizes"),
}


def __getattr__(name: str) -> object:
    """Imports a public name from its module when it is first used (PEP 562)."""
    for module, names in _HOMES.items():
        if name in names:
            import importlib

            value: object = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    if not name.startswith("_"):
        from trtconv.core.stability import current_name

        if new := current_name(name):
            return __getattr__(new)
    raise AttributeError(f"module 'trtconv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
