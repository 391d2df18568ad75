"""What runs in the other environment: a build that writes nothing, and tells all that became of it."""

from __future__ import annotations

from pathlib import Path

from trtconv.core import codes, foreign
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.upgrade import BuildTrial, Fate, ParsedLayer
from trtconv.core.errors import TrtconvError
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen
from trtconv.core.options import refuse_unmet
from trtconv.core.process import Tell
from trtconv.core.requests.build import BuildRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.core.target import Target
from trtconv.graph.fitting import fit
from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import all_nodes
from trtconv.pipeline.building import build_model, planned
from trtconv.pipeline.extending.added import code_of
from trtconv.runtimes import tensorrt
from trtconv.runtimes.foreign_nodes import write_types
from trtconv.runtimes.parsed_layers import parsed_layers
from trtconv.runtimes.tensorrt import EngineBlob, ParsedNetwork, ParserIssue, Runtime, RuntimeInfo
from trtconv.runtimes.tensorrt.base import PluginCreator
from trtconv.runtimes.tensorrt.engine_base import EngineLoader

_BY_CODE = {
    codes.NETWORK_DIFFERS.code: Fate.DIFFERS,
    codes.PARSER_REFUSED.code: Fate.PARSER_REFUSED,
    codes.BUILDER_REFUSED.code: Fate.BUILDER_REFUSED,
    codes.PROFILE_INCONSISTENT.code: Fate.BUILDER_REFUSED,
    codes.OPTION_MISSING.code: Fate.BUILDER_REFUSED,
    codes.GPU_LIMIT.code: Fate.BUILDER_REFUSED,
}
"""What an error says of a model without an engine, the most telling first."""


@frozen
class TrialCall:
    """What the other process is asked.

    Args:
        build: The build; None asks which TensorRT there is.
        target: Its family; None: as `tensorrt.load` finds it.
    """

    build: BuildRequest | None
    target: Target | None = None


def answer(call: TrialCall, tell: Tell) -> dict[str, object]:
    """Is the other process's task: returns a `RuntimeIdentity`, or a `BuildTrial`, as plain JSON values.

    Raises:
        EnvironmentMissing: No TensorRT works here.
    """
    engine = tensorrt.load(call.target)
    if call.build is None:
        return engine.info.identity.to_json()
    return attempt(call.build, engine, Stopwatch(ToldProgress(tell))).to_json()


def attempt(request: BuildRequest, engine: Runtime, clock: Stopwatch) -> BuildTrial:
    """Builds a model as `trtconv build` does, and throws the engine away.

    Args:
        request: The build; its outputs are not written.
        engine: The TensorRT that builds.
    """
    watched = _Watch(engine)
    try:
        refuse_unmet(request)
        with foreign.using(code_of(request)):
            with clock.stage(Stage.LOAD):
                model = OnnxModel.load(request.model, hashed=True)
                fit(model, request.interface)
                write_types(model)
            draft = planned(request, model, engine.info)
            report, blob = build_model(request, model, draft, watched, clock)
    except TrtconvError as error:
        return BuildTrial(
            Fate.NOT_TRIED, why=error.message, hint=error.hint, exit_code=error.exit_code, seconds=clock.seconds
        )
    return BuildTrial(
        fate=_fate(report, blob),
        findings=report.findings,
        proof=report.proof,
        seconds=report.seconds,
        engine_bytes=None if blob is None else len(blob.data),
        layers=watched.layers(model),
    )


def _fate(report: BuildReport, blob: EngineBlob | None) -> Fate:
    proof = report.proof
    if blob is not None:
        return Fate.PROVEN if proof is not None and proof.agrees and not proof.missing else Fate.BUILT
    errors = {finding.code for finding in report.findings if finding.severity is Severity.ERROR}
    return next((fate for code, fate in _BY_CODE.items() if code in errors), Fate.RULED_OUT)


class _Watch:
    """A TensorRT that keeps the last network which it parsed, to be read once it is proven and built."""

    def __init__(self, engine: Runtime) -> None:
        self._engine = engine
        self._network: ParsedNetwork | None = None

    @property
    def info(self) -> RuntimeInfo:
        return self._engine.info

    def creators(self) -> tuple[PluginCreator, ...]:
        return self._engine.creators()

    def engines(self) -> EngineLoader:
        return self._engine.engines()

    def parse(self, model: bytes, path: Path) -> ParsedNetwork | tuple[ParserIssue, ...]:
        parsed = self._engine.parse(model, path)
        self._network = None if isinstance(parsed, tuple) else parsed
        return parsed

    def layers(self, model: OnnxModel) -> tuple[ParsedLayer, ...]:
        """Describes the network; `model` is what the parser was given."""
        if self._network is None:
            return ()
        onnx_nodes = all_nodes(
            [*model.proto.graph.node, *(node for function in model.proto.functions for node in function.node)]
        )
        nodes = {node.name or f"node_of_{next(iter(node.output), '')}" for node in onnx_nodes}
        return parsed_layers(self._network.read_back(), nodes)
