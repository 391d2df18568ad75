"""A model on its way to TensorRT: the steps, and the only place where their order is written.

| step  | what it does                                      | returns      |
|-------|---------------------------------------------------|--------------|
| names | gives every transposed convolution its own name   |              |
| rules | say what is wrong with the model as it is         | `Assessment` |
| passes| rewrite it                                        | `PassResult` |
| rules | say what is left; the rest was mended             | `Assessment` |
| sizes | checks, rounds and splits the profiles            | `Sized`      |
| types | names all nodes, and searches `--precision auto`  | `Types`      |
| cast  | writes the types into the graph                   | `Applied`    |
| bytes | are handed to TensorRT's parser                   | `bytes`      |

`build` takes all of them, `check` leaves out types and cast, `verify` and `bisect` leave out rules and sizes, since the
report has the profiles and the types. `rewrite`, `explain`, `quantize` and `tune` take names and passes alone. Where a
parser may begin at once behind the passes, all rules are asked beside it, the first of a copy of the model as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trtconv.core.dims import Range, ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.rewrite import Edit
from trtconv.core.findings import Finding
from trtconv.core.node_patterns import is_pattern
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.functions import UnsupportedFunctions
from trtconv.graph.model import OnnxModel
from trtconv.graph.provenance import Origin
from trtconv.graph.types import CONCERNED
from trtconv.passes import Chooser, Pass, PassResult, chooser_of, passes_for, run_passes
from trtconv.passes.spelling.other_forms import other_forms
from trtconv.pipeline.extending.added import added_passes, checks_of
from trtconv.pipeline.mended import compared, declined
from trtconv.precision import Applied, Types
from trtconv.runtimes.proof.subject import Promise, ProofSubject
from trtconv.runtimes.tensorrt import Capabilities

if TYPE_CHECKING:
    from trtconv.pipeline.profiles import Sized

DECONV = ("ConvTranspose",)


@dataclasses.dataclass(frozen=True)
class Assessment:
    """A model that was rewritten between two looks of the rules.

    Args:
        rewrite: What the passes did.
        findings: What the rules found; what the passes mended is milder.
        origin: Where its nodes are in the file.
    """

    rewrite: PassResult
    findings: tuple[Finding, ...]
    origin: Origin


@dataclasses.dataclass(frozen=True)
class ParserInput:
    """A model that is ready for TensorRT's parser.

    Args:
        origin: Where its nodes are in the file.
        sized: Its profiles.
        types: What is computed in which type.
        subject: What is to be proven of the network.
    """

    origin: Origin
    sized: Sized
    types: Types
    subject: ProofSubject


class Preparation:
    """A model, and the steps that change it in place, in the order in which they are taken.

    Args:
        model: The model as it was loaded.
        target: What it is prepared for.
        clock: Times the steps.
    """

    def __init__(self, model: OnnxModel, target: Target, clock: Stopwatch | None = None) -> None:
        self.model = model
        self._target = target
        self._clock = clock or Stopwatch(None)

    def name(self, ops: Iterable[str] = DECONV) -> None:
        """Gives nodes names of their own: edits, findings and TensorRT's layers are told apart by these.

        Args:
            ops: Operators of the nodes.
        """
        _name(self.model, ops)

    def judge(
        self,
        passes: Sequence[Pass],
        plan: BuildPlan | None = None,
        standing: frozenset[str] = frozenset(),
        rewritten: Callable[[], None] | None = None,
    ) -> Assessment:
        """Names, rules, passes, rules again.

        Args:
            passes: The passes.
            plan: Whose rules are asked; None: trtconv's own.
            standing: Codes of findings that stay as severe when a pass mends them.
            rewritten: Called behind the passes: begins what goes on beside the rules, all of which come last then.
        """
        model = self.model
        self.name()
        origin = Origin(model)
        # To copy large weights would cost more than is won.
        is_small = model.is_light or model.leaves_weights
        original = model.copy() if rewritten is not None and is_small else None
        before = self._look(model, origin, plan) if original is None else ()
        result = self._run(passes)
        if rewritten is not None:
            rewritten()
        if original is not None:
            before = self._look(original, origin, plan)
        if not result.edits:
            return Assessment(result, declined(before, result, passes), origin)
        after = self._look(model, origin, plan, rewritten=True)
        with self._clock.stage(Stage.RULES):
            return Assessment(result, compared(before, after, model, result, passes, standing), origin)

    def _look(
        self, model: OnnxModel, origin: Origin, plan: BuildPlan | None, *, rewritten: bool = False
    ) -> tuple[Finding, ...]:
        """Returns what the rules find in the model as it was, or as it was rewritten."""
        with self._clock.stage(Stage.RULES):
            # Loaded only here: an engine that another process builds is on its way by now.
            from trtconv.rules import CHECKS, run_rules

            judged = model if rewritten else _inlined(model)
            findings = run_rules(judged, self._target, CHECKS if plan is None else checks_of(plan))
            return origin.place(findings, judged) if rewritten or judged is not model else findings

    def rewrite(self, passes: Sequence[Pass], ops: Iterable[str] = DECONV) -> PassResult:
        """Names and passes.

        Args:
            passes: The passes.
            ops: Operators whose nodes get names.
        """
        self.name(ops)
        return self._run(passes)

    def _run(self, passes: Sequence[Pass]) -> PassResult:
        with self._clock.stage(Stage.REWRITE):
            return run_passes(self.model, passes, self._target)

    def size(
        self,
        profiles: Sequence[ShapeProfile],
        *,
        rounded: bool = False,
        split: str | None = None,
        covered: Mapping[str, Range] | None = None,
    ) -> Sized:
        """Checks the profiles against the sizes that the network accepts, and moves and divides them; see `settle`."""
        with self._clock.stage(Stage.SIZES):
            # Loaded only here, as the rules are.
            from trtconv.pipeline.profiles import settle

            return settle(self.model, profiles, rounded=rounded, split=split, covered=covered)

    def choose_types(
        self, plan: BuildPlan, search: Callable[[OnnxModel, Types], Types] | None = None, *, by_flags: bool = False
    ) -> Types:
        """Names every node where nodes have types of their own, and searches the types of `--precision auto`.

        Args:
            plan: What is built.
            search: Finds the types of `--precision auto`, given what is asked for; the model's nodes have names. None:
                nothing is looked up either, a report has it.
            by_flags: Whether flags of the builder say the types, and not the graph.

        Raises:
            InputError: A type is asked for of a node that is not there, or cannot have it.
        """
        if plan.precision == "auto" or plan.node_precisions:
            name_all(self.model)
        if search is None:
            return Types(plan.precision, plan.node_precisions)
        types = Types(plan.precision)
        if plan.node_precisions:
            # Loaded only here: most builds ask for none.
            from trtconv.precision.pinned import pin, refuse_unknown

            refuse_unknown(
                self.model, {name: kind for name, kind in plan.node_precisions.items() if not is_pattern(name)}
            )
            types = Types.of(plan.precision, pin(self.model, plan.node_precisions, by_flags=by_flags))
        if plan.precision != "auto":
            return types
        with self._clock.stage(Stage.MEASURE):
            return search(self.model, types)

    def cast(
        self, types: Types, profile: ShapeProfile | None, capabilities: Capabilities, *, interface: bool = False
    ) -> Applied:
        """Casts the graph, and compares it with what it was, where the builder has no flags for that.

        Args:
            types: What is computed in which type.
            profile: The sizes that the model is run at, to see which values it has.
            capabilities: Of the runtime that will build.
            interface: Whether the inputs and outputs are cast too.
        """
        with self._clock.stage(Stage.CAST):
            if types.precision == "as-is" and not types.nodes:
                return Applied()
            # Loaded only here: most builds cast nothing.
            from trtconv.precision.apply import apply_precision

            return apply_precision(self.model, types, capabilities, profile, interface=interface)

    def recast(
        self, types: Types, profile: ShapeProfile | None, *, interface: bool = False, emulated: bool = False
    ) -> Mapping[str, str]:
        """Casts the graph as `cast` did, without comparing it.

        Args:
            types: What is computed in which type.
            profile: The sizes that the model was measured at; None: it was not.
            interface: Whether the inputs and outputs are cast too.
            emulated: Compute in float32 and round, so that ONNX Runtime can run it.

        Returns:
            Tensors of the main graph that go by another name now, by the one that they had.
        """
        from trtconv.precision.apply import recast

        return recast(self.model, types, profile, interface=interface, emulated=emulated)


def passes_of(
    plan: BuildPlan, forms: Mapping[str, str] | None = None, choose: Chooser | None = None
) -> tuple[Pass, ...]:
    """Returns the passes of a plan: none, the usual ones, or those with what its flags ask for.

    Args:
        plan: What is built.
        forms: The forms of nodes, by their names, that are not the usual ones.
        choose: Chooses the forms of transposed convolutions instead; as in `passes_for`.
    """
    if not plan.rewrite:
        return ()
    choose = choose or (chooser_of(forms) if forms else None)
    usual = passes_for(plan.precision, requantize=plan.requantize, choose=choose, typed_nodes=plan.node_precisions)
    return (*added_passes(plan), *usual, *(other_forms(forms) if forms else ()))


def unused(plan: BuildPlan, edits: Sequence[Edit]) -> Iterator[str]:
    """Yields in words what `--substitute` asks for and the passes have put nowhere."""
    if plan.substitute:
        # Loaded only here: most builds substitute nothing.
        from trtconv.pipeline.substituting import passes

        yield from passes.unused(plan.substitute, edits, plan.target)


def promise_of(edits: Iterable[Edit], passes: Iterable[Pass]) -> Promise:
    """Returns what the passes that made edits say of the result.

    Args:
        edits: What was done.
        passes: Those that ran.
    """
    names = {edit.pass_name for edit in edits}
    acted = [pass_ for pass_ in passes if pass_.name in names]
    return Promise(
        frozenset(pass_.safety for pass_ in acted),
        any(pass_.requantizes for pass_ in acted),
        any(pass_.frees_sizes for pass_ in acted),
        any(pass_.on_request for pass_ in acted),
    )


def handed_over(model: OnnxModel) -> bytes:
    """Returns a model as TensorRT's parser is given it; see `hand_over`.

    Raises:
        InputError: The model has outgrown a protobuf message.
    """
    hand_over(model)
    return model.serialize()


def hand_over(model: OnnxModel) -> None:
    """Makes a model what TensorRT's parser is given: its deconvolutions are in no function, and have names."""
    # What stays in a function cannot be audited; the audit then says so.
    with contextlib.suppress(UnsupportedFunctions):
        model.inline_functions_with(*DECONV)
    _name(model, DECONV)


def name_all(model: OnnxModel) -> None:
    """Inlines functions and gives every node a name of its own, as always in the same way."""
    with contextlib.suppress(UnsupportedFunctions):
        model.inline_functions()
    _name(model, sorted({node.op_type for scope in model.scopes for node in scope.graph.node}))


def _name(model: OnnxModel, ops: Iterable[str]) -> None:
    for op in ops:
        model.name_nodes(op)


def _inlined(model: OnnxModel) -> OnnxModel:
    """Returns the model with the functions inlined that hold what rules are about; inside one they see no constants."""
    if not model.proto.functions:
        return model
    copy = model.copy()
    with contextlib.suppress(UnsupportedFunctions):
        copy.inline_functions_with(*CONCERNED)
    return copy
