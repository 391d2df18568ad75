"""TensorRT's parser and builder, asked for a model, their refusals as findings, and what the builder may take."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from trtconv.core import codes
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import BuildFailed
from trtconv.core.findings import Finding, Location, Severity, worst
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import python_line
from trtconv.pipeline.preparation import hand_over, handed_over
from trtconv.pipeline.strange_domains import PARTITION, advice
from trtconv.runtimes.tensorrt import Capabilities, EngineBlob, ParsedNetwork, ParserIssue, Runtime
from trtconv.runtimes.tensorrt.audit import audit
from trtconv.runtimes.tensorrt.early.runtime import EarlyRuntime


def parse_model(
    model: OnnxModel, engine: Runtime, clock: Stopwatch
) -> tuple[ParsedNetwork | None, tuple[Finding, ...]]:
    """Parses and audits; returns the network and what is to be said of it, or why there is none to trust."""
    parsed = _parsed(model, engine, clock)
    if isinstance(parsed, tuple):
        return None, tuple(_refusal(model, issue) for issue in parsed)
    with clock.stage(Stage.AUDIT):
        differences = audit(model, parsed)
    return (None, differences) if differences else (parsed, tuple(_misdeclared_outputs(model, parsed)))


def _parsed(model: OnnxModel, engine: Runtime, clock: Stopwatch) -> ParsedNetwork | tuple[ParserIssue, ...]:
    with clock.stage(Stage.PARSE):
        if not isinstance(engine, EarlyRuntime):
            return engine.parse(handed_over(model), model.path)
        hand_over(model)
        network = engine.network(model)
    if network is not None:
        return network
    # A stage of its own: what TensorRT takes as it starts is not what the model may take.
    with clock.stage(Stage.RUNTIME):
        _ = engine.own
    with clock.stage(Stage.PARSE):
        return engine.parse_here(model)


def start(model: OnnxModel, plan: BuildPlan, engine: Runtime, clock: Stopwatch) -> None:
    """Has a model built that is as the passes left it, while it is still looked at, where another process may do so."""
    if isinstance(engine, EarlyRuntime) and not model.proto.functions:
        with clock.stage(Stage.PARSE):
            hand_over(model)
            engine.start(model, plan)


def _misdeclared_outputs(model: OnnxModel, network: ParsedNetwork) -> Iterator[Finding]:
    declared = {value.name: value.type.tensor_type.shape.dim for value in model.proto.graph.output}
    for tensor in network.outputs:
        # Some files write 0, or a negative number, for what they do not know.
        stated = tuple(dim.dim_value if dim.dim_value > 0 else -1 for dim in declared.get(tensor.name, ()))
        pairs = zip(stated, tensor.shape, strict=False)
        ranks_differ = stated and tensor.shape and len(stated) != len(tensor.shape)
        # Some files say "no dimensions" where they mean that they do not know.
        if ranks_differ or any(-1 not in pair and pair[0] != pair[1] for pair in pairs):
            shapes = [str([n if n >= 0 else "?" for n in shape]).replace("'", "") for shape in (stated, tensor.shape)]
            message = f"output {tensor.name} is declared as {shapes[0]}, and the network computes {shapes[1]}"
            fix = (
                "Correct the shape in the file, if the proof says that TensorRT is right: its engine returns this one."
            )
            yield codes.OUTPUT_MISDECLARED.finding(message, Severity.WARNING, Location(tensor=tensor.name), fix)


def _refusal(model: OnnxModel, issue: ParserIssue) -> Finding:
    inside = f" (inside {', '.join(issue.inside)})" if issue.inside else ""
    has_node = 0 <= issue.node_index < len(model.proto.graph.node)
    source = python_line(model.proto.graph.node[issue.node_index]) if has_node else ""
    index = issue.node_index if has_node else None
    place = Location(index=index, node=issue.node_name, op=issue.op, source=source)
    words = advice(model, issue)
    message = f"TensorRT's parser refuses it{inside}: {words.message}"
    return codes.PARSER_REFUSED.finding(message, place=place, fix=words.fix)


def build_in_thread(
    network: ParsedNetwork, plan: BuildPlan, clock: Stopwatch, meanwhile: Sequence[Callable[[], object]] = ()
) -> EngineBlob:
    """Builds in another thread, so that Ctrl-C reaches this one; the native call itself cannot be interrupted.

    Args:
        network: What to build.
        plan: How.
        meanwhile: What this thread is to do beside the builder, which leaves Python to it.
    """
    blobs: list[EngineBlob] = []
    failed: list[BaseException] = []
    stopped = False

    def monitor(phase: str, step: int, steps: int) -> bool:
        clock.progress.phase(phase, step, steps)
        return not stopped

    def work() -> None:
        try:
            blobs.append(network.build(plan, monitor))
        except BaseException as error:
            failed.append(error)

    # Not an executor: to import concurrent.futures takes a hundredth of a small build.
    thread = threading.Thread(target=work)
    with clock.stage(Stage.BUILD):
        thread.start()
        try:
            for beside in meanwhile:
                beside()
            while thread.is_alive():
                thread.join(0.2)
        except Exception:
            # What goes on with the network would find it in the builder's hands.
            stopped = True
            while thread.is_alive():
                thread.join(0.2)
            raise
        finally:
            stopped = True
        if failed:
            raise failed[0]
    clock.require(Stage.BUILD, blobs[0].seconds)
    return blobs[0]


def findings_of(error: BuildFailed, model: OnnxModel) -> tuple[Finding, ...]:
    """Returns what the builder said against the network, as findings; those that name a node stand at it.

    Args:
        error: What it said.
        model: The model as the parser was given it.
    """
    findings = tuple(f for f in error.findings if isinstance(f, Finding))
    findings = findings or (codes.BUILDER_REFUSED.finding(error.message, fix=error.hint),)
    return tuple(_placed(model, finding) for finding in findings)


def refused_with_tactics() -> tuple[Finding, ...]:
    """Says of a refused network that it was built with tactics, of which one may not run here."""
    message = "the builder refused the network with the tactics of --as, of which one may not run on this GPU"
    fix = "Build without --as: if that works, one of the tactics is the reason."
    return (codes.TACTIC_OTHER.finding(message, Severity.INFO, fix=fix),)


def _placed(model: OnnxModel, finding: Finding) -> Finding:
    """Returns a refusal of the builder at the first node that it names, which a partition can leave out."""
    if finding.location.index is not None or finding.code != codes.BUILDER_REFUSED.code:
        return finding
    place = _named(model, finding.message)
    if place is None:
        return finding
    fix = f"{finding.fix} Or {PARTITION}.".strip()
    return dataclasses.replace(finding, location=place, fix=fix)


def _named(model: OnnxModel, message: str) -> Location | None:
    """Returns the first node that a message names; layers are called as nodes, with a number or a word behind."""
    words = [word.strip(".:;") for word in _BETWEEN_NAMES.split(message)]
    candidates = dict.fromkeys([*words, *(_BEHIND.sub("", word) for word in words)])
    places = {name: scope.location(i) for scope in model.scopes for i, name in enumerate(scope.columns.names) if name}
    return next((places[word] for word in candidates if word in places), None)


_BETWEEN_NAMES = re.compile(r"[\s\[\]{}()\"',+|=]+|\.\.\.")
_BEHIND = re.compile(r"_(\d+|[a-z]+)$")


def fails(findings: Iterable[Finding], fail_on: Severity | None) -> bool:
    """Whether a finding is at or above the severity that fails."""
    severity = worst(findings)
    return fail_on is not None and severity is not None and severity.rank >= fail_on.rank


MANY_PROFILES = 3
"""So many of `--split auto` are built at a lower optimization level: TensorRT looks for kernels for each anew."""
_QUICKER_LEVEL, _USUAL_LEVEL = 2, 3
"""A U-Net's four profiles take 2.5 times as long as one at it and 4.9 times at the usual level 3, and run as fast
(TensorRT 8.6; docs/sizes.md)."""


def affordable(plan: BuildPlan, capabilities: Capabilities) -> BuildPlan:
    """Returns a plan whose profiles do not take several times as long as one, where `--split auto` made them.

    A level that was asked for stays, and so does TensorRT-RTX's, which looks for no kernels while it builds.
    """
    is_fixed = plan.options.optimization_level is not None or not capabilities.timing_cache
    if is_fixed or plan.split != "auto" or len(plan.profiles) < MANY_PROFILES:
        return plan
    return dataclasses.replace(plan, options=dataclasses.replace(plan.options, optimization_level=_QUICKER_LEVEL))


def told_level(plan: BuildPlan, capabilities: Capabilities) -> tuple[str, ...]:
    """Returns what is to be said of the level that `affordable` chooses, if it does."""
    if affordable(plan, capabilities) is plan:
        return ()
    return (
        f"the {len(plan.profiles)} profiles are built at optimization level {_QUICKER_LEVEL}: in about half the usual "
        f"time, and as fast where it was measured; --optimization-level {_USUAL_LEVEL} looks further",
    )
