"""What a rule is. A rule reads the model and never changes it; its docstring is its page."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import KNOWN_DOMAINS
from trtconv.graph.views import QUANTIZERS, Deconv, Linear, deconvs

if TYPE_CHECKING:
    from trtconv.shapes.traced.search import Baked


class Page:
    """A rule code and its page.

    Attributes:
        code: "TCnnn"; never reused.
        name: The fault, in a few words joined by hyphens.
    """

    code: ClassVar[str]
    name: ClassVar[str]

    @property
    def page(self) -> str:
        return inspect.getdoc(self) or ""

    @property
    def summary(self) -> str:
        return self.page.partition("\n")[0]


class Rule(Page):
    """One check of a model.

    Attributes:
        severity: How bad the fault is for TensorRT's own parser, without trtconv's passes.
        fix: What to do, in one sentence.
        by_hand: What to do where no pass does it; empty where `fix` promises nothing of trtconv.
    """

    severity: ClassVar[Severity] = Severity.ERROR
    fix: ClassVar[str] = ""
    by_hand: ClassVar[str] = ""

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        """Yields what is wrong.

        Args:
            view: The model.
            target: What it is meant for.
        """
        raise NotImplementedError

    def finding(self, message: str, location: Location, severity: Severity | None = None) -> Finding:
        """Makes a finding of this rule."""
        return Finding(self.code, self.name, message, severity or self.severity, location, self.fix)


class ModelView:
    """A model as the rules see it: what several of them need is worked out once.

    Args:
        model: The model; must not change while the view is in use.
    """

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    @functools.cached_property
    def baked(self) -> Baked | None:
        """Sizes that an exporter wrote into the model as constants; None where no node asks for sizes."""
        if self.model.main.by_op.keys().isdisjoint(("Reshape", "Resize")):
            return None
        # Loaded only here, with all that knows of sizes.
        from trtconv.shapes.traced.search import baked_in

        return baked_in(self.model)

    @property
    def deconvs(self) -> tuple[Deconv, ...]:
        """Every ConvTranspose, in every graph."""
        return deconvs(self.model)

    @functools.cached_property
    def linears(self) -> tuple[Linear, ...]:
        """Every QuantizeLinear and DequantizeLinear (blocked ones aside), in every graph; ONNX Runtime's own too."""
        linears = (
            Linear(scope, index)
            for scope in self.model.scopes
            for index in sorted(i for op in QUANTIZERS for i in scope.by_op.get(op, ()))
            if scope.columns.domains[index] in KNOWN_DOMAINS
        )
        return tuple(linear for linear in linears if not linear.attributes.get("block_size"))


class LinearRule(Rule):
    """A rule about one QuantizeLinear or DequantizeLinear node."""

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for linear in view.linears:
            message = self.fault(linear, target)
            if message:
                yield self.finding(message, linear.location)

    def fault(self, linear: Linear, target: Target) -> str | None:
        """Returns what is wrong with a node, or None."""
        raise NotImplementedError


class DeconvRule(Rule):
    """A rule about ConvTranspose nodes whose attributes make sense."""

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for deconv in view.deconvs:
            if isinstance(deconv.geometry, Geometry):
                message = self.fault(deconv, deconv.geometry, target)
                if message:
                    yield self.finding(message, deconv.location)

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        """Returns what is wrong with a node, or None."""
        raise NotImplementedError
