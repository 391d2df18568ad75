"""What is tried where a builder refuses a network: other forms of the nodes that fail, then narrower profiles."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trtconv.core import codes
from trtconv.core.bounds import make_profile
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import BuildFailed
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.graph.extract import Cutter
from trtconv.graph.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.passes.deconv_forms import FORMS
from trtconv.passes.spelling.other_forms import OTHER_FORMS, other_forms
from trtconv.pipeline.parse import build_in_thread, parse_model
from trtconv.runtimes.tensorrt import Runtime

if TYPE_CHECKING:
    from trtconv.pipeline.profiles import Sized

_PATIENCE_SECONDS = 60.0
"""How long other ways are looked for after a builder refused, and how long a refusal may have taken to do so."""
_MOST_SUSPECTS = 64
_ENDLESS = "bad_alloc"
_TOO_LARGE = "volume exceeds"
"""In what TensorRT says of a tensor of too many elements. It is as large in any form, and at some of them the
builder of RTX 1.7 ends by a segmentation fault."""

Forms = Mapping[str, str]
"""Name of a node to that of its form."""


@frozen
class RefusedNetwork:
    """A network that the builder refused.

    Args:
        findings: What it said.
        model: The model as the parser was given it.
        sized: Its profiles.
        plan: What the builder was told.
        engine: The TensorRT that builds.
        clock: Times the stages.
    """

    findings: tuple[Finding, ...]
    model: OnnxModel
    sized: Sized
    plan: BuildPlan
    engine: Runtime
    clock: Stopwatch

    @property
    def _reasons(self) -> list[Finding]:
        """What was said of the network, and not of its profiles; nothing where the refusal took too long."""
        slow = self.clock.spent(Stage.BUILD) > _PATIENCE_SECONDS
        return [] if slow else [finding for finding in self.findings if finding.code == codes.BUILDER_REFUSED.code]

    def other_forms(self) -> Iterator[Forms]:
        """Yields forms of nodes with which the whole may build: those in which the nodes that fail alone do so."""
        if not self._reasons or any(_TOO_LARGE in reason.message for reason in self._reasons):
            return
        means = self._means()
        if means:
            yield means
        started = time.monotonic()
        cutter = Cutter(self.model, self.sized.profiles)
        names, failing = self.model.main.columns.names, []
        for index in self._suspects():
            if time.monotonic() - started > _PATIENCE_SECONDS:
                break
            if self._builds(cutter, index) is False:
                failing.append(index)
        forms = {names[index]: form for index in failing if (form := self._form(cutter, index)) is not None}
        if forms:
            yield forms
        for form in FORMS if failing else ():
            yield {**forms, **{names[index]: form for index in failing if names[index] not in forms}}

    def _means(self) -> Forms:
        """Returns the forms of normalisations where the builder asks for more memory than any machine has.

        TensorRT-RTX 1.7 does so of groups that are normalised over two dynamic axes, as in diffusion networks; alone
        each of the nodes builds.
        """
        if not any(_ENDLESS in reason.message for reason in self._reasons):
            return {}
        main = self.model.main
        names = [main.columns.names[index] for index in main.by_op.get("InstanceNormalization", ())]
        return {name: "means" for name in names if name}

    def narrower_offered(self) -> tuple[Finding, ...]:
        """Returns the findings; they say which narrower profiles build, where trying costs little.

        Everything fixed is tried first: where that fails too, the ranges are not to blame.
        """
        started, reasons = time.monotonic(), self._reasons
        flags: list[str] = []
        # Loaded only here: most networks are built.
        from trtconv.shapes.profiles import narrower

        choices = narrower(self.model.inputs, self.sized.profiles, self.sized.lattice) if reasons else ()
        for number, choice in enumerate(choices):
            if time.monotonic() - started > _PATIENCE_SECONDS:
                break
            if self._is_buildable(self.model, dataclasses.replace(self.plan, profiles=choice.profiles)):
                flags.append(choice.flags)
            elif number == 0:
                return self.findings
        if not flags:
            return self.findings
        ways = "; or with ".join([*flags[1:], flags[0]])
        offer = f"The ranges are too wide for the builder. It does build with {ways}."
        return tuple(dataclasses.replace(f, fix=offer) if f is reasons[0] else f for f in self.findings)

    def _suspects(self) -> Sequence[int]:
        """Returns the nodes that have other forms, those that the builder named before all."""
        main = self.model.main
        ops = frozenset().union(*(form.ops for form in OTHER_FORMS.values()))
        indices = sorted(index for op in ops for index in main.by_op.get(op, ()))
        messages = "\n".join(reason.message for reason in self._reasons)
        suspects = [index for index in indices if main.columns.names[index] and main.columns.names[index] in messages]
        return (suspects or [index for index in indices if main.columns.names[index]])[:_MOST_SUSPECTS]

    def _form(self, cutter: Cutter, index: int) -> str | None:
        """Returns the first form in which a node builds alone."""
        name = self.model.main.columns.names[index]
        return next((form for form in OTHER_FORMS if self._builds(cutter, index, {name: form})), None)

    def _builds(self, cutter: Cutter, index: int, forms: Forms | None = None) -> bool | None:
        """Whether a node builds alone, as it is or in another form; None where that cannot be tried."""
        part = cutter.cut([index])
        if part is None:
            return None
        model = OnnxModel(part, self.model.path)
        if forms and not run_passes(model, other_forms(forms), self.engine.info.target).edits:
            return None
        profiles = self._profiles_of(cutter, model)
        return self._is_buildable(model, dataclasses.replace(self.plan, profiles=profiles, node_precisions={}))

    def _profiles_of(self, cutter: Cutter, model: OnnxModel) -> tuple[ShapeProfile, ...]:
        return tuple(make_profile(model.inputs, bounds) for bounds in cutter.bounds(model.proto))

    def _is_buildable(self, model: OnnxModel, plan: BuildPlan) -> bool:
        # A builder that broke down may have left its network in any state.
        network, _ = parse_model(model, self.engine, self.clock)
        if network is None:
            return False
        try:
            build_in_thread(network, plan, self.clock)
        except BuildFailed:
            return False
        return True
