"""Node by node: every piece of a network between two tensors that its model has too is run by itself, and judged.

The model's side runs in a process of its own, the network's here as soon as the model has answered. A piece that
differs where it was made smaller is run at its own sizes before anything is said of it; one whose sides start from
different tensors is widened, until they start from the same ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from trtconv.core import process
from trtconv.core.documents.proof import Lack, Unshown
from trtconv.core.documents.verify import Verdict
from trtconv.core.errors import TrtconvError
from trtconv.core.scratch import Scratch
from trtconv.graph.arrays import Array
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import SERVE, cut, describe, feeds, models, structure, task, tolerance
from trtconv.runtimes.proof.extents import shapes_of
from trtconv.runtimes.proof.feeds import InputKind, Shape
from trtconv.runtimes.proof.part import part_of
from trtconv.runtimes.proof.result import Divergence, PiecesResult
from trtconv.runtimes.proof.watch import in_order
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.prepared import Prepared
from trtconv.runtimes.tensorrt.readback.records import NotProven, OutOfTime, ReadNetwork

_MOST_ELEMENTS = 1 << 24
"""Of the sources of a piece together, beyond which it is not run at its own sizes."""
_MOST_OF_ALL_KINDS = 1 << 20
"""Beyond, inputs of one kind must do."""
_MOST_WIDER = 4
_NOT_ROUNDING = (Verdict.MISSING, Verdict.SHAPE)
"""What no tolerance makes right."""
_ROUNDED_OTHERWISE = ("int4", "uint4")
_TELLING = 0.1
"""Share of the elements that must not be NaN for a kind of inputs to show something."""
_BATCH = 3
_ELSEWHERE = (InputKind.ORDINARY, InputKind.TIES, InputKind.LIMITS)
"""What tells places from one another at further sizes, where values were told apart before."""


@dataclasses.dataclass
class _Trial:
    """A piece under way: which sizes are left to try, and what has come of it so far."""

    piece: cut.Piece
    of: describe.Description
    schemes: list[dict[str, Shape]]
    real: list[bool]
    kinds: tuple[InputKind, ...]
    look: task.Look
    at: int = 0
    wider: int = 0
    matches: int = 0
    lack: Unshown | None = None
    has_ended: bool = False
    branches: set[tuple[int, bool]] = dataclasses.field(default_factory=set)
    """What decided its conditionals, by their numbers."""
    calms: Mapping[InputKind, int] = dataclasses.field(default_factory=dict)
    """How calm the inputs were on which it differed."""
    alike: int = 1
    """How many pieces are like it, itself included."""


class Pieces:
    """Proves the pieces of a network.

    Args:
        network: The network.
        model: The model as the parser was given it.
        seams: Where both are cut.
        pieces: What is left to be shown between these; an empty sequence where nothing is.
        data: The model, serialized; None: it is its file.
        shapes: Of the inputs, at one size that they take.
        batch: The largest batch that inputs may have whose first axis is dynamic.
        deadline: On the clock of `time.monotonic`.
        megabytes: How much memory the process may take.
        others: Returns further input shapes that the model takes, at which pieces may differ that do not at the first.
    """

    def __init__(
        self,
        network: ReadNetwork,
        model: OnnxModel,
        seams: cut.Seams,
        pieces: Iterable[cut.Piece],
        data: bytes | None,
        shapes: Mapping[str, Shape],
        batch: int,
        deadline: float,
        megabytes: float,
        others: Callable[[], Sequence[Mapping[str, Shape]]] = lambda: (),
    ) -> None:
        self._runner: process.Process | None = None
        self._others = others
        self._network, self._model, self._data = network, model, data
        self._batch, self._megabytes = batch, megabytes
        self.deadline = deadline
        self._seams = seams
        self._inputs = shapes
        self._shapes = shapes_of(network, model, shapes, seams.numbers, megabytes) if pieces else {}
        self._boxes = {n for layer in network.layers if layer.kind == "NMS" for n in layer.outputs}
        self._divergence: Divergence | None = None
        self._trials = self._unlike(pieces)

    def stop(self) -> None:
        """Gives up what is not done; `run` returns soon."""
        self.deadline = -math.inf
        if self._runner is not None:
            self._runner.close()

    def run(self, runner: process.Process | None = None) -> PiecesResult:
        """Runs all pieces, as far as there is time.

        Args:
            runner: A process of `SERVE` that is free, which is ended then; None: one is started.
        """
        with Scratch("proof") as folder, contextlib.ExitStack() as stack:
            # Ended here, whoever started it: what it holds would come on top of what the builder takes at its end.
            self._runner = runner = stack.enter_context(runner or process.Process(SERVE, self._megabytes))
            open_ = self._rounds(runner, self._trials, folder.path)
            for shapes in self._others() if self._divergence is None else ():
                self._rounds(runner, self._moved(shapes), folder.path)
        for trial in open_:
            trial.lack = trial.lack or Unshown(Lack.TIME, trial.piece.target, "there was no time left for it")
        missing = tuple(trial.lack for trial in self._trials if trial.lack is not None)
        wrong = self._divergence and self._divergence.tensor
        proven = sum(t.alike for t in self._trials if t.has_ended and t.lack is None and t.piece.target != wrong)
        return PiecesResult(proven, sum(trial.alike for trial in self._trials), missing, self._divergence)

    def _rounds(self, runner: process.Process, trials: Sequence[_Trial], folder: Path) -> list[_Trial]:
        """Runs pieces until nothing is left to be tried; returns those that there was no time for."""
        open_ = [trial for trial in trials if not trial.has_ended]
        while open_ and self._divergence is None and (left := self.deadline - time.monotonic()) > 0:
            self._round(runner, open_, folder, left)
            open_ = [trial for trial in open_ if not trial.has_ended]
        return open_

    def _moved(self, inputs: Mapping[str, Shape]) -> list[_Trial]:
        """Returns the pieces that may compute something else at other sizes, to be run at those.

        What comes of it counts only where it differs: they are shown already, and not every piece takes all sizes.
        """
        if inputs == self._inputs:
            return []
        shapes = shapes_of(self._network, self._model, inputs, self._seams.numbers, self._megabytes)
        moved = []
        for trial in self._trials:
            own = {name: shapes.get(name) for name in trial.piece.sources}
            sizes = [n for shape in own.values() for n in shape or (None,)]
            if not trial.has_ended or trial.lack is not None or not trial.of.moves or None in sizes:
                continue
            scheme = {name: tuple(n or 0 for n in shape or ()) for name, shape in own.items()}
            if scheme not in trial.schemes:
                kinds = tuple(kind for kind in trial.of.kinds if kind in _ELSEWHERE)
                look = self._first_look(trial.piece)
                moved.append(_Trial(trial.piece, trial.of, [scheme], [True], kinds, look, wider=trial.wider))
        self._shapes = shapes
        return moved

    def _unlike(self, pieces: Iterable[cut.Piece]) -> list[_Trial]:
        """Returns a piece of each structure."""
        alike = structure.Alike[_Trial](self._network, self._model)
        for piece in pieces:
            trial = self._trial(piece)
            if self._model.main.dtype(piece.target) in _ROUNDED_OTHERWISE:
                self._give_up(trial, Lack.REFERENCE, "ONNX Runtime does not cast to 4 bits as ONNX defines it")
            first = alike.first(piece, trial.schemes, trial)
            first.alike += first is not trial
        return alike.firsts

    def _trial(self, piece: cut.Piece, wider: int = 0) -> _Trial:
        of = describe.Description.of(self._network, self._model, piece, self._shapes)
        free = self._batch > 1 and of.free_batch
        shapes = {name: self._shapes.get(name) or of.shape(name) for name in piece.sources}
        *smaller, own = feeds.schemes(shapes, min(self._batch, _BATCH) if free else 0, of.extent, of.bound)
        schemes = [own] if self._is_resized(piece.target) else [*smaller, own]
        real = [all(self._is_real(name, shape) for name, shape in scheme.items()) for scheme in schemes]
        kinds, look = of.kinds_at(schemes[0], _MOST_OF_ALL_KINDS), self._first_look(piece)
        return _Trial(piece, of, schemes, real, kinds, look, wider=wider)

    def _is_resized(self, target: str) -> bool:
        """Whether the network has another shape for a tensor than the model: it is to be seen at real sizes."""
        own, network_shape = self._shapes.get(target), self._network.tensors[self._seams.numbers[target]].shape
        if own is None or network_shape is None or len(own) != len(network_shape):
            return own is not None and network_shape is not None
        return any(n not in (None, size) and size >= 0 for n, size in zip(own, network_shape, strict=True))

    def _is_real(self, name: str, shape: Shape) -> bool:
        own = self._shapes.get(name)
        # Sizes that nobody knows are guessed: layers that hold others do not fit them.
        return own is not None and None not in own and own[1:] == shape[1:]

    def _round(self, runner: process.Process, trials: Sequence[_Trial], folder: Path, seconds: float) -> None:
        """Runs every open piece once more."""
        tasks = [self._task(number, trial) for number, trial in enumerate(trials)]
        begun = -1

        def hear(event: Mapping[str, Any]) -> None:
            nonlocal begun
            if event["event"] == "begin":
                begun = event["number"]
            elif self._divergence is None:
                self._judge(trials[event["number"]], event)
                Path(event["file"]).unlink(missing_ok=True)
            if self._divergence is not None or time.monotonic() > self.deadline:
                raise _Enough

        try:
            runner.call((str(self._model.path), self._data, tasks, str(folder)), seconds, hear)
        except _Enough:
            return
        except process.Lost as lost:
            if time.monotonic() < self.deadline and lost.cause != "time" and begun >= 0:
                self._give_up(trials[begun], Lack.REFERENCE, f"ONNX Runtime broke down on it ({lost.why})")
        except (process.WorkerBug, TrtconvError) as error:
            why = error.summary if isinstance(error, process.WorkerBug) else error.message
            for trial in trials:
                self._give_up(trial, Lack.REFERENCE, f"the model could not be run in pieces ({why})")

    def _task(self, number: int, trial: _Trial) -> task.Task:
        piece, shapes = trial.piece, trial.schemes[trial.at]
        return task.Task(
            number,
            piece.nodes,
            trial.of.sources,
            piece.target,
            shapes,
            trial.of.limits,
            trial.of.largest,
            trial.kinds,
            trial.of.eps,
            trial.of.narrow,
            self._network_of(trial).tensors[self._seams.numbers[piece.target]].shape,
            trial.look,
            trial.calms,
        )

    def _network_of(self, trial: _Trial) -> ReadNetwork:
        """Returns the layers of a piece, for the sizes at which it is run."""
        return part_of(self._network, trial.piece, self._seams.numbers, trial.schemes[trial.at], self._shapes)

    def _judge(self, trial: _Trial, event: Mapping[str, Any]) -> None:
        """Decides what becomes of a piece after a run."""
        if not event["calm"]:
            self._next(trial, Lack.REFERENCE, event["why"])
            return
        arrays = models.load(event)
        network = self._network_of(trial)
        prepared = Prepared(network)
        verdicts: dict[InputKind, tolerance.Judgement] = {}
        unable = "its values are not numbers on any inputs"
        for kind in (candidate for candidate in trial.kinds if str(int(candidate)) in event["calm"]):
            try:
                verdicts[kind] = self._compare(trial, prepared, kind, event["calm"], arrays)
            except OutOfTime as error:
                self._give_up(trial, Lack.TIME, error.reason)
                return
            except NotProven as error:
                unable = error.reason
        wrong = {kind: result for kind, result in verdicts.items() if result.verdict.refutes}
        trial.matches += sum(not result.verdict.refutes and result.telling >= _TELLING for result in verdicts.values())
        if not wrong:
            if trial.matches:
                trial.has_ended, trial.lack = True, self._untaken(trial, network)
            else:
                self._next(trial, Lack.REFERENCE if verdicts else Lack.KIND, unable)
        elif trial.look is not task.Look.MOVED and any(r.verdict not in _NOT_ROUNDING for r in wrong.values()):
            trial.look, trial.kinds = self._closer(trial), tuple(wrong)
            # On the same inputs: others may be of other sizes.
            trial.calms = {kind: event["calm"][str(int(kind))] for kind in wrong}
        else:
            self._differs(trial, next(iter(wrong.values())))

    def _first_look(self, piece: cut.Piece) -> task.Look:
        return task.first_look(self._nodes(piece), self._model.main)

    def _nodes(self, piece: cut.Piece) -> list[onnx.NodeProto]:
        return [self._model.main.columns.nodes[index] for index in piece.nodes]

    def _closer(self, trial: _Trial) -> task.Look:
        """Returns how to look at a piece that differs: what explains most differences first, which is cheaper."""
        has_terms = trial.look is task.Look.VALUES and task.adds(self._nodes(trial.piece))
        return task.Look.TERMS if has_terms else task.Look.MOVED

    def _differs(self, trial: _Trial, judgement: tolerance.Judgement) -> None:
        lost = judgement.verdict is Verdict.MISSING
        real = next((i for i in range(trial.at + 1, len(trial.schemes)) if trial.real[i]), None)
        telling = trial.real[trial.at] or (trial.of.any_size and not lost)
        if not telling and real is not None:
            self._restart(trial, real)
        elif (not trial.piece.even or self._seams.is_restricted(trial.piece)) and self._widen(trial):
            pass
        elif lost and not trial.piece.even:
            # Values that do not belong together may be what it cannot take.
            self._give_up(trial, Lack.KIND, judgement.why)
        elif telling:
            trial.has_ended = True
            self._divergence = self._diverged(trial, judgement.why)
        else:
            self._give_up(trial, Lack.SIZE, f"it differs at small sizes only: {judgement.why}")

    def _restart(self, trial: _Trial, at: int) -> None:
        trial.at, trial.look, trial.matches = at, self._first_look(trial.piece), 0
        trial.kinds, trial.calms = trial.of.kinds_at(trial.schemes[at], _MOST_OF_ALL_KINDS), {}

    def _next(self, trial: _Trial, lack: Lack, reason: str) -> None:
        """Tries the next sizes, then a wider piece; where there is neither, says what is not shown."""
        trial.lack = Unshown(lack, trial.piece.target, reason)
        if trial.at + 1 < len(trial.schemes):
            if task.elements_read(self._nodes(trial.piece), trial.schemes[trial.at + 1]) > _MOST_ELEMENTS:
                # Wider ones are no smaller.
                trial.has_ended = True
            else:
                self._restart(trial, trial.at + 1)
        elif not self._widen(trial):
            trial.has_ended = True

    def _widen(self, trial: _Trial) -> bool:
        wide = self._seams.wider(trial.piece) if trial.wider < _MOST_WIDER else None
        if wide is None:
            return False
        new = self._trial(wide, trial.wider + 1)
        new.lack, new.alike = trial.lack, trial.alike
        trial.__dict__.update(new.__dict__)
        return True

    def _give_up(self, trial: _Trial, lack: Lack, reason: str) -> None:
        trial.has_ended, trial.lack = True, Unshown(lack, trial.piece.target, reason)

    def _untaken(self, trial: _Trial, network: ReadNetwork) -> Unshown | None:
        """Says of a piece that is right which of its branches no inputs led to."""
        conditionals = {layer.values["conditional"] for layer in network.layers if layer.kind == "CONDITIONAL_OUTPUT"}
        left = [way for key in sorted(conditionals) for way in (True, False) if (key, way) not in trial.branches]
        if not left:
            return None
        why = f"no inputs were found that lead to its {'then' if left[0] else 'else'} branch"
        return Unshown(Lack.BRANCH, trial.piece.target, why)

    def _compare(
        self, trial: _Trial, prepared: Prepared, kind: InputKind, calm: Mapping[str, int], arrays: Mapping[str, Array]
    ) -> tolerance.Judgement:
        """Runs the layers on one kind of inputs, and compares.

        Raises:
            NotProven: They cannot be run.
        """
        of, network = trial.of, prepared.network
        fed = feeds.make(of.sources, trial.schemes[trial.at], kind, of.limits, of.largest, calm[str(int(kind))])
        run = Run(network, fed, deadline=self.deadline, megabytes=self._megabytes, prepared=prepared)
        outputs = run.outputs()
        trial.branches |= run.branches
        if not outputs and run.malformed:
            return tolerance.Judgement(Verdict.MISSING, run.unproven[min(run.malformed)])
        if not outputs:
            raise NotProven(next(iter(run.unproven.values()), "a layer before it is not run"))
        (got,) = outputs.values()
        value = arrays[f"value {int(kind)}"]
        got = in_order(got, value) if network.outputs[0] in self._boxes else got
        reference = tolerance.Computed(
            tolerance.reduced(network.layers, value, got),
            arrays.get(f"terms {int(kind)}"),
            [array for name, array in arrays.items() if name.startswith(f"moved {int(kind)} ")],
            [array for name, array in arrays.items() if name.startswith(f"beside {int(kind)} ")],
        )
        how = tolerance.Arithmetic(of.eps, of.approximated, of.rough, of.placed)
        return tolerance.judge(reference, got, how, fed)

    def _diverged(self, trial: _Trial, why: str) -> Divergence:
        target = trial.piece.target
        number = self._seams.numbers[target]
        layer = next(candidate for candidate in self._network.layers if number in candidate.outputs)
        scope = self._model.main
        node = str(scope.location(scope.producers[target]))
        shapes = {name: list(shape) for name, shape in trial.schemes[trial.at].items()}
        return Divergence(target, node, layer.name, layer.kind, why, shapes)


class _Enough(Exception):
    """Nothing more needs to be run."""
