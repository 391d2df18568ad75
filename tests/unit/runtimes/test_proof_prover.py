"""What the whole and the pieces show together, and when the whole is run."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from trtconv.core.documents.proof import Lack, PieceCounts, Unshown
from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import SERVE, cost, prove, whole_run
from trtconv.runtimes.proof.cut import Seams
from trtconv.runtimes.proof.feeds import Shape
from trtconv.runtimes.proof.prove import Prover
from trtconv.runtimes.proof.result import Divergence, PiecesResult, ProofResult
from trtconv.runtimes.proof.rewritten import Claim
from trtconv.runtimes.proof.weighing import Weighing
from trtconv.runtimes.proof.whole import Size
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

MODEL = OnnxModel(
    onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Neg (x) }'),
    Path("m.onnx"),
)
TENSORS = (ReadTensor(0, "x", "float32", (-1,)), ReadTensor(1, "y", "float32", (-1,)))
NETWORK = ReadNetwork(TENSORS, (ReadLayer(0, "neg", "UNARY", (0,), (1,), {"op": "NEG"}),), (0,), (1,))
SIZES = tuple(Size(name, {"x": (n,)}) for name, n in (("a", 4), ("b", 40)))
WRONG = Divergence("y", "", "neg", "UNARY", "it is off", {})
LACK = Unshown(Lack.TIME, "y", "there was no time")
RIGHT = ProofResult(sizes=1, agrees=True)
UNSHOWN = ProofResult(why="the model does not run")
DIFFERS = ProofResult(sizes=1, agrees=False, divergence=dataclasses.replace(WRONG, tensor="whole"))
ALL, SOME, NONE, FALSE = (
    PiecesResult(2, 2),
    PiecesResult(1, 2, (LACK,)),
    PiecesResult(),
    PiecesResult(1, 2, (LACK,), WRONG),
)


class Scene:
    """Runs of the whole and of the pieces that come to what they are told to, and what was asked of them."""

    def __init__(self, whole: ProofResult, pieces: PiecesResult) -> None:
        self.whole, self.pieces = whole, pieces
        self.runs: list[tuple[Size, ...]] = []
        self.closed = 0
        self.started: list[str] = []
        self.shown = 0
        self.left: Any = None
        self.shapes: Any = None
        self.others: Any = None

    def whole_run(self, network: object, meaning: object, *, sizes: Any, limit: float, seed: int) -> Any:
        self.runs.append(tuple(sizes))

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(
            valid_sizes=lambda besides, goes_on=None: [size for size in sizes[1:] if size.besides == besides],
            free_runner=lambda: SimpleNamespace(close=lambda: None),
            run_ahead=lambda: None,
            finish=lambda seconds: self.whole,
            close=close,
        )

    def pieces_of(
        self,
        network: object,
        model: object,
        seams: object,
        left: Any,
        data: object,
        shapes: Mapping[str, Shape],
        *_: Any,
    ) -> Any:
        self.left, self.shapes, self.others = [piece.target for piece in left], shapes, _[-1]
        return SimpleNamespace(run=lambda runner: self.pieces, stop=lambda: None, deadline=0.0)


@pytest.fixture
def prover(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Scene, ProofResult]]:
    """Returns what proves with a scene: at sizes of 4 and 40 elements, of which a run of the whole may take so many."""

    def proves(
        whole: ProofResult,
        pieces: PiecesResult,
        elements: float = 100,
        sizes: tuple[Size, ...] = SIZES,
        seconds: float = 60.0,
        defined: bool = False,
        edited: bytes | None = None,
        same_numbers: bool = True,
        changes: bool | None = None,
        thorough: bool = False,
        network: ReadNetwork | None = None,
        **typical: Shape,
    ) -> tuple[Scene, ProofResult]:
        scene = Scene(whole, pieces)
        monkeypatch.setattr(prove, "WholeRun", scene.whole_run)
        monkeypatch.setattr(prove, "Pieces", scene.pieces_of)
        monkeypatch.setattr(prove, "Process", lambda *_: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr(prove, "start_early", scene.started.append)
        monkeypatch.setattr(prove, "Definitions", lambda *_: SimpleNamespace(show=lambda piece: defined))
        # What an element costs is for the estimate to say.
        monkeypatch.setattr(prove, "MOST_PRODUCTS", cost.products(NETWORK, {"y": (1,)}) * elements)
        meaning: Any = SimpleNamespace(
            parsed=MODEL,
            edited=edited,
            same_numbers=same_numbers,
            inputs=MODEL.inputs,
            typical=typical,
            batch=1,
            megabytes=1e3,
        )

        def give_back() -> None:
            scene.shown += 1

        held = SimpleNamespace(is_defined=lambda: changes, compare=lambda runner: None, give_back=give_back)
        under_way = Prover(
            network or NETWORK, meaning, sizes, 60.0, thorough=thorough, changes=None if changes is None else held
        )
        found = under_way.finish(60.0, seconds)
        under_way.close()
        return scene, found

    return proves


@pytest.mark.parametrize("parser", [None, "the parser"])
@pytest.mark.parametrize("pieces", [ALL, SOME])
def test_memory_is_returned_where_another_process_builds(
    prover: Any, monkeypatch: pytest.MonkeyPatch, parser: str | None, pieces: PiecesResult
) -> None:
    trimmed: list[bool] = []
    monkeypatch.setattr("trtconv.core.heap.trim", lambda: trimmed.append(True))
    prover(RIGHT, pieces, network=dataclasses.replace(NETWORK, keep_alive=parser))
    assert trimmed == ([] if parser else [True])


@pytest.mark.parametrize(
    ("whole", "pieces", "agrees", "tensor", "missing"),
    [
        (RIGHT, ALL, True, None, []),
        (RIGHT, SOME, True, None, ["y"]),
        (RIGHT, NONE, True, None, []),
        (RIGHT, FALSE, False, "y", ["y"]),
        # Where every piece is proven, it is of no interest that the whole could not be run.
        (UNSHOWN, ALL, True, None, []),
        (UNSHOWN, SOME, None, None, ["y", "the whole network"]),
        (UNSHOWN, NONE, None, None, ["the whole network"]),
        (UNSHOWN, FALSE, False, "y", ["y"]),
        # What differs as a whole differs, whatever the pieces say.
        (DIFFERS, ALL, False, "whole", []),
        (DIFFERS, FALSE, False, "whole", ["y"]),
    ],
)
def test_what_they_show_together(
    prover: Any, whole: ProofResult, pieces: PiecesResult, agrees: bool | None, tensor: str | None, missing: list[str]
) -> None:
    scene, found = prover(whole, pieces)
    assert (found.agrees, found.divergence and found.divergence.tensor) == (agrees, tensor)
    assert [lack.where for lack in found.missing] == missing
    assert found.pieces == PieceCounts(pieces.proven, pieces.of)
    assert scene.runs == [SIZES] and scene.closed == 1


@pytest.mark.parametrize(
    ("elements", "pieces", "runs"),
    [
        (41, SOME, [SIZES]),
        # The second size, or both, are too much; those that are not are run at once, all where pieces are missing.
        (39, ALL, [SIZES[:1]]),
        (39, SOME, [SIZES[:1]]),
        (3, ALL, []),
        (3, SOME, [SIZES]),
        (3, FALSE, []),
    ],
)
def test_a_large_whole_is_run_where_pieces_are_missing(
    prover: Any, elements: float, pieces: PiecesResult, runs: list[tuple[Size, ...]]
) -> None:
    assert prover(RIGHT, pieces, elements)[0].runs == runs


def test_a_large_first_size_is_run_again_where_a_smaller_one_agrees(prover: Any) -> None:
    sizes = SIZES[::-1]
    for whole, runs in ((RIGHT, [sizes[1:], sizes]), (DIFFERS, [sizes[1:]])):
        scene, _ = prover(whole, SOME, 39, sizes)
        assert (scene.runs, scene.closed) == (runs, len(runs))
    assert prover(RIGHT, SOME, 39, sizes, seconds=-1.0)[0].runs == [sizes[1:]]


@pytest.mark.parametrize(("elements", "run"), [(39, False), (399, False), (401, True)])
def test_sizes_besides_may_cost_a_tenth(prover: Any, elements: float, run: bool) -> None:
    besides = (SIZES[0], dataclasses.replace(SIZES[1], besides=True))
    assert prover(RIGHT, ALL, elements, besides)[0].runs == [besides if run else besides[:1]]


def test_pieces_are_run_at_typical_sizes_or_the_first_that_counts(prover: Any) -> None:
    grouped = (dataclasses.replace(SIZES[0], group="g"), SIZES[1])
    assert prover(RIGHT, ALL)[0].shapes == {"x": (4,)}
    # Of sizes that stand for each other, one that the model was seen to take.
    assert prover(RIGHT, ALL, sizes=grouped)[0].shapes == {"x": (40,)}
    assert prover(RIGHT, ALL, sizes=grouped[:1])[0].shapes == {"x": (4,)}
    besides = (grouped[0], dataclasses.replace(SIZES[1], besides=True))
    assert prover(RIGHT, ALL, 1000, sizes=besides)[0].shapes == {"x": (4,)}
    assert prover(RIGHT, ALL, sizes=grouped, x=(9,))[0].shapes == {"x": (9,)}
    assert prover(RIGHT, ALL, 3, sizes=grouped)[0].shapes == {"x": (4,)}


def test_pieces_are_run_at_other_sizes_too_that_the_model_takes(prover: Any) -> None:
    besides = (SIZES[0], dataclasses.replace(SIZES[1], besides=True))
    assert prover(RIGHT, ALL, 1000, sizes=besides)[0].others() == [{"x": (40,)}]
    assert prover(RIGHT, ALL)[0].others() == []
    # Where the whole is not run, none are known.
    assert prover(RIGHT, ALL, 3, sizes=besides)[0].others() == []


@pytest.mark.parametrize("late", [False, True])
def test_pieces_are_stopped_where_their_time_is_up_and_not_before(
    prover: Any, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()

    def pieces_of(*_: object) -> Any:
        def run(runner: object) -> PiecesResult:
            return SOME if late and stopped.wait(60) else ALL

        return SimpleNamespace(run=run, stop=stopped.set, deadline=0.0)

    monkeypatch.setattr(Scene, "pieces_of", pieces_of)
    original = Prover._piecewise

    def piecewise(self: Prover, until: float) -> PiecesResult:
        found = original(self, until)
        assert stopped.is_set() is late
        return found

    monkeypatch.setattr(Prover, "_piecewise", piecewise)
    assert prover(RIGHT, ALL, seconds=0.05 if late else 60.0)[1].pieces == PieceCounts(1 if late else 2, 2)


def test_what_fails_in_threads_is_raised_where_they_are_waited_for(
    prover: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Any:
        raise KeyError("odd")

    original = whole_run.WholeRun
    monkeypatch.setattr(Scene, "pieces_of", fails)
    with pytest.raises(KeyError, match="odd"):
        prover(RIGHT, ALL)
    onnx.save(MODEL.proto, tmp_path / "m.onnx")
    monkeypatch.setattr(whole_run, "expect", fails)
    meaning: Any = SimpleNamespace(
        path=str(tmp_path / "m.onnx"), original=None, parsed=MODEL, inputs=MODEL.inputs, megabytes=1e3
    )
    run = original(NETWORK, meaning, SIZES, 60.0, 0)
    with pytest.raises(KeyError, match="odd"):
        run.finish(60.0)
    run.close()
    file = OnnxModel(MODEL.proto, tmp_path / "m.onnx")
    for place in ("origin.origins", "rewritten.compared_pieces"):
        monkeypatch.setattr(f"trtconv.runtimes.proof.{place}", fails)
        weighing = Weighing(NETWORK, file, (file, Claim(True, 0.1)))
        weighing.compare(SimpleNamespace())  # type: ignore[arg-type]
        with pytest.raises(KeyError, match="odd"):
            weighing.finish()
        monkeypatch.undo()


@pytest.mark.parametrize("idle", [True, False])
def test_the_process_of_the_whole_is_lent_once_it_is_idle_and_else_ends_with_its_work(
    monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    goes_on, closed = threading.Event(), threading.Event()
    process: Any = SimpleNamespace(close=closed.set)
    monkeypatch.setattr(whole_run, "Process", lambda *_: process)
    monkeypatch.setattr(whole_run, "goal_of", lambda *_: None)
    monkeypatch.setattr(whole_run, "Ahead", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(whole_run, "expect", lambda *_: idle or goes_on.wait(10))
    monkeypatch.setattr(whole_run, "_FREE_SECONDS", 60 if idle else 0.01)
    meaning: Any = SimpleNamespace(inputs=(), megabytes=1e3)
    run = whole_run.WholeRun(NETWORK, meaning, SIZES, 60.0, 0)
    assert run.free_runner() is (process if idle else None)
    assert not closed.is_set()
    goes_on.set()
    assert closed.wait(0.05 if idle else 10) is not idle
    run.close()


def test_pieces_of_a_file_that_is_gone_are_not_shown(prover: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise InputError("the file is gone", "")

    monkeypatch.setattr(Scene, "pieces_of", fails)
    _, found = prover(UNSHOWN, ALL)
    assert (
        found.agrees is None and found.missing[0].what is Lack.REFERENCE and "file is gone" in found.missing[0].reason
    )


def test_ends_of_another_type_differ_whatever_was_run(prover: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = (TENSORS[0], dataclasses.replace(TENSORS[1], dtype="float16"))
    monkeypatch.setattr("test_proof_prover.NETWORK", dataclasses.replace(NETWORK, tensors=tensors))
    _, found = prover(RIGHT, ALL)
    assert found.agrees is False and found.divergence.tensor == "y"


def test_what_is_shown_by_its_definition_is_not_run(prover: Any) -> None:
    scene, found = prover(RIGHT, NONE, defined=True)
    assert (scene.runs, scene.left) == ([], [])
    assert (found.agrees, found.sizes, found.pieces) == (True, 0, PieceCounts(1, 1, 1))
    # What passes changed is held to the file by the whole; and a thorough proof runs everything.
    scene, found = prover(RIGHT, NONE, defined=True, edited=b"other")
    assert (scene.runs, scene.left, found.pieces) == ([SIZES], [], PieceCounts(1, 1, 1))
    scene, found = prover(RIGHT, PiecesResult(1, 1), defined=True, thorough=True)
    assert (scene.runs, scene.left, found.pieces) == ([SIZES], ["y"], PieceCounts(1, 1))
    scene, found = prover(RIGHT, PiecesResult(1, 1))
    assert (scene.runs, scene.left, found.pieces) == ([SIZES], ["y"], PieceCounts(1, 1))


def test_a_process_for_pieces_is_started_once_it_is_known_that_some_are_left(prover: Any) -> None:
    assert prover(RIGHT, NONE, defined=True)[0].started == []
    assert prover(RIGHT, ALL)[0].started == [SERVE]


@pytest.mark.parametrize(
    ("pieces", "defined", "elements", "shown"),
    [
        (NONE, True, 100, True),
        # Where the whole is run, or may yet be, its weights are needed.
        (ALL, False, 100, False),
        (ALL, False, 3, True),
        (SOME, False, 3, False),
        (FALSE, False, 3, False),
    ],
)
def test_it_tells_once_nobody_needs_weights(
    prover: Any, pieces: PiecesResult, defined: bool, elements: float, shown: bool
) -> None:
    assert prover(RIGHT, pieces, elements, defined=defined, changes=True)[0].shown == shown


def test_weights_are_kept_for_assertions_which_are_looked_at_later(
    prover: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    constant = ReadLayer(1, "c", "CONSTANT", (), (2,), {"weights": np.zeros(1, bool), "shape": (1,)})
    assertion = ReadLayer(2, "go", "ASSERTION", (2,), (), {})
    network = dataclasses.replace(
        NETWORK, tensors=(*TENSORS, ReadTensor(2, "c", "bool", (1,))), layers=(*NETWORK.layers, constant, assertion)
    )
    monkeypatch.setattr("test_proof_prover.NETWORK", network)
    monkeypatch.setattr(prove, "goal_of", lambda *_: None)
    monkeypatch.setattr(prove, "feeds_of", lambda *_: {})
    scene, found = prover(RIGHT, NONE, defined=True, changes=True)
    assert scene.shown == 0 and found.divergence.kind == "ASSERTION"


@pytest.fixture
def returns_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are returned follow from no input's values: no piece makes them."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y, int64[1] s)
    { y = Neg (x) s = Shape (x) }"""
    shape = ReadLayer(1, "shape", "SHAPE", (0,), (2,), {})
    tensors = (*TENSORS, ReadTensor(2, "s", "int64", (1,)))
    network = dataclasses.replace(NETWORK, tensors=tensors, layers=(*NETWORK.layers, shape), outputs=(1, 2))
    monkeypatch.setattr("test_proof_prover.MODEL", OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")))
    monkeypatch.setattr("test_proof_prover.NETWORK", network)


@pytest.mark.usefixtures("returns_sizes")
@pytest.mark.parametrize(("elements", "sizes"), [(100, SIZES), (5, SIZES[:1]), (1, SIZES)])
def test_what_no_piece_makes_takes_the_whole(prover: Any, elements: float, sizes: tuple[Size, ...]) -> None:
    """At all sizes where it is too large to be run at once at any."""
    scene, found = prover(DIFFERS, NONE, elements, defined=True, changes=True)
    assert (scene.runs, scene.left, found.agrees, scene.shown) == ([sizes], [], False, 0)


@pytest.mark.usefixtures("returns_sizes")
@pytest.mark.parametrize("seconds", [60.0, -1.0])
def test_what_no_piece_makes_is_missing_where_the_whole_shows_nothing(prover: Any, seconds: float) -> None:
    _, found = prover(UNSHOWN, ALL, 1, seconds=seconds)
    assert (found.agrees, [lack.where for lack in found.missing][-1:]) == (None, ["the whole network"])


@pytest.mark.parametrize("fault", ["made", "constant", "unknown", "fixed", "through"])
def test_ends_that_are_others_take_the_whole(prover: Any, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Each piece is right: what comes in, or goes out, is not what the model takes or returns."""
    x, y = TENSORS
    z = ReadTensor(2, "z", "float32", (-1,))
    neg = NETWORK.layers[0]
    ends = "float[n] x, float[n] z) => (float[n] y)"
    tensors: tuple[ReadTensor, ...] = (x, y, z)
    layers: tuple[ReadLayer, ...] = (neg,)
    inputs: tuple[int, ...] = (0, 2)
    outputs: tuple[int, ...] = (1,)
    if fault == "made":
        layers, inputs = (dataclasses.replace(neg, index=1), ReadLayer(0, "x", "UNARY", (2,), (0,), {})), (2,)
    elif fault == "constant":
        layers, inputs = (dataclasses.replace(neg, index=1), ReadLayer(0, "x", "CONSTANT", (), (0,), {})), (2,)
    elif fault == "unknown":
        inputs = (0,)
    elif fault == "fixed":
        tensors = (dataclasses.replace(x, shape=(4,)), y, z)
    else:
        ends, tensors = ends.replace("=> (", "=> (float[n] z, "), (*tensors, dataclasses.replace(z, index=3))
        layers, outputs = (neg, ReadLayer(1, "z", "UNARY", (2,), (3,), {})), (1, 3)
    network = ReadNetwork(tensors, layers, inputs, outputs)
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({ends} {{ y = Neg (x) }}'
    monkeypatch.setattr("test_proof_prover.MODEL", OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")))
    monkeypatch.setattr("test_proof_prover.NETWORK", network)
    scene, found = prover(DIFFERS, NONE, defined=True)
    assert (scene.runs, found.agrees) == ([SIZES], False)


def test_a_tensor_that_became_an_input_takes_the_whole(prover: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No layer makes it, so that no piece shows what the others start from."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { t = Exp (x) y = Neg (t) }'
    tensors = (TENSORS[0], TENSORS[1], ReadTensor(2, "t", "float32", (-1,)))
    layers = (dataclasses.replace(NETWORK.layers[0], inputs=(2,)),)
    network = dataclasses.replace(NETWORK, tensors=tensors, layers=layers, inputs=(0, 2))
    monkeypatch.setattr("test_proof_prover.MODEL", OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")))
    monkeypatch.setattr("test_proof_prover.NETWORK", network)
    scene, found = prover(DIFFERS, NONE, defined=True)
    assert (scene.runs, found.agrees) == ([SIZES], False)


def test_what_is_written_down_takes_no_more_time_than_there_is(prover: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()
    monkeypatch.setattr(prove, "cut", SimpleNamespace(Seams=lambda *_: slow.wait(20.0)))
    # As it does, which sees that it is closed once it has a piece.
    monkeypatch.setattr(Prover, "close", lambda self: slow.set())
    scene, found = prover(RIGHT, ALL, seconds=0.2)
    assert (scene.runs, found.agrees) == ([], None)
    assert [lack.what for lack in found.missing] == [Lack.TIME, Lack.SIZE]


@pytest.mark.parametrize("most", [1, 2])
def test_pieces_may_hold_no_more_than_there_is_room_for(
    prover: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A node and a layer are two; where it is too much, the whole is run."""
    monkeypatch.setattr(prove, "_MAX_PLACES", most)
    scene, found = prover(RIGHT, PiecesResult(1, 1), defined=True)
    assert (scene.runs, bool(found.missing), found.agrees) == ([SIZES] if most < 2 else [], most < 2, True)


def test_pieces_are_written_down_until_nobody_waits(prover: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may hold all of a model, and there are as many as nodes."""
    closed, late = threading.Event(), list[int]()
    original = Prover.close

    def close(self: Prover) -> None:
        closed.set()
        original(self)

    def pieces(self: object) -> Any:
        piece = SimpleNamespace(nodes=(), layers=(), target="y")
        while not closed.is_set():
            yield piece
        while len(late) < 5:
            time.sleep(0.05)
            late.append(1)
            yield piece

    monkeypatch.setattr(Prover, "close", close)
    monkeypatch.setattr(Seams, "pieces", pieces)
    _, found = prover(RIGHT, ALL, seconds=0.2)
    assert [lack.what for lack in found.missing] == [Lack.TIME, Lack.SIZE]
    assert len(late) < 5
