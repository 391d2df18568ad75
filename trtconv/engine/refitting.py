"""An engine with the weights of another model. Runs in a process of its own; see `trtconv.engine.refit`.

TensorRT finds the weights of an engine by the layers of the network that it was built from. The report of the build has
that network without its values; the new model goes the same way through passes, casts and parser, and its network has
to be the same. Every weight whose values changed has then to be among those that the engine takes, and every weight
that the engine takes is given: what is left would be of the old model, and nobody would see it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trtconv.core import signatures
from trtconv.core.documents.build import BuildReport, CastCheck
from trtconv.core.documents.network import NetworkRecord
from trtconv.core.documents.refit import RefitRecord, RefitReport, RefittedWeight
from trtconv.core.documents.tactics import Tactic
from trtconv.core.errors import EngineFailed, InputError
from trtconv.core.files import report_beside
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen
from trtconv.core.hashing import Hashing
from trtconv.core.outputs import Output, check_all
from trtconv.core.process import Tell
from trtconv.core.requests.engine import RefitRequest
from trtconv.core.requests.files import files_read
from trtconv.core.spots import file_id
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.core.target import Target
from trtconv.engine.opening import EngineFile, load_into, read_engine, require_machine
from trtconv.engine.rebuilding import Recipe, subject_as_built
from trtconv.graph.fitting import fit
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.extending.added import admit
from trtconv.pipeline.outputs import file_identity, model_identity, protect_data, write_report
from trtconv.pipeline.parse import parse_model
from trtconv.runtimes.foreign_nodes import write_types
from trtconv.runtimes.network_record import GraphDifference, first_difference, layer_weights, record
from trtconv.runtimes.plugin_layers import with_meanings
from trtconv.runtimes.proof.proving import NetworkProof
from trtconv.runtimes.proof.subject import ProofSubject
from trtconv.runtimes.proof.weights import Relation, accounts
from trtconv.runtimes.tensorrt import Engine, EngineLoader, ParsedNetwork, Refitter, Runtime, WeightKey, load
from trtconv.runtimes.tensorrt.readback.read import UnreadWeights
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

_BUILD = "Build an engine from it: trtconv build."
_AGAIN = "Build the engine again, with --refittable or --strip-weights; then it can be refitted."


@frozen
class NewWeight:
    """A weight of the new network.

    Args:
        values: Its values.
        sources: Names of the initializers that it is, or is computed from.
        changed: Whether the engine was built with other values.
    """

    values: NDArray[Any]
    sources: tuple[str, ...]
    changed: bool


NewWeights = Mapping[WeightKey, NewWeight]
"""What there is for an engine, by the names that its own layers have."""


def serve(request: RefitRequest, tell: Tell) -> dict[str, object]:
    """Refits the engine and writes it; returns the JSON of a `RefitReport`."""
    clock = Stopwatch(ToldProgress(tell))
    with clock.stage(Stage.LOAD):
        admit(request.extend, ())
        subject = read_engine(request.engine, request.report, trust=request.trust, key=request.key)
        outputs = _outputs(request)
        previous, _ = _build_of(subject)
        model = _model(request.model, previous)
        protect_data(model, *(output.path for output in outputs))
    with clock.stage(Stage.RUNTIME):
        runtime = load(Target(previous.runtime.family))
        engines = runtime.engines()
        require_machine(subject, engines, with_weights=False)
    source, parsed = _parsed(subject, model, runtime, clock)
    network, weights = _new_weights(subject, parsed, source.parsed)
    with NetworkProof(parsed, source, previous.profiles, request.prove, request.prove_time) as proof:
        proof.begin()
        with clock.stage(Stage.ENGINE):
            refitter = load_into(engines, subject).refitter()
            refitted = refit(refitter, weights)
            data = refitter.serialized()
        hashing = Hashing(data)
        proven, findings = proof.finish(clock, runtime)
    fails = any(finding.severity is Severity.ERROR for finding in findings)
    changed = sum(weights[key].changed for key in refitted)
    before = RefitRecord(subject.identity(), previous.model, len(refitted), changed)
    report = dataclasses.replace(
        _renewed(previous, clock),
        model=model_identity(model),
        findings=(*previous.findings, *findings),
        proof=proven,
        engine=None if fails else file_identity(outputs[0].path, data, hashing, _tactics(previous)),
        network=record(network),
        refit=before,
    )
    model.require_unchanged_data()
    if not fails:
        report = write_report(report, data, outputs, request.sign, clock)
    given_weights = tuple(RefittedWeight(*key, weights[key].sources, weights[key].changed) for key in refitted)
    return RefitReport(
        *(report.engine, report.model, before, report.runtime, given_weights, proven, findings, report.signed_by),
        clock.seconds,
        int(fails),
    ).to_json()


def with_weights(subject: EngineFile, engines: EngineLoader, path: Path, clock: Stopwatch) -> Engine:
    """Loads an engine that was built without its weights, with those of a file; see `loading.open_engine`."""
    previous, _ = _build_of(subject)
    model = _model(path, previous)
    source, parsed = _parsed(subject, model, load(Target(previous.runtime.family)), clock)
    _, weights = _new_weights(subject, parsed, source.parsed)
    refitter = load_into(engines, subject).refitter()
    refit(refitter, weights)
    model.require_unchanged_data()
    return engines.load(bytes(refitter.serialized()), host_code=subject.has_host_code)


def _model(path: Path, report: BuildReport) -> OnnxModel:
    """Reads a model as the build of an engine did."""
    model = OnnxModel.load(path, hashed=True)
    fit(model, report.plan.interface)
    write_types(model)
    return model


def _parsed(
    subject: EngineFile, model: OnnxModel, runtime: Runtime, clock: Stopwatch
) -> tuple[ProofSubject, ParsedNetwork]:
    """Returns what a model became on the way of an engine's build, and what the parser made of it.

    Raises:
        InputError: The parser refuses it.
    """
    source = subject_as_built(model, Recipe.of(subject.report), runtime.info.capabilities)
    parsed, findings = parse_model(source.parsed, runtime, clock)
    if parsed is None:
        raise InputError(
            f"{model.path} does not go into {subject.path}: {findings[0].message}", findings[0].fix or _BUILD
        )
    return source, parsed


def _tactics(report: BuildReport) -> tuple[Tactic, ...] | None:
    """Returns the tactics of an engine's layers, which new weights do not change."""
    return None if report.engine is None else report.engine.tactics


def _renewed(report: BuildReport, clock: Stopwatch) -> BuildReport:
    """Returns the report of an engine without what a refit makes untrue: the weights are there, and none checked."""
    plan = dataclasses.replace(report.plan, options=dataclasses.replace(report.plan.options, strip_weights=False))
    cast = report.cast
    if cast is not None:
        cast = dataclasses.replace(cast, verified=CastCheck(why="the engine was refitted since"))
    unsigned = dataclasses.replace(report, signed_by=None, signature=None)
    return dataclasses.replace(unsigned, plan=plan, cast=cast, seconds=clock.seconds, worker=None, rebuilt=None)


def refit(refitter: Refitter, weights: NewWeights) -> tuple[WeightKey, ...]:
    """Gives an engine all weights that it takes, and makes sure that none of the old ones stays in it.

    Args:
        refitter: Puts them into the engine.
        weights: What there is.

    Returns:
        The weights that were given.

    Raises:
        EngineFailed: A weight that changed is not among those that the engine takes, or it takes one that is not there.
    """
    keys = refitter.weights
    unknown = [key for key in keys if key not in weights]
    if unknown:
        raise EngineFailed(f"the engine takes the {_spoken(unknown[0])}, which the new network does not have", _BUILD)
    stale = [key for key, weight in weights.items() if weight.changed and key not in set(keys)]
    if stale:
        sources = ", ".join(map(repr, weights[stale[0]].sources))
        raise EngineFailed(
            f"the engine cannot be given the {_spoken(stale[0])}{f' (from {sources})' if sources else ''}, which has "
            f"other values in the new model: it would keep the old ones ({len(stale)} such in all)",
            _BUILD,
        )
    refitter.put({key: weights[key].values for key in keys})
    return tuple(keys)


def _outputs(request: RefitRequest) -> tuple[Output, Output]:
    """Returns where engine and report go.

    Raises:
        InputError: They cannot be written, or would overwrite what is read; the engine may be, if it is named.
    """
    if request.sign is not None:
        signatures.require_private(request.sign)
    typed = request.output is not None
    hint = f"Choose another output path with -o; -o {request.engine} replaces the engine."
    path = request.output_path
    outputs = (
        Output(path, "the new engine", typed, hint=hint),
        Output(report_beside(path), "its report", typed and file_id(path) == file_id(request.engine), hint=hint),
    )
    report = request.report or report_beside(request.engine)
    replaced = {file_id(request.engine), file_id(report)} if typed else set()
    check_all(outputs, [entry for entry in files_read(request) if file_id(entry[1]) not in replaced])
    return outputs


def _build_of(subject: EngineFile) -> tuple[BuildReport, NetworkRecord]:
    """Returns the report of an engine that can be refitted, and its network.

    Raises:
        InputError: There is none.
    """
    if subject.build is None:
        raise InputError(f"{subject.path} has no report that tells of its weights", _AGAIN)
    if not subject.options.refits:
        raise InputError(f"{subject.path} was not built to be refitted", _AGAIN)
    if subject.build.network is None:
        raise InputError(
            f"the report of {subject.path} does not tell of its network: an older trtconv wrote it", _AGAIN
        )
    return subject.build, subject.build.network


def _new_weights(subject: EngineFile, parsed: ParsedNetwork, model: OnnxModel) -> tuple[ReadNetwork, NewWeights]:
    """Returns the network with the new weights as it was read, and the weights.

    Raises:
        InputError: It is another network than that of the engine, or an engine that takes nothing but its own weights
            is given others.
        EngineFailed: Weights are not those of the model, or cannot be told apart.
    """
    _, before = _build_of(subject)
    network = with_meanings(parsed.read_back(), model)
    after = record(network)
    difference = first_difference(before, after)
    if difference is not None:
        raise InputError(f"{model.path} has another graph than {subject.path}: {_description(difference)}", _BUILD)
    weights = dict(_paired(before, after, network, model))
    _require_identical(subject, weights)
    return network, weights


def _paired(
    before: NetworkRecord, after: NetworkRecord, network: ReadNetwork, model: OnnxModel
) -> Iterator[tuple[WeightKey, NewWeight]]:
    by_weight = {(entry.weight.layer.index, entry.weight.attribute): entry for entry in accounts(network, model)}
    names = Counter(before.layers[layer].name for layer in {weight.layer for weight in before.weights})
    records = {(record.layer, record.role): record for record in before.weights}
    for new, weight in zip(after.weights, layer_weights(network), strict=True):
        old = records[new.layer, new.role]
        name = before.layers[weight.layer].name
        key = name, weight.role
        if isinstance(weight.values, UnreadWeights) or not old.sha256:
            raise EngineFailed(f"the {_spoken(key)} cannot be read, and so not compared", _BUILD)
        if names[name] > 1:
            raise EngineFailed(f"several layers are called {name!r}, and TensorRT cannot tell their weights", _BUILD)
        account = by_weight.get((weight.layer, weight.attribute))
        if account is not None and account.relation is Relation.DIFFERENT:
            sources = " or ".join(map(repr, account.sources))
            raise EngineFailed(f"what TensorRT parsed as the {_spoken(key)} is not {sources} of the model", _BUILD)
        yield key, NewWeight(weight.values, account.sources if account else (), old.sha256 != new.sha256)


def _require_identical(subject: EngineFile, weights: NewWeights) -> None:
    """Raises InputError where an engine that takes nothing but its own weights back is given others."""
    changed = [key for key, weight in weights.items() if weight.changed]
    if changed and not subject.options.refittable:
        raise InputError(
            f"{subject.path} takes its own weights alone, and the {_spoken(changed[0])} has other values",
            "Give the model that it was built from, or build it with --refittable too.",
        )


def _description(difference: GraphDifference) -> str:
    layers = (difference.after, difference.before)
    if layers == (None, None):
        return difference.what
    new, old = (None if layer is None else f"{layer.node or layer.name!r} ({layer.kind})" for layer in layers)
    if new is None or old is None:
        return f"{difference.what}, {new or old}"
    return f"{new}{f' in place of {old}' if new != old else ''} has {difference.what}"


def _spoken(key: WeightKey) -> str:
    return f"{key[1]} of layer {key[0]!r}"
