"""An engine file and its report: is it the one that was built, and may it be loaded here?"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from trtconv.core import foreign, signatures
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.decode import Fault, checked_schema, decoded, json_of
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.parts import CodeIdentity, FileIdentity
from trtconv.core.documents.quantize import QuantizeReport
from trtconv.core.documents.saved import SavedReport, load_report
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.file_kinds import ENGINE, kind_of
from trtconv.core.files import real_path, report_beside, with_ending
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, read_plain
from trtconv.core.target import Target
from trtconv.runtimes.tensorrt import Engine, EngineLoader

_BUILD_AGAIN = "Build it again; or, if you know where it comes from, --trust loads it without its report."


@frozen
class EngineFile:
    """An engine file.

    Args:
        path: The file.
        data: Its content.
        sha256: Of the content.
        report: What `trtconv build` wrote of it; None where there is no such report, and the engine is trusted.
        trusted: Whether the user, or a signature, vouches for it; a report does not: who can replace one file can
            replace both.
        signed_by: Fingerprint of the key whose signature of it was checked; None where none was asked for.
    """

    path: Path
    data: bytes
    sha256: str
    report: SavedReport | None
    trusted: bool = False
    signed_by: str | None = None

    @property
    def build(self) -> BuildReport | None:
        """What its report says; None where there is none."""
        return None if self.report is None else self.report.report

    @property
    def options(self) -> BuilderOptions:
        """The builder's options that it was built with; the usual ones where that is not known."""
        return BuilderOptions() if self.build is None else self.build.plan.options

    @property
    def plugins(self) -> tuple[CodeIdentity, ...]:
        """The libraries of plugins that it was built with, as far as is known."""
        return () if self.build is None else self.build.plan.plugins

    @property
    def has_host_code(self) -> bool:
        """Whether it brings code that runs outside the GPU, as far as is known."""
        return self.build is not None and self.build.plan.has_host_code

    @property
    def family(self) -> str | None:
        """The TensorRT that made it, as far as is known."""
        return None if self.build is None else self.build.runtime.family

    def identity(self) -> FileIdentity:
        """Returns path, SHA-256 and bytes, and who signed it where that was checked."""
        return FileIdentity(str(self.path), self.sha256, len(self.data), self.signed_by)


def read_engine(path: Path, report: Path | None, *, trust: bool, key: Path | None) -> EngineFile:
    """Reads an engine file and its report. Nothing of the engine is run.

    Args:
        path: The engine.
        report: Its report; None: beside it, with ".json" appended.
        trust: Whether the user vouches for an engine that has no report, or another one.
        key: A public key whose owner must have signed the report.

    Raises:
        InputError: A file cannot be read; the engine is not the one of its report; there is no report, and no trust;
            it is not signed by whom it should be.
        EnvironmentMissing: What checks signatures is not installed.
    """
    data = _content(path)
    sha256 = hashlib.sha256(data).hexdigest()
    beside = report or report_beside(path)
    if report is None and not beside.exists():
        if trust and key is None:
            return EngineFile(path, data, sha256, None, trust)
        if key is not None:
            raise InputError(
                f"{path} has no report {beside.name}, which the signature would be in",
                "Take it from where the engine was built; build --sign writes both. --report says where it lies.",
            )
        raise InputError(
            f"{path} has no report {beside.name}, and loading an engine runs code that is in it",
            "Give its report with --report, or --trust if you know where the engine comes from.",
        )
    saved = load_report(beside)
    signed_by = None if key is None else signatures.require_signature(saved.document, key, beside)
    identity = saved.report.engine or FileIdentity("")
    if identity.sha256 == sha256:
        return EngineFile(path, data, sha256, saved, trust or key is not None, signed_by)
    if trust and key is None:
        return EngineFile(path, data, sha256, None, trust)
    cut = f"; it has {len(data)} bytes instead of {identity.bytes}" if identity.bytes not in (None, len(data)) else ""
    raise InputError(
        f"{path} is not the engine that {beside.name} tells of: it was altered, cut short or replaced{cut}",
        _BUILD_AGAIN if key is None else "Build it again, or take both files from where they were built.",
    )


def _content(path: Path) -> bytes:
    """Returns what is in a file that looks like an engine."""
    try:
        data = read_plain(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}", "Build it first: trtconv build MODEL."
        ) from error
    if not data:
        raise InputError(f"{path} is empty", "Build it again.")
    if path.suffix == ".onnx":
        raise InputError(
            f"{path} is an ONNX model, where an engine is wanted", f"Build it: trtconv build {shlex.quote(str(path))}"
        )
    kind = kind_of(path)
    if kind is not None and kind is not ENGINE:
        raise InputError(f"{path} is {kind.name}, not an engine", "Give a file that trtconv build made.")
    return data


def engine_of(model: Path, sha256: str) -> Path:
    """Returns the engine of a model that nobody named: MODEL.engine, which need not be there; or MODEL.TARGET.engine.

    Args:
        model: The model.
        sha256: Of it.

    Raises:
        InputError: Several engines were built from it.
    """
    usual = with_ending(model, ".engine")
    others = sorted(model.parent.glob(f"{glob.escape(model.stem)}.*.engine"))
    engines: dict[Path, tuple[Path, Target]] = {}
    for path in (usual, *others):
        with contextlib.suppress(OSError):
            if not path.exists():
                continue
            try:
                report = load_report(report_beside(path)).report
            except InputError:
                if path == usual:
                    # Whoever opens it says what is wrong with its report.
                    return usual
                continue
            if report.model.sha256 == sha256:
                # A link to an engine is no other one.
                engines.setdefault(real_path(path), (path, report.plan.target))
    if len(engines) > 1:
        paths = ", ".join(f"{path} (for {target})" for path, target in engines.values())
        raise InputError(f"{model} has several engines: {paths}", "Name the one that is meant, after the model.")
    return next((path for path, _ in engines.values()), usual)


def require_model(subject: EngineFile, model: Path, sha256: str) -> None:
    """Checks that an engine was built from a model.

    Raises:
        InputError: Its report says that it was another one.
    """
    if subject.report is None or subject.report.report.model.sha256 == sha256:
        return
    built_from = subject.report.report.model.path
    if _quantized_model(subject.report.path) == sha256:
        words = ("trtconv", "verify", built_from, str(subject.path), "--against", str(model))
        raise InputError(
            f"{subject.path} was built from {built_from}, which is {model} quantised",
            f"Compare it with both: {shlex.join(words)}",
        )
    raise InputError(
        f"{subject.path} was built from another version of {built_from} than {model} is",
        "Build the engine again, or give the model that it was built from.",
    )


def _quantized_model(report: Path) -> str | None:
    """Returns the SHA-256 of the float model that was quantised for an engine; None where nothing tells of one."""
    record = report.with_name(f"{report.name.removesuffix('.json')}.quantize.json")
    try:
        return decoded(QuantizeReport, checked_schema(json_of(read_plain(record, DOCUMENT_BYTES)))).model.sha256
    except (OSError, InputError, Fault):
        return None


def require_machine(subject: EngineFile, engines: EngineLoader, *, with_weights: bool = True) -> None:
    """Checks that an engine was built for the TensorRT and the GPU that are here.

    Args:
        subject: The engine.
        engines: What would run it.
        with_weights: Whether it has to have its weights.

    Raises:
        EnvironmentMissing: It was built for others.
        InputError: It was built without weights, or with a library of plugins that was not given.
    """
    if subject.build is None:
        return
    _require_plugins(subject)
    runtime = subject.build.runtime
    if with_weights and subject.options.strip_weights:
        raise InputError(
            f"{subject.path} was built without its weights, and computes nothing before it is refitted",
            "Give the file that has them with --weights MODEL.onnx (bench, run), or put them in for good: "
            f"trtconv refit {shlex.quote(str(subject.path))} MODEL.onnx -o OUT.engine.",
        )
    _require_lean(subject, other=runtime.version != engines.version)
    if runtime.version != engines.version and not subject.options.version_compatible:
        raise EnvironmentMissing(
            f"{subject.path} was built by {runtime}, and {engines.family} {engines.version} is installed",
            "Build it again here, or install the version that built it.",
        )
    # An engine of TensorRT-RTX is built for kinds of GPUs, not for the one that is there.
    if engines.family != "tensorrt" or subject.options.hardware != "none":
        return
    if runtime.gpu != engines.gpu_name:
        raise EnvironmentMissing(
            f"{subject.path} was built for {runtime.gpu}, and the GPU here is {engines.gpu_name}",
            "Build it again here: TensorRT chose its kernels for the GPU that it was built on.",
        )


def _require_lean(subject: EngineFile, *, other: bool) -> None:
    """Checks that a lean runtime is given where an engine needs one, and only where it takes one.

    Args:
        subject: The engine.
        other: Whether another version of TensorRT built it.
    """
    files = foreign.current().lean
    if files and not subject.options.version_compatible:
        raise InputError(
            f"--lean-runtime {files[-1].path}: {subject.path} was not built with --version-compatible",
            "Leave it out: the TensorRT that is installed runs the engine.",
        )
    if other and subject.options.exclude_lean_runtime and not files:
        raise InputError(
            f"{subject.path} was built by another version of TensorRT, with --exclude-lean-runtime",
            "Give the lean runtime of that version: --lean-runtime libnvinfer_lean.so.",
        )


def _require_plugins(subject: EngineFile) -> None:
    """Checks that the libraries of plugins that are given are those that an engine was built with."""
    hashes = {plugin.sha256 for plugin in foreign.current().plugins}
    for plugin in subject.plugins:
        if not plugin.serialized and plugin.sha256 not in hashes:
            what = "another library is given" if hashes else "no library is given"
            raise InputError(
                f"{subject.path} was built with the plugins of {plugin.file} (SHA-256 {plugin.sha256}), and {what}",
                f"Give the same file: --plugin {shlex.quote(plugin.file)}.",
            )


def require_stripped(subjects: Sequence[EngineFile], weights: Path | None) -> None:
    """Raises InputError where weights are given, and no engine lacks them."""
    if weights is not None and not any(subject.options.strip_weights for subject in subjects):
        raise InputError(
            f"--weights {weights}: {subjects[0].path} has its weights",
            "Leave it out; trtconv refit puts other weights into an engine.",
        )


def load_into(engines: EngineLoader, subject: EngineFile) -> Engine:
    """Loads an engine that was checked, or is trusted.

    Raises:
        EngineFailed: TensorRT does not take it.
        InputError: It brings code for the host, and nobody vouches for it.
    """
    # One that runs on other versions, or has plugins in it, brings code. Its report says so, and is no signature.
    host_code = subject.has_host_code
    if host_code and not subject.trusted:
        kind = "is version-compatible" if subject.options.version_compatible else "has a library of plugins in it"
        raise InputError(
            f"{subject.path} {kind}: it brings code that runs on this machine outside the GPU",
            "If you know where the engine comes from, --trust loads it.",
        )
    return engines.load(subject.data, host_code=host_code)
