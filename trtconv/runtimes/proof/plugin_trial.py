"""Each plugin of a model built alone and run on the GPU, beside its reference, on the values that come to it there.

A network that was parsed right still computes what its plugins' libraries compute, of which only running them tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trtconv.core import budget, codes, foreign
from trtconv.core.bounds import make_profile
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.proof import Lack, Unshown
from trtconv.core.errors import BuildFailed, EngineFailed, EnvironmentMissing
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.process import Process
from trtconv.core.scratch import Scratch
from trtconv.graph.model import OnnxModel
from trtconv.graph.operators import is_foreign
from trtconv.plugins.known import OF_PARSER
from trtconv.runtimes.compare import TOLERANCES, compare
from trtconv.runtimes.foreign_nodes import foreign_nodes, node_alone
from trtconv.runtimes.proof import SERVE
from trtconv.runtimes.proof.places import names_twice
from trtconv.runtimes.proof.reference import Expected, Wanted, expect
from trtconv.runtimes.tensorrt import EngineLoader, Runtime
from trtconv.runtimes.tensorrt.base import PluginCreator

_SECONDS = 60.0
_FIX = "Correct the reference (--reference), the node's attributes, or the plugin; --prove none builds it all the same."


@frozen
class PluginTrial:
    """What came of running the plugins.

    Args:
        findings: Those that compute something else than their references.
        missing: Those of which that is not known.
    """

    findings: tuple[Finding, ...] = ()
    missing: tuple[Unshown, ...] = ()


def try_plugins(model: OnnxModel, engine: Runtime, profiles: Sequence[ShapeProfile]) -> PluginTrial:
    """Runs each plugin of the main graph by itself, at the smallest size.

    Args:
        model: The model as the parser was given it.
        engine: The TensorRT that builds.
        profiles: What was built; the first counts.

    Raises:
        InputError: A file of references does not run.
    """
    columns = model.main.columns
    others = [i for i in range(len(columns)) if is_foreign(model.proto, columns.domains[i], columns.ops[i])]
    inner = tuple(_inside(model))
    if not others:
        return PluginTrial(missing=inner)
    judged = foreign_nodes(model.proto)
    creators = engine.creators()
    missing = [
        _missing(
            model, i, f"no reference says what it computes{_passed_over(model, i, creators)}; --reference gives one"
        )
        for i in others
        if i not in judged
    ]
    missing += inner
    try:
        loader = engine.engines() if judged else None
    except EnvironmentMissing as error:
        return PluginTrial(
            missing=(*missing, *(_missing(model, i, f"it was not run: {error.message}") for i in judged))
        )
    findings: list[Finding] = []
    if loader is not None:
        values = _values(model, profiles, [name for i in judged for name in (*columns.inputs[i], *columns.outputs[i])])
        for index in judged:
            outcome = values.why or _Alone(model, index, values.tensors).differs(engine, loader)
            if isinstance(outcome, Finding):
                findings.append(outcome)
            elif outcome:
                missing.append(_missing(model, index, outcome))
    return PluginTrial(tuple(findings), tuple(missing))


def _inside(model: OnnxModel) -> Iterator[Unshown]:
    """Yields the plugin nodes of the graphs inside nodes, whose values there are not known."""
    for scope in model.scopes[1:]:
        columns = scope.columns
        for index, pair in enumerate(zip(columns.domains, columns.ops, strict=True)):
            if is_foreign(model.proto, *pair):
                why = "it is inside a graph of If, Loop or Scan, and was not run alone on a GPU"
                yield Unshown(Lack.REFERENCE, str(scope.location(index)), why)


def _passed_over(model: OnnxModel, index: int, creators: Sequence[PluginCreator]) -> str:
    """Says which attribute of a node its plugin does not read; empty where it reads all, or is not in the registry."""
    columns = model.main.columns
    listed = [creator.fields for creator in creators if creator.name == columns.ops[index]]
    names = {attribute.name for attribute in columns.attributes[index]} - {*OF_PARSER, *itertools.chain(*listed)}
    return f", and the plugin has no field {min(names)!r}, which TensorRT passes over" if listed and names else ""


def _missing(model: OnnxModel, index: int, reason: str) -> Unshown:
    return Unshown(Lack.REFERENCE, str(model.main.location(index)), reason)


def _values(model: OnnxModel, profiles: Sequence[ShapeProfile], names: list[str]) -> Expected:
    """Runs the model at its smallest size, and returns what the plugins are given there."""
    first = profiles[0] if profiles else make_profile(model.inputs, {})
    shapes = {name: bounds.min for name, bounds in first.inputs.items()}
    fixed = {name: bounds.min for name, bounds in first.values.items()}
    goal = Wanted(str(model.path), model.serialize(), (shapes,), values=(fixed,), inner=tuple(filter(None, names)))
    runs: list[Expected] = []
    with Scratch("plugins") as folder, Process(SERVE, budget.allowance(model.nbytes)[1]) as runner:
        expect(runner, goal, folder.path, _SECONDS, runs, [])
        run = next(iter(runs), Expected(why="the model took too long"))
        if run.why:
            return Expected(why=run.why)
        tensors = {**run.feeds, **run.tensors}
        # They lie in files that go with the folder.
        return Expected(tensors={name: tensors[name].copy() for name in {*names} & tensors.keys()})


class _Alone:
    """A node as a model of its own.

    Args:
        model: Where it is.
        index: Its position in the main graph.
        values: What its inputs and outputs are in a run of the model.
    """

    def __init__(self, model: OnnxModel, index: int, values: Mapping[str, Any]) -> None:
        self._model = model
        self._index = index
        self._node = model.main.columns.nodes[index]
        self._feeds = {name: values[name] for name in self._node.input if name in values}
        self._expected = {name: values[name] for name in self._node.output if name in values}

    def differs(self, engine: Runtime, loader: EngineLoader) -> Finding | str:
        """Builds and runs it; returns what is wrong, or why that is not known; empty where it is right."""
        if self._is_open():
            return "its indices name a place twice, and which of the updates stays there is left open"
        alone = node_alone(self._model, self._index, self._feeds, self._expected)
        profile = make_profile(alone.inputs, {})
        try:
            parsed = engine.parse(alone.serialize(), alone.path)
            if isinstance(parsed, tuple):
                first, *_ = parsed
                return f"TensorRT's parser refuses it alone: {first.message}"
            data = bytes(parsed.build(BuildPlan(engine.info.target, (profile,))).data)
            execution = loader.load(data, host_code=bool(foreign.current().serialized)).open()
            try:
                execution.feed(self._feeds)
                got = execution.run()
            finally:
                execution.close()
        except (BuildFailed, EngineFailed) as error:
            return f"it does not run alone: {error.message}"
        return next(self._differences(got), "")

    def _is_open(self) -> bool:
        data, indices = (self._value(name) for name in [*self._node.input, "", ""][:2])
        return data is not None and indices is not None and names_twice(self._node, data.shape, indices)

    def _value(self, name: str) -> Any:
        return self._feeds.get(name, self._model.main.values(name))

    def _differences(self, got: Mapping[str, Any]) -> Iterator[Finding]:
        narrow = any(values.dtype.itemsize == 2 for values in self._feeds.values())
        for name, expected in self._expected.items():
            difference = compare(name, expected, got.get(name), TOLERANCES["fp16" if narrow else "float32"])
            if difference.verdict.refutes:
                message = (
                    f"plugin {self._node.op_type} does not compute what its reference says: {name!r}: {difference.why}"
                )
                place = self._model.main.location(self._index, name)
                yield codes.NETWORK_DIFFERS.finding(message, place=place, fix=_FIX)
