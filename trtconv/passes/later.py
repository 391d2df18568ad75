"""Passes whose modules are imported where a model has an operator that they look at: most models have few of them."""

from __future__ import annotations

import functools
import importlib
from typing import Any, cast

from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import Pass, PassResult


class _Later:
    """Is the pass that it names, once somebody asks for more than what is known of it.

    Args:
        name: As the pass has it.
        module: Its module in `passes.spelling`.
        kind: Name of its class there.
        ops: Operators that it looks at.
    """

    on_request = False

    def __init__(self, name: str, module: str, kind: str, ops: frozenset[str]) -> None:
        self.name = name
        self.ops = ops
        self._module = module
        self._kind = kind

    @functools.cached_property
    def own(self) -> Pass:
        """The pass."""
        own: Pass = getattr(importlib.import_module(f"trtconv.passes.spelling.{self._module}"), self._kind)()
        return own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        """As the pass has it."""
        has_any = any(not self.ops.isdisjoint(scope.by_op) for scope in model.scopes)
        return has_any and self.own.may_act(model, target)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        """As the pass has it."""
        return self.own.run(model, target)


def later(name: str, module: str, kind: str, ops: str) -> Pass:
    """Returns a pass that stands for another one.

    Args:
        name: As that has it.
        module: Its module in `passes.spelling`.
        kind: Name of its class there.
        ops: Operators that it looks at, divided by spaces.
    """
    return cast("Pass", _Later(name, module, kind, frozenset(ops.split())))


def own_pass(pass_: Pass) -> Pass:
    """Returns the pass that one stands for; itself where it stands for none."""
    return cast("_Later", pass_).own if isinstance(pass_, _Later) else pass_
