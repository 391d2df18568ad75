"""What is proven of a network, how far it may be off, and what is said of what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.core.documents.proof import BuildProof, Lack, PieceCounts, Unshown
from trtconv.core.findings import Finding, Severity
from trtconv.core.process import Process
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.compare import SHARE_STEP, TOLERANCES
from trtconv.runtimes.proof import plugin_trial, prove, proving
from trtconv.runtimes.proof.plugin_trial import PluginTrial
from trtconv.runtimes.proof.proving import LEAST_SECONDS, MOST_SECONDS, ModelSide, NetworkProof
from trtconv.runtimes.proof.result import Divergence, ProofResult
from trtconv.runtimes.proof.subject import Promise, ProofSubject, allowed_error, precision_of
from trtconv.runtimes.proof.weighing import FileSide, Weighing
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

RELU = "(float[n,2] x) => (float[n,2] y) { y = Relu (x) }"
STEPS = "(float[2] x) => (float[2] y) <float s = {1}> { q = QuantizeLinear (x, s)  y = DequantizeLinear (q, s) }"
HALF = "(float16[2] x) => (float16[2] y) { y = Relu (x) }"
BRAIN = "(bfloat16[2] x) => (bfloat16[2] y) { y = Relu (x) }"
CAST = "(float[2] x) => (float[2] y) { h = Cast <to = 10> (x)  y = Cast <to = 1> (h) }"


def model_of(text: str = RELU, path: Path = Path("m.onnx")) -> OnnxModel:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 19]> g {text}')
    return OnnxModel(onnx.shape_inference.infer_shapes(proto), path)


@pytest.mark.parametrize(
    ("promise", "text", "allowed"),
    [
        (Promise(), RELU, 0.0),
        (Promise(frozenset({"exact"})), RELU, TOLERANCES["float32"].relative),
        (Promise(frozenset({"exact"})), HALF, TOLERANCES["fp16"].relative),
        (Promise(frozenset({"exact"})), STEPS, TOLERANCES["int8"].relative),
        (Promise(frozenset({"within tolerance"})), RELU, TOLERANCES["int8"].relative),
        (
            Promise(frozenset({"exact", "within tolerance"}), requantizes=True),
            STEPS,
            TOLERANCES["requantized"].relative,
        ),
        (Promise(frozenset({"exact", "other"})), RELU, math.inf),
    ],
)
def test_how_far_a_rewrite_may_be_off(promise: Promise, text: str, allowed: float) -> None:
    assert allowed_error(model_of(text), promise) == allowed


@pytest.mark.parametrize(
    ("text", "cast", "key"),
    [
        (RELU, "as-is", "float32"),
        (RELU, "fp16", "fp16"),
        (RELU, "bf16", "bf16"),
        (HALF, "as-is", "fp16"),
        (BRAIN, "as-is", "bf16"),
        (CAST, "as-is", "fp16"),
        (STEPS, "as-is", "int8"),
        (STEPS, "bf16", "bf16"),
        (STEPS, "fp16", "int8"),
    ],
)
def test_the_coarsest_type_says_how_far_a_network_may_be_off(text: str, cast: str, key: str) -> None:
    assert precision_of(model_of(text), cast) == key


@pytest.mark.parametrize(
    ("promise", "precision", "as_is", "exact"),
    [
        (Promise(), "as-is", True, True),
        (Promise(), "fp16", False, True),
        (Promise(frozenset({"exact"})), "as-is", False, True),
        (Promise(frozenset({"exact", "within tolerance"})), "as-is", False, False),
        (Promise(frozenset({"exact"}), on_request=True), "as-is", False, None),
        (Promise(frozenset({"exact"}), frees_sizes=True), "as-is", False, None),
    ],
)
def test_what_counts_is_the_file_but_where_something_else_was_asked_for(
    promise: Promise, precision: str, as_is: bool, exact: bool | None
) -> None:
    model = model_of()
    subject = ProofSubject(promise, model, model, precision)
    assert subject.parsed_as_is is as_is
    assert (subject.original is None) == promise.means_the_file == (subject.claimed is not None) == (exact is not None)
    if subject.claimed is not None:
        assert subject.claimed[0] is model and subject.claimed[1].exact is exact


TENSORS = (ReadTensor(0, "x", "float32", (-1, 2)), ReadTensor(1, "y", "float32", (-1, 2)))
NETWORK = ReadNetwork(TENSORS, (ReadLayer(0, "relu", "ACTIVATION", (0,), (1,), {"type": "RELU"}),), (0,), (1,))
LACKS = {lack: Unshown(lack, "y", "it is so") for lack in Lack}
UNCHANGED = Promise()
DIFFERS = Divergence("y", "", "relu", "ACTIVATION", "it is off", {"x": [1, 2]})


class Scene:
    """A proof of one small network whose prover comes to what it is told to, and hears what it is asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = folder / "m.onnx"
        self._patch = monkeypatch
        self.compares = True
        self.meaning: Any = None
        self.thorough: bool | None = None
        self.magnitudes: set[float] = set()
        self.seconds: float | None = None

    def proven(
        self,
        result: ProofResult,
        *profiles: ShapeProfile,
        level: str = "quick",
        text: str = RELU,
        promise: Promise = UNCHANGED,
        network: ReadNetwork = NETWORK,
        spent: float = 0.0,
        engine: Any = None,
        beside: bool = False,
    ) -> tuple[BuildProof | None, tuple[Finding, ...]]:
        """Proves; the build took so many seconds. What is known of the model is found out `beside` a parser."""

        def prover(network: object, meaning: Any, sizes: Any, limit: float, *, thorough: bool, changes: Any) -> Any:
            self.meaning, self.thorough = meaning, thorough
            # What no pass has changed needs no run.
            if self.compares:
                changes.compare(Process("nowhere:never"))
            self.magnitudes = {size.magnitude for size in sizes if size.besides}

            def finish(seconds: float, limit: float) -> ProofResult:
                self.seconds = seconds
                return result

            return SimpleNamespace(finish=finish, close=lambda: None)

        self._patch.setattr(prove, "Prover", prover)
        model = model_of(text, self._path)
        self._path.write_bytes(model.proto.SerializeToString())
        parsed: Any = SimpleNamespace(layer_count=len(network.layers), read_back=lambda: network)
        clock = Stopwatch(None)
        clock.seconds[Stage.BUILD.value] = spent
        subject = ProofSubject(promise, model, model)
        with ModelSide(subject, profiles, level) if beside else contextlib.nullcontext() as side:
            pass
        with NetworkProof(parsed, subject, profiles, level, 60.0, side=side) as proof:
            return proof.finish(clock, engine)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_nothing_is_proven_where_nobody_asks(scene: Scene) -> None:
    assert scene.proven(ProofResult(), level="none") == (None, ())


@pytest.mark.parametrize(
    ("result", "level", "code", "severity"),
    [
        (ProofResult(agrees=True), "quick", None, None),
        (ProofResult(agrees=True), "required", None, None),
        (ProofResult(agrees=True, missing=(LACKS[Lack.KIND],)), "quick", "TC410", Severity.INFO),
        (ProofResult(agrees=True, missing=(LACKS[Lack.KIND],)), "full", "TC410", Severity.INFO),
        (ProofResult(agrees=True, missing=(LACKS[Lack.KIND],)), "required", "TC410", Severity.ERROR),
        (ProofResult(why="an input is no tensor"), "full", None, None),
        (ProofResult(why="an input is no tensor"), "required", "TC410", Severity.ERROR),
        (ProofResult(agrees=False, divergence=DIFFERS), "quick", "TC402", Severity.ERROR),
        (
            ProofResult(agrees=False, divergence=DIFFERS, missing=(LACKS[Lack.TIME],)),
            "required",
            "TC402",
            Severity.ERROR,
        ),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_findings(
    scene: Scene, result: ProofResult, level: str, code: str | None, severity: Severity | None, beside: bool
) -> None:
    record, findings = scene.proven(result, level=level, beside=beside)
    assert [(finding.code, finding.severity) for finding in findings] == ([(code, severity)] if code else [])
    assert record is not None and (record.agrees, record.level) == (result.agrees, level)
    assert record.missing == result.missing
    assert scene.thorough == (level != "quick")
    if code == "TC402":
        assert findings[0].location.tensor == "y" and "relu" in findings[0].message


def test_more_time_is_advised_where_that_is_what_was_lacking(scene: Scene) -> None:
    fixes = {
        lacks: scene.proven(ProofResult(missing=tuple(LACKS[lack] for lack in lacks)))[1][0].fix or ""
        for lacks in ((Lack.KIND,), (Lack.TIME,), (Lack.KIND, Lack.TIME))
    }
    assert ["--prove-time" in fix for fix in fixes.values()] == [False, True, True]


@pytest.mark.parametrize("by_passes", [False, True])
def test_passes_are_left_out_where_they_are_at_fault_and_kept_elsewhere(scene: Scene, by_passes: bool) -> None:
    divergence = dataclasses.replace(DIFFERS, by_passes=by_passes)
    (finding,) = scene.proven(ProofResult(agrees=False, divergence=divergence))[1]
    assert ("--skip" in (finding.fix or "")) is by_passes


@pytest.mark.parametrize("engine", [None, object()])
def test_plugins_are_tried_where_there_is_an_engine(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, engine: object
) -> None:
    engines = []

    def tries(model: OnnxModel, runtime: object, profiles: object) -> PluginTrial:
        engines.append(runtime)
        return PluginTrial(missing=(LACKS[Lack.REFERENCE],))

    monkeypatch.setattr(plugin_trial, "try_plugins", tries)
    record, _ = scene.proven(ProofResult(agrees=True), engine=engine)
    assert engines == [engine] * (engine is not None)
    assert record is not None and len(record.missing) == len(engines)


@pytest.mark.parametrize("layers", [1, 2])
def test_many_layers_are_weighed_in_a_process_of_their_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    asked: list[bool] = []
    original = proving.Weighing

    def weighing(*args: Any, apart: bool) -> Weighing:
        asked.append(apart)
        return original(*args, apart=False)

    monkeypatch.setattr(proving, "Weighing", weighing)
    monkeypatch.setattr(proving, "_MANY_LAYERS", layers)
    record, findings = scene.proven(ProofResult(agrees=True), beside=True)
    assert record is not None and record.agrees and not findings
    assert asked == [len(NETWORK.layers) >= layers]


def test_a_file_that_is_gone_beside_the_parser_is_not_shown(tmp_path: Path) -> None:
    model = model_of(RELU, tmp_path / "gone.onnx")
    with ModelSide(ProofSubject(UNCHANGED, model, model), (), "quick") as side:
        meaning, sizes = side.of_model()
        assert meaning.parsed is model and len(sizes) > 0
    weighing = Weighing(NETWORK, model, None, side.take_file, apart=True)
    assert weighing.finish() == (None, ())
    assert [lack.what for lack in weighing.missing] == [Lack.REFERENCE]


def test_nothing_is_at_work_once_the_parser_is_done_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), list[bool]()

    def of(model: OnnxModel) -> FileSide:
        begun.set()
        time.sleep(0.1)
        ended.append(True)
        return FileSide(model, {})

    monkeypatch.setattr(FileSide, "of", of)
    model = model_of(RELU, tmp_path / "m.onnx")
    with pytest.raises(KeyError), ModelSide(ProofSubject(UNCHANGED, model, model), (), "quick"):
        begun.wait(10)
        raise KeyError("the parser")
    assert ended == [True]


def test_nothing_of_the_file_is_kept_once_it_is_taken(tmp_path: Path) -> None:
    model = model_of(RELU, tmp_path / "m.onnx")
    onnx.save(model.proto, model.path)
    with ModelSide(ProofSubject(UNCHANGED, model, model), (), "quick") as side:
        pass
    file = weakref.ref(side.take_file().file)
    gc.collect()
    assert file() is None


def test_what_nobody_compared_is_not_shown(scene: Scene) -> None:
    scene.compares = False
    record, _ = scene.proven(ProofResult(agrees=True))
    assert record is not None and [lack.what for lack in record.missing] == [Lack.TIME]


def test_how_many_of_each_kind_are_not_shown_is_told(scene: Scene) -> None:
    missing = (LACKS[Lack.SIZE], LACKS[Lack.KIND], LACKS[Lack.KIND])
    _, (finding,) = scene.proven(ProofResult(missing=missing, pieces=PieceCounts(5, 8)))
    assert {"5", "8", "1", "2", "'y'"} <= set(finding.message.replace("(", " ").replace(":", " ").split())


def test_what_cannot_be_proven_says_why(scene: Scene) -> None:
    empty = ReadNetwork(TENSORS, (), (0,), (0,))
    record, findings = scene.proven(ProofResult(agrees=True), network=empty)
    assert record is not None and (record.agrees, bool(record.why), findings) == (None, True, ())


def test_a_weight_of_another_value_differs_though_all_else_agrees(scene: Scene) -> None:
    text = "(float[n,2] x) => (float[n,2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }"
    for value, agrees in ((2.0, True), (3.0, False)):
        held = ReadLayer(0, "w", "CONSTANT", (), (1,), {"weights": np.array([1, value], np.float32)})
        network = ReadNetwork(TENSORS, (held,), (0,), (1,))
        record, findings = scene.proven(ProofResult(agrees=True), text=text, network=network)
        assert record is not None and record.weights is not None
        assert (record.agrees, record.weights.equal, record.weights.of) == (agrees, agrees, 1)
        assert [finding.code for finding in findings] == ["TC402"] * (not agrees)


@pytest.mark.parametrize(
    ("level", "spent", "seconds"),
    [("quick", 0.0, LEAST_SECONDS), ("quick", 77.0, 77.0), ("full", 77.0, MOST_SECONDS), ("required", 0, MOST_SECONDS)],
)
def test_a_quick_proof_takes_no_longer_than_the_build(scene: Scene, level: str, spent: float, seconds: float) -> None:
    scene.proven(ProofResult(agrees=True), level=level, spent=spent)
    assert scene.seconds == seconds


def test_what_the_network_should_compute(scene: Scene) -> None:
    def profile(low: int, opt: int, high: int) -> ShapeProfile:
        return ShapeProfile({"x": InputRange((low, 2), (opt, 2), (high, 2))}, {})

    scene.proven(ProofResult())
    plain = scene.meaning
    assert (plain.typical, plain.batch, plain.tolerance) == ({}, 8, TOLERANCES["float32"])
    assert 0 < plain.rewritten_error < 0.05 and plain.edited is None
    scene.proven(ProofResult(), profile(1, 3, 5), profile(5, 6, 7), promise=Promise(frozenset({"other"})))
    assert (scene.meaning.typical, scene.meaning.batch) == ({"x": (3, 2)}, 7)
    assert scene.meaning.rewritten_error == math.inf and scene.meaning.edited is not None
    # Ordinary inputs show nothing of images; types that overflow take smaller ones.
    assert min(scene.magnitudes) > 10
    scene.proven(ProofResult(), text=RELU.replace("float[", "float16["))
    assert scene.magnitudes and 1 < max(scene.magnitudes) < 10
    assert plain.steps() == {}
    scene.proven(ProofResult(), text=RELU.replace("Relu", "Sigmoid"))
    assert scene.meaning.steps() == {"y": SHARE_STEP}


def test_the_batch_is_what_all_inputs_may_have_together(scene: Scene) -> None:
    text = "(float[n,2] x, float[m,2] z, float s) => (float[a,2] y) { y = Concat <axis = 0> (x, z) }"
    ranges = {"x": (1, 9), "z": (1, 4)}
    inputs = {name: InputRange((low, 2), (low, 2), (high, 2)) for name, (low, high) in ranges.items()}
    scene.proven(ProofResult(), ShapeProfile({**inputs, "s": InputRange((), (), ())}, {}), text=text)
    assert scene.meaning.batch == 4
    single = "(float s) => (float y) { y = Neg (s) }"
    scene.proven(ProofResult(), ShapeProfile({"s": InputRange((), (), ())}, {}), text=single)
    assert scene.meaning.batch == 1
