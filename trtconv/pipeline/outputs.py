"""What a build writes, and whether what is there is up to date."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from trtconv.core import budget, codes, signatures
from trtconv.core.bounds import bounds_by_name, make_profile
from trtconv.core.dims import Range, ShapeProfile, dynamic_dims
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.images import HALVES, HEIGHT, WIDTH, ImageInput
from trtconv.core.documents.memory import Activations, MemoryRecord
from trtconv.core.documents.parts import CodeIdentity, EngineIdentity, FileIdentity, RuntimeIdentity
from trtconv.core.documents.previous import PreviousBuild
from trtconv.core.documents.saved import SavedReport, load_report
from trtconv.core.documents.tactics import Tactic
from trtconv.core.errors import InputError
from trtconv.core.files import source_checksum, streams_together
from trtconv.core.findings import Finding, Severity
from trtconv.core.frozen import frozen
from trtconv.core.hashing import Hashing
from trtconv.core.outputs import Output, check_all
from trtconv.core.reading import sha256_of
from trtconv.core.requests.base import Bounds
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.common import PROOFS
from trtconv.core.requests.files import files_read
from trtconv.core.spots import file_id
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.graph.external_data import refuse_other_kinds
from trtconv.graph.model import OnnxModel
from trtconv.graph.stored_bounds import stored_bounds
from trtconv.pipeline.parse import fails
from trtconv.runtimes.tensorrt import EngineBlob, ParsedNetwork, RuntimeInfo


def write_engine(request: BuildRequest, report: BuildReport, blob: EngineBlob | None, clock: Stopwatch) -> BuildReport:
    """Writes the report and, where there is one, the engine; of two builds into one file both are of the same.

    Returns:
        The report, signed where that is asked for.
    """
    report = dataclasses.replace(report, previous=_previous(request.report_path))
    outputs = [output for output in request.outputs if blob is not None or output.path == request.report_path]
    return write_report(report, None if blob is None else blob.data, outputs, request.sign, clock)


def _previous(report: Path) -> PreviousBuild | None:
    """Returns the build that a report tells of; None where there is none that can be read."""
    try:
        return load_report(report).report.summary
    except (OSError, InputError):
        return None


def with_network(
    report: BuildReport, network: ParsedNetwork, model: OnnxModel, memory: Sequence[Activations]
) -> BuildReport:
    """Keeps what the network takes of memory, and what a refit will hold the network of another model to.

    Args:
        report: The report so far.
        network: The parsed network.
        model: What the parser was given.
        memory: What activations take at max of each profile.
    """
    if memory:
        report = dataclasses.replace(report, memory=MemoryRecord(model.nbytes, tuple(memory)))
    if not report.plan.options.refits:
        return report
    # Loaded only here: most engines are never refitted.
    from trtconv.runtimes.network_record import record
    from trtconv.runtimes.plugin_layers import with_meanings

    return dataclasses.replace(report, network=record(with_meanings(network.read_back(), model)))


def write_report(
    report: BuildReport, data: memoryview | None, outputs: Sequence[Output], sign: Path | None, clock: Stopwatch
) -> BuildReport:
    """Writes a report and, where there is one, the engine; both or none.

    Args:
        report: The report.
        data: The engine; None where there is none.
        outputs: Where the engine goes, if there is one, and where the report goes.
        sign: A private key to sign them with; None for none.
        clock: Times it.

    Returns:
        The report, signed where that is asked for.
    """
    for output in outputs:
        # The work took its time, in a folder that others may write to.
        output.check()
    with streams_together({output.path: output.typed for output in outputs}) as files:
        if data is not None:
            with clock.stage(Stage.WRITE):
                files[0].write(data)
        if sign is not None and report.engine is not None:
            report = dataclasses.replace(report, signed_by=signatures.owner(sign))
            report = dataclasses.replace(report, signature=signatures.sign(report.to_json(), sign))
        files[-1].write((json.dumps(report.to_json(), indent=2) + "\n").encode())
    return report


def check_outputs(request: BuildRequest) -> None:
    """Raises InputError where an output of a build cannot be written, or would replace what it reads."""
    if request.sign is not None:
        signatures.require_private(request.sign)
    caches = [Output(path, "the timing cache", hint="Choose another --timing-cache.") for path in named_cache(request)]
    reads = files_read(request)
    if request.tactics_of is not None and file_id(request.tactics_of) == file_id(request.report_path):
        # An engine may be built again as its own report says, which is read before.
        reads = [entry for entry in reads if file_id(entry[1]) != file_id(request.report_path)]
    try:
        check_all([*request.outputs, *caches], reads)
    except InputError:
        if file_id(request.engine_path) == file_id(request.model):
            refuse_other_kinds(request.model)
        raise


def named_cache(request: BuildRequest) -> tuple[Path, ...]:
    """Returns the timing cache that the request names, if any."""
    return () if request.timing_cache is None else (request.timing_cache,)


def timing_cache(request: BuildRequest, info: RuntimeInfo) -> Path | None:
    """Returns the file of the timing cache: what was measured on one GPU with one version is of no use to others."""
    if not info.capabilities.timing_cache:
        return None
    if request.timing_cache is not None:
        return request.timing_cache
    gpu = re.sub(r"[^\w.+-]+", "-", info.gpu or "unknown")
    folder = request.timing_folder
    return None if folder is None else folder / f"{info.family}-{info.version}-{gpu}.timing"


def measured(request: BuildRequest) -> Path | None:
    """Returns the file of what `--tune` measured: beside the timing cache, or where those of all GPUs are."""
    if request.timing_cache is not None:
        return Path(f"{request.timing_cache}.tuned.json")
    return None if request.timing_folder is None else request.timing_folder / "tuned.json"


def cache_findings(request: BuildRequest, info: RuntimeInfo) -> tuple[Finding, ...]:
    """Tells whoever named a file for a timing cache that there is none; a folder stands for "if there is one"."""
    if request.timing_cache is None or info.capabilities.timing_cache:
        return ()
    message = "TensorRT-RTX has no timing cache: it chooses kernels on the machine that runs the engine"
    fix = "Leave out --timing-cache; TensorRT has one."
    return (codes.TIMING_CACHE_UNUSED.finding(message, Severity.INFO, fix=fix),)


def protect_data(model: OnnxModel, *outputs: Path) -> None:
    """Raises InputError where an output would overwrite the model's external data."""
    data = {file_id(path) for path in model.external_files}
    for path in outputs if data else ():
        if file_id(path) in data:
            raise InputError(f"{path} holds weights of the model", "Choose another output path with -o.")


def asked_profiles(model: OnnxModel, request: BuildRequest | CheckRequest) -> tuple[ShapeProfile, ...]:
    """Returns the profiles that a request asks for, before the lattice has its say.

    Dimensions that it does not bound have the bounds that the model was exported for, where it tells them.
    """
    budget.spend("profiles", len(request.profiles), "the engine")
    stored = stored_bounds(model)
    profiles = []
    sized = sides(model.images)
    for (number, own), sizes in itertools.product(enumerate(request.profiles or ({},)), sized):
        ranges = {**request.dims, **own, **sizes}
        by_name = bounds_by_name(model.inputs, ranges) if stored else {}
        rest = {name: bound for name, bound in stored.items() if name not in by_name}
        try:
            profiles.append(make_profile(model.inputs, {**rest, **ranges}, request.values))
        except InputError as error:
            if model.images is not None and not ranges.keys() <= dynamic_dims(model.inputs).keys():
                hint = "Sizes of images are what --preprocess size= or --images says: leave out the --dim of these."
                raise InputError(error.message, hint) from error
            hint = error.hint
            if error.lacks_bounds:
                # Loaded only here: most requests have all bounds.
                from trtconv.pipeline.size_trials import SizeTrials
                from trtconv.shapes.proposal import advise

                hint = advise(model, {**rest, **ranges}, hint, SizeTrials(model))
            bounds = ", ".join(f"{name}={bound.short}" for name, bound in own.items())
            which = f"profile {number} ({bounds}): " if len(request.profiles) > 1 else ""
            raise InputError(f"{which}{error.message}", hint, lacks_bounds=error.lacks_bounds) from error
    return tuple(profiles)


def sides(images: ImageInput | None) -> Sequence[Bounds]:
    """Returns for each size of the images that an engine takes what the dimensions of that name are."""
    if images is None or len(images.sizes) < 2:
        return ({},)
    heights, widths = ({size[axis] for size in images.sizes} for axis in (0, 1))
    axes = [(HEIGHT, 0, 1)] * (len(heights) > 1) + [(WIDTH, 1, 1)] * (len(widths) > 1)
    if images.chroma is not None:
        axes += [(HALVES[name], axis, 2) for name, axis, _ in axes]
    return [{name: Range(*[size[axis] // part] * 3) for name, axis, part in axes} for size in images.sizes]


def model_identity(model: OnnxModel) -> FileIdentity:
    """Returns path and SHA-256 of a model, its external data included."""
    return FileIdentity(str(model.path), model.digest())


def file_identity(
    path: Path, data: memoryview, hashing: Hashing, tactics: tuple[Tactic, ...] | None = None
) -> EngineIdentity:
    """Returns path, SHA-256 and size of a file that holds an engine, and the tactics that its layers have."""
    return EngineIdentity(str(path), hashing.result().hexdigest(), len(data), tactics=tactics)


def of_its_gpu(report: BuildReport) -> bool:
    """Whether the engine of a report depends on the GPU where it was built.

    One of TensorRT-RTX does not, but where something was measured there: the forms of `--tune`, the types of auto.
    """
    return report.runtime.family != "rtx" or report.plan.tune or report.plan.precision == "auto"


@frozen
class Identity:
    """What of a report determines the engine: the code and the model determine the rewritten one.

    Args:
        trtconv: The version of trtconv.
        source: The checksum of its code.
        plan: The plan, by key.
        runtime: The TensorRT that builds, with its GPU where the engine depends on it.
        model: SHA-256 of the model.
    """

    trtconv: str
    source: str
    plan: Mapping[str, object]
    runtime: RuntimeIdentity
    model: str | None

    @classmethod
    def of(cls, report: BuildReport) -> Identity:
        """Returns that of a report."""
        # Samples are told by their values (sampled), and code by its SHA-256, wherever they lie.
        plan = dataclasses.replace(
            report.plan,
            data=None,
            plugins=_nameless(report.plan.plugins),
            references=_nameless(report.plan.references),
            extensions=_nameless(report.plan.extensions),
        ).to_json()
        runtime = report.runtime if of_its_gpu(report) else dataclasses.replace(report.runtime, gpu=None)
        return cls(report.trtconv, report.source or source_checksum(), plan, runtime, report.model.sha256)

    def changes(self, new: Identity) -> str:
        """Returns in words what is another in a new one; nothing where they are equal."""
        keys = [key for key in {**self.plan, **new.plan} if self.plan.get(key) != new.plan.get(key)]
        changed = {
            "the model": self.model != new.model,
            f"what was asked for ({', '.join(keys)})": bool(keys),
            f"TensorRT ({_spoken(self.runtime)}, now {_spoken(new.runtime)})": self.runtime != new.runtime,
            f"trtconv ({self.trtconv}, now {new.trtconv})": self.trtconv != new.trtconv,
            "trtconv's code": self.trtconv == new.trtconv and self.source != new.source,
        }
        what = [part for part, is_so in changed.items() if is_so]
        return f"{' and '.join(what)} changed" if what else ""


def _nameless(code: tuple[CodeIdentity, ...]) -> tuple[CodeIdentity, ...]:
    return tuple(dataclasses.replace(identity, file="") for identity in code)


def _spoken(runtime: RuntimeIdentity) -> str:
    return " on ".join(filter(None, (f"{runtime.family} {runtime.version}", runtime.gpu)))


@frozen
class Stale:
    """Why what is there is built again.

    Args:
        why: In words; empty where there is nothing, or nothing of trtconv's.
    """

    why: str = ""


def standing(request: BuildRequest, draft: BuildReport, model: OnnxModel) -> BuildReport | Stale:
    """Returns a report of the engine that is there, if it was built from just this model, plan and runtime.

    Args:
        request: What to build.
        draft: The report that the build begins with.
        model: Its model, as it was loaded.
    """
    try:
        has_engine, has_report = request.engine_path.exists(), request.report_path.exists()
        if not has_engine or not has_report:
            reasons = {(True, False): "its report is missing", (False, True): "the engine's file is missing"}
            return Stale(reasons.get((has_engine, has_report), ""))
        saved = load_report(request.report_path)
        stale = _difference(request, draft, saved, (request.model, *model.external_files))
    except InputError:
        return Stale("its report is damaged, or was changed by hand")
    except OSError:
        return Stale("the engine's file cannot be read")
    if stale:
        return Stale(stale)
    owner = None if request.sign is None else signatures.owner(request.sign)
    report = dataclasses.replace(as_kept(draft, saved.report), signed_by=owner)
    findings, ignored = request.selection.divide((*report.findings, *(entry.finding for entry in report.ignored)))
    if fails(findings, request.fail_on):
        return Stale("it has findings that fail now")
    return dataclasses.replace(report, findings=findings, ignored=ignored)


def _difference(request: BuildRequest, draft: BuildReport, saved: SavedReport, sources: Sequence[Path]) -> str:
    """Returns why an engine is not the one that is asked for, made of these files; nothing where it is."""
    old = saved.report
    if not saved.is_intact:
        return "its report was changed by hand"
    if old.exit_code or old.engine is None:
        return "the last build failed"
    if old.contradiction(selected=bool(request.selection.select)):
        return "its report contradicts itself"
    if changes := Identity.of(old).changes(Identity.of(draft)):
        return changes
    # As make does: whoever touches a model wants it built.
    age = request.engine_path.stat().st_mtime_ns
    if newer := [path for path in sources if path.stat().st_mtime_ns > age]:
        return "the model's file is newer" if newer[0] == request.model else "the model's external data is newer"
    # Its size first: to hash what is another file may take long.
    same = request.engine_path.stat().st_size == old.engine.bytes
    if not same or sha256_of(request.engine_path) != old.engine.sha256:
        return "the engine's file was changed"
    # Whoever signs vouches for it, and it may have been put there by anybody.
    if request.sign is not None and not signatures.is_signed_by(saved.document, request.sign):
        return "it is not signed by this key"
    if PROOFS.index(request.prove) > PROOFS.index("none" if old.proof is None else old.proof.level or "none"):
        return "less was proven than is asked for now"
    return ""


def as_kept(draft: BuildReport, old: BuildReport) -> BuildReport:
    """Returns the report of a build that is up to date: with the results of an earlier one, whose engine is kept.

    Args:
        draft: What the build begins with.
        old: The report of the earlier one, of the same model, plan and runtime.
    """
    plan = dataclasses.replace(draft.plan, profiles=old.profiles)
    return dataclasses.replace(
        old,
        model=draft.model,
        plan=plan,
        runtime=draft.runtime,
        inputs=draft.inputs,
        seconds={},
        up_to_date=True,
        rebuilt=None,
        signed_by=None,
        signature=None,
    )
