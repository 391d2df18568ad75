"""What a pass is, and the runner that holds every pass to its contract."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import ClassVar

import onnx
import onnx_graphsurgeon as gs

from trtconv.core import budget
from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.editor import Field, close_all
from trtconv.graph.folding import spend_on_constants
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope

_WRITTEN = "Of a Field, only nodes given to `replace` are written, neighbours that were changed too."


class BrokenContract(Exception):
    """A pass did what no pass may do: a bug in trtconv."""


@frozen
class PassResult:
    """What a pass did. Nothing to do (both empty), refused (`skipped`) and failed (an exception) stay apart."""

    edits: tuple[Edit, ...] = ()
    skipped: tuple[Skip, ...] = ()

    def __post_init__(self) -> None:
        for kind, entries in ((Edit, self.edits), (Skip, self.skipped)):
            if not all(isinstance(entry, kind) for entry in entries):
                raise BrokenContract(f"a PassResult holds {kind.__name__} objects, and was given {entries!r}")
        # A user's pass may have collected them in lists.
        object.__setattr__(self, "edits", tuple(self.edits))
        object.__setattr__(self, "skipped", tuple(self.skipped))

    def __add__(self, other: PassResult) -> PassResult:
        return PassResult(self.edits + other.edits, self.skipped + other.skipped)


class Pass:
    """One rewrite of a model. Its docstring is the page that `trtconv passes NAME` shows, the first line its summary.

    Under "Before:" ("Before (tensorrt-8.6):" where it depends on the target) the page has a model in ONNX's text format
    that the pass rewrites, and under "After:" one that computes the same and that the pass leaves as it is.

    Attributes:
        name: A verb phrase, as `--only` and `--skip` take it.
        fixes: Codes of the rules whose findings it mends.
        safety: "exact" (same numbers up to the order of float sums) or "within tolerance".
        on_request: Whether it runs only when asked for, by name or by `flag`.
        flag: The field of a request that asks for it; empty where only its name does.
        requantizes: Whether it quantises weights or tensors anew, so that the model is another quantised form of the
            same float one.
        frees_sizes: Whether the model then accepts sizes at which it failed, or returned another shape, before.
    """

    name: ClassVar[str]
    fixes: ClassVar[tuple[str, ...]] = ()
    safety: ClassVar[str] = "exact"
    on_request: ClassVar[bool] = False
    flag: ClassVar[str] = ""
    requantizes: ClassVar[bool] = False
    frees_sizes: ClassVar[bool] = False

    @property
    def page(self) -> str:
        """The docstring, without how a pass is called from Python."""
        return (inspect.getdoc(self) or "").partition("\nArgs:")[0].strip()

    @property
    def summary(self) -> str:
        return self.page.partition("\n")[0]

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        """Whether the model holds anything that the pass is about; asked before each run, so it must cost little."""
        return True

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        """Rewrites the model in place.

        Args:
            target: What the model is meant for.
        """
        raise NotImplementedError


class NodePass(Pass):
    """A pass that looks at one node at a time.

    Attributes:
        ops: Operators that it looks at.
        looks_around: Whether `visit` looks at the nodes in front of and behind its node, beside what its weights are
            made by.
    """

    ops: ClassVar[frozenset[str]]
    looks_around: ClassVar[bool] = True

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        places = ((scope, index) for scope in model.scopes for op in self.ops for index in scope.by_op.get(op, ()))
        return any(self.concerns(scope, index, target) for scope, index in places)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        edits: list[Edit] = []
        skips: list[Skip] = []
        fields = [self._field(model, scope, target) for scope in model.scopes]
        for field in fields:
            for node in field.candidates:
                with budget.at(field.location(node)):
                    outcome = self.visit(field, node, target)
                if isinstance(outcome, str):
                    edits.append(Edit(self.name, node.name or str(field.location(node)), outcome))
                elif outcome is not None:
                    skips.append(Skip(self.name, node.name or str(field.location(node)), outcome.reason))
        close_all(fields)
        return PassResult(tuple(edits), tuple(skips))

    def _field(self, model: OnnxModel, scope: Scope, target: Target) -> Field:
        return Field(model, scope, self.ops, lambda index: self.concerns(scope, index, target), self.looks_around)

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        """Whether `visit` might have something to do; only such nodes are opened, which costs far more than to look.

        Args:
            scope: The graph that the node is in.
            index: Position of a node of one of `ops`.
            target: What the model is meant for.
        """
        return True

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        """Rewrites one node.

        Args:
            field: The field that it was opened in.
            node: The node.
            target: What the model is meant for.

        Returns:
            What was done in words, why it was refused, or None where there is nothing to do.
        """
        raise NotImplementedError


@frozen
class Refusal:
    """Why a pass leaves a node alone that it would otherwise rewrite."""

    reason: str


def run_passes(model: OnnxModel, passes: Sequence[Pass], target: Target) -> PassResult:
    """Runs passes in order, in place, and checks what each one promised.

    Checked: edits are reported if and only if the graph changed; graph inputs, outputs and metadata are as they were;
    the ONNX checker accepts what it accepted before. That a second run edits nothing is for tests and fuzzer to check
    (tests/support/contracts.py): it would cost each build as much again.

    Raises:
        BrokenContract: A pass did not keep to that.
        BudgetExceeded: TensorRT would compute too large a constant of the model.
    """
    total = PassResult()
    original: bytes | None = None
    before: int | None = None
    for pass_ in passes:
        # A pass may make what a later one is about, so each is asked in its turn.
        if not pass_.may_act(model, target):
            continue
        if before is None:
            original, before = model.without_weights(), fingerprint(model)
        result, before = run_one(model, pass_, target, before)
        total += result
    if total.edits and original is not None:
        wrong = complaint(model.without_weights())
        # What was invalid before need not be valid now.
        if wrong is not None and not complaint(original):
            names = ", ".join(dict.fromkeys(edit.pass_name for edit in total.edits))
            raise BrokenContract(f"passes made an invalid model: {wrong} It was edited by: {names}. {_WRITTEN}")
    spend_on_constants(model.scopes)
    return total


def run_one(model: OnnxModel, pass_: Pass, target: Target, before: int) -> tuple[PassResult, int]:
    """Runs one pass; returns what it did, and the model's fingerprint afterwards.

    Args:
        model: The model; changed.
        target: What the model is meant for.
        before: The model's fingerprint.

    Raises:
        BrokenContract: It changed what it may not, or reported otherwise.
    """
    outside = interface(model)
    result = pass_.run(model, target)
    after = fingerprint(model)
    changed = after != before
    if changed and not result.edits:
        raise BrokenContract(f"pass {pass_.name} changed the model and reports no edit: say in words what it did")
    if result.edits and not changed:
        raise BrokenContract(f"pass {pass_.name} reports edits and changed nothing. {_WRITTEN}")
    if interface(model) != outside:
        raise BrokenContract(f"pass {pass_.name} changed the model's inputs, outputs or metadata")
    return result, after


def interface(model: OnnxModel) -> tuple[bytes, ...]:
    """Returns what no pass may change: the graph's inputs and outputs with their types, and the model's metadata."""
    graph = model.proto.graph
    parts = (*graph.input, *graph.output, *model.proto.metadata_props)
    return tuple(part.SerializeToString(deterministic=True) for part in parts)


def fingerprint(model: OnnxModel) -> int:
    """Returns a hash of the opset and the nodes, tensors' names included; weights by name: no pass writes into one.

    Nodes hold the graphs inside them.
    """
    return hash((model.opset, *map(onnx.NodeProto.SerializeToString, model.proto.graph.node)))


def complaint(model: bytes) -> str | None:
    """Returns what ONNX's checker has against a model; None: nothing."""
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        return " ".join(str(error).split())[:300]
    return None


def select(passes: Sequence[Pass], only: Sequence[str], skip: Sequence[str]) -> tuple[Pass, ...]:
    """Returns the passes that `--only` and `--skip` leave, in their fixed order.

    Raises:
        InputError: A name is no pass.
    """
    names = {pass_.name for pass_ in passes}
    for name in (*only, *skip):
        if name not in names:
            raise InputError(f"there is no pass {name!r}", f"Passes: {', '.join(pass_.name for pass_ in passes)}.")
    subset = [pass_ for pass_ in passes if (pass_.name in only if only else not pass_.on_request)]
    return tuple(pass_ for pass_ in subset if pass_.name not in skip)
