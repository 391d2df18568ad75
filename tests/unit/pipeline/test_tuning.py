"""`--tune` on a TensorRT 8.6 whose engines take as long as they are told to: what is timed, chosen, kept and said."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from support.engines import GPU, give_gpu
from support.gpu import FakeDriver, engine_bytes, fake_tensorrt
from support.onnx_models import TENSORRT_8, attributes, deconvs, parse
from support.runtime import RTX, FakeNetwork, FakeRuntime, deconv, issue
from support.runtime import TENSORRT_8 as CAPABILITIES
from trtconv import BuildRequest, build, load_report
from trtconv.cli.formats.text import build_text
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.errors import BuildFailed, EnvironmentMissing
from trtconv.core.target import Target
from trtconv.engine.farm.machines import Choice
from trtconv.engine.farm.planning import could_make
from trtconv.engine.rebuilding import Recipe, rewritten_as_built
from trtconv.explainer.changes import changes
from trtconv.graph.layer_alone import LayerAlone
from trtconv.graph.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.passes.deconv_forms import FORMS
from trtconv.passes.explicit_deconv import MakeDeconvExplicit
from trtconv.pipeline.tuning import best
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt.base import DeconvLayer, RuntimeInfo
from trtconv.runtimes.tensorrt.engine import Engines
from trtconv.runtimes.tensorrt.logger import Log

UP = """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,h,w] x) => (float[1,2,p,q] y)
    <float[2,2,2,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[2] b = {3,4}>
    { a = Conv <kernel_shape=[2,2]> (x, w) [up] c = ConvTranspose <strides=[2,2], output_padding=[1,1]> (a, w, b)
      [again] d = ConvTranspose <strides=[2,2], output_padding=[1,1]> (a, w, b) e = Add (c, d) y = Relu (e) }"""
PLAIN = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
DIMS = {"h": Range(4, 5, 9), "w": Range(4, 7, 9)}
Times = Callable[[onnx.ModelProto], float]


class Timed(FakeRuntime):
    """TensorRT 8.6 with a GPU; its engines take as many microseconds as a function of their model says."""

    def __init__(self, driver: FakeDriver, times: Times) -> None:
        super().__init__(family="tensorrt", version="8.6.0", gpu=GPU, capabilities=CAPABILITIES)
        trt = fake_tensorrt(driver)
        self._engines = Engines("tensorrt", trt, Log(trt))
        self._times = times
        self.whole: Times | None = None
        """How long whole networks take; None: their engines do not run."""
        self.layers: list[onnx.ModelProto] = []

    def engines(self) -> Engines:
        if self.info.gpu is None:
            raise EnvironmentMissing("there is no GPU here that CUDA offers", "")
        return self._engines

    def lose_gpu(self) -> None:
        self.info = dataclasses.replace(self.info, gpu=None)

    def parse(self, model: bytes, path: Path) -> Any:
        proto = onnx.load_from_string(model)
        if path.name != "layer.onnx":
            nodes = [read(node) for node in proto.graph.node if node.op_type == "ConvTranspose"]
            if self.whole is None:
                return FakeNetwork(deconvolutions=nodes)
            bounds = [make_profile(OnnxModel(proto, path).inputs, DIMS).inputs]
            return FakeNetwork(engine=engine_bytes(proto, bounds, us=self.whole(proto)), deconvolutions=nodes)
        self.layers.append(proto)
        us = self._times(proto)
        if us < 0:
            return (issue(0, "Pad", "no"),)
        if us == 0:
            return FakeNetwork(failure=BuildFailed("no"))
        profile = make_profile(OnnxModel(proto, path).inputs, {})
        return FakeNetwork(engine=engine_bytes(proto, [profile.inputs], us=us))


def read(node: onnx.NodeProto) -> DeconvLayer:
    """Returns the layer of a node, as the parser reads it."""
    said = attributes(node)
    pads = said.get("pads", [0] * 4)
    return deconv(
        node.name,
        kernel=tuple(said["kernel_shape"]),
        pre_padding=tuple(pads[:2]),
        post_padding=tuple(pads[2:]),
        out_channels=2,
        has_bias=len(node.input) > 2,
        input_shape=(1, 2, -1, -1),
        output_shape=(1, 2, -1, -1),
        output=node.output[0],
    )


def form_of(model: onnx.ModelProto) -> str:
    """Returns the form of a layer by its nodes."""
    nodes = list(model.graph.node)
    added = [n for n in nodes if n.op_type == "Pad" or (n.op_type == "Conv" and attributes(n).get("group", 1) > 1)]
    if not added:
        return "kernel"
    place = next(i for i, node in enumerate(nodes) if node.op_type == "ConvTranspose")
    return ("input" if nodes.index(added[0]) < place else "behind") + ("_conv" if added[0].op_type == "Conv" else "")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Timed]:
    """Makes a TensorRT the installed one, whose forms take so long."""

    def install(**us: float) -> Timed:
        runtime = Timed(give_gpu(monkeypatch), lambda model: us.get(form_of(model), 10_000.0))
        monkeypatch.setattr(tensorrt, "load", lambda target: runtime)
        return runtime

    return install


def built(folder: Path, **options: Any) -> BuildReport:
    path = folder / "m.onnx"
    if not path.exists():
        onnx.save(parse(UP), path)
    given = {"tune": True, "prove": "none", "dims": DIMS, "timing_cache": folder / "t", **options}
    return build(BuildRequest(path, **given))


def test_the_fastest_form_is_taken_and_told(use: Callable[..., Timed], tmp_path: Path) -> None:
    runtime = use(behind_conv=4000.0, kernel=5000.0)
    report = built(tmp_path)
    assert report.exit_code == 0, report.findings
    # In float32 without a GPU the zeros would go into the input.
    assert [(t.node, t.form, t.usual, t.known) for t in report.tuned] == [
        ("up", "behind-conv", "input", False),
        ("again", "behind-conv", "input", True),
    ]
    times = {"behind-conv": 4000, "kernel": 5000, "input": 10_000, "input-conv": 10_000}
    assert report.tuned[0].us == times
    assert all("convolution behind" in edit.what for edit in report.edits)
    assert "tuned up (2 -> 2 channels, 1 x 4x6, float32): behind-conv, 10000.0 -> 4000.0 us" in build_text(report)
    assert report.to_json()["tuned"][0]["us"]["behind-conv"] == 4000
    assert report.seconds["tune"] > 0
    # The two nodes are one layer; the usual form and the fastest are built twice.
    assert len(runtime.layers) == len(times) + 2


def test_the_model_is_made_again_as_it_was_built(use: Callable[..., Timed], tmp_path: Path) -> None:
    use(kernel=5000.0)
    report = built(tmp_path)
    saved = load_report(tmp_path / "m.engine.json")
    assert saved.forms == {"up": "kernel", "again": "kernel"}
    model = OnnxModel.load(tmp_path / "m.onnx")
    recipe = Recipe.of(saved)
    for forms, kernel in ((recipe.forms, [3, 3]), ({}, [2, 2])):
        again = rewritten_as_built(model, dataclasses.replace(recipe, forms=forms))
        assert [attributes(node)["kernel_shape"] for node in deconvs(again)] == [kernel] * 2
    drawn = changes(model.path, report.plan.target, forms=saved.forms)
    assert all("zero-extended to 3x3" in change.edits[0].what for change in drawn)


def test_what_was_measured_is_not_measured_again(use: Callable[..., Timed], tmp_path: Path) -> None:
    use(kernel=5000.0)
    first = built(tmp_path)
    runtime = use(behind_conv=100.0)
    kept = built(tmp_path)
    assert kept.up_to_date
    assert kept.tuned == first.tuned
    again = built(tmp_path, force=True)
    assert ([t.form for t in again.tuned], runtime.layers) == (["kernel", "kernel"], [])
    assert all(t.known for t in again.tuned)
    assert not built(tmp_path, force=True, timing_cache=None).tuned[0].known
    assert not built(tmp_path, tune=False).up_to_date


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b"[{}]", b"[[", b'[{"for": {}, "us": {"kernel": null}, "refused": []}]']
)
def test_a_damaged_file_is_written_anew(use: Callable[..., Timed], tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "t.tuned.json").write_bytes(damage)
    use(kernel=5000.0)
    assert not built(tmp_path).tuned[0].known
    assert json.loads((tmp_path / "t.tuned.json").read_bytes())[0]["us"]["kernel"] == 5000
    assert built(tmp_path, force=True).tuned[0].known


def test_other_sizes_precisions_and_options_are_other_layers(use: Callable[..., Timed], tmp_path: Path) -> None:
    use()
    built(tmp_path)
    assert built(tmp_path, force=True).tuned[0].known
    assert not built(tmp_path, dims={**DIMS, "h": Range(4, 6, 9)}).tuned[0].known
    assert not built(tmp_path, precision="fp16").tuned[0].known


def test_layers_are_timed_at_the_rounded_sizes(use: Callable[..., Timed], tmp_path: Path) -> None:
    """The skip connection takes odd sizes alone, and a 6 becomes a 5 or a 7."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,h,w] x) => (float[1,2,h,w] y)
        <float[2,2,2,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> { a = MaxPool <kernel_shape=[3,3], strides=[2,2]> (x)
        [up] b = ConvTranspose <strides=[2,2], output_padding=[1,1]> (a, w)  y = Add (x, b) }"""
    use()
    onnx.save(parse(text), tmp_path / "m.onnx")
    dims = {name: Range(4, opt, 9) for name, opt in (("h", 5), ("w", 6))}
    report = built(tmp_path, dims=dims, rounded=True)
    ((_, opt, _),) = [each["x"].values() for each in report.to_json()["profiles"]]
    assert opt[:3] == [1, 2, 5]
    assert opt[3] in (5, 7)
    assert f"1 x 2x{opt[3] // 2}," in report.tuned[0].layer


def test_without_a_gpu_the_answers_of_the_only_one_are_taken(use: Callable[..., Timed], tmp_path: Path) -> None:
    runtime = use(kernel=5000.0)
    built(tmp_path)
    runtime.lose_gpu()
    report = built(tmp_path, force=True)
    assert (report.exit_code, [t.form for t in report.tuned]) == (0, ["kernel", "kernel"])
    with pytest.raises(EnvironmentMissing, match="--tune times layers on the GPU: there is no GPU"):
        built(tmp_path, timing_cache=tmp_path / "other", force=True)


@pytest.mark.parametrize("failing", [0.0, -1.0])
def test_forms_that_are_refused_or_do_not_build_are_left_out(
    use: Callable[..., Timed], tmp_path: Path, failing: float
) -> None:
    use(input=failing, behind_conv=failing, kernel=7000.0)
    (first, _) = built(tmp_path).tuned
    assert (first.form, first.us["input"], first.us["behind-conv"]) == ("kernel", None, None)


@pytest.mark.parametrize(("failing", "kept"), [(0.0, False), (-1.0, True)])
def test_what_failed_is_tried_again_and_what_the_parser_refused_is_not(
    use: Callable[..., Timed], tmp_path: Path, failing: float, kept: bool
) -> None:
    use(input=failing, kernel=7000.0)
    first, again = built(tmp_path).tuned
    assert (first.us["input"], first.known, again.known) == (None, False, True)
    runtime = use(input=1000.0, kernel=7000.0)
    (second, _) = built(tmp_path, force=True).tuned
    assert (second.known, second.us["input"], len(runtime.layers)) == ((True, None, 0) if kept else (False, 1000.0, 4))


def test_without_a_gpu_a_form_that_failed_where_there_is_one_is_left_out(
    use: Callable[..., Timed], tmp_path: Path
) -> None:
    runtime = use(input=0.0, kernel=5000.0)
    built(tmp_path)
    runtime.lose_gpu()
    (first, _) = built(tmp_path, force=True).tuned
    assert (first.form, first.known, first.us["input"]) == ("kernel", True, None)


def test_where_nothing_can_be_timed_the_usual_form_is_taken(use: Callable[..., Timed], tmp_path: Path) -> None:
    runtime = use()
    runtime._times = lambda model: 0.0
    report = built(tmp_path)
    assert report.tuned[0].form == "input"
    assert "none of its forms could be timed" in build_text(report)


def test_a_form_that_computes_something_else_is_not_taken(
    use: Callable[..., Timed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = use(kernel=1000.0)
    honest = runtime.parse

    def parse_wrongly(model: bytes, path: Path) -> Any:
        proto = onnx.load_from_string(model)
        if form_of(proto) == "kernel" and path.name == "layer.onnx":
            proto.graph.node[-1].op_type = "Abs"
        return honest(proto.SerializeToString(), path)

    monkeypatch.setattr(runtime, "parse", parse_wrongly)
    (first, _) = built(tmp_path).tuned
    assert first.us["kernel"] is None


def test_a_gain_within_the_spread_changes_nothing() -> None:
    assert best({"kernel": 100.0, "input": 98.0}, "kernel", 1.03) == "kernel"
    assert best({"kernel": 100.0, "input": 98.0}, "kernel", 1.01) == "input"
    assert best({"kernel": 100.0, "input": 98.0}, "kernel", 0.5) == "input"
    assert best({"kernel": 100.0, "input": 101.0}, "kernel", 0.5) == "kernel"
    assert best({"kernel": None, "input": 90.0}, "kernel", 2.0) == "input"
    assert best({"kernel": None}, "kernel", 1.0) == "kernel"


@pytest.mark.parametrize(("second", "form", "spread"), [(4000.0, "kernel", 1.0), (5600.0, "input", 1.4)])
def test_two_builds_of_one_form_say_what_chance_is(
    use: Callable[..., Timed], tmp_path: Path, second: float, form: str, spread: float
) -> None:
    """The form that was faster by a quarter is slower when it is built again: the first was luck."""
    runtime = use()
    us = {"kernel": iter([4000.0, second])}
    runtime._times = lambda model: next(us.get(form_of(model), iter(())), 5000.0)
    report = built(tmp_path)
    first = report.tuned[0]
    assert (first.form, first.spread) == (form, spread)
    assert first.us["kernel"] == (4000.0 + second) / 2
    assert ("apart (1.40)" in build_text(report)) == (form == "input")
    again = built(tmp_path, force=True)
    assert (again.tuned[0].form, again.tuned[0].spread, again.tuned[0].known) == (form, spread, True)


@pytest.mark.parametrize(("in_network", "form"), [(9000.0, "input"), (6000.0, "kernel")])
def test_forms_that_are_slower_in_the_network_are_not_taken(
    use: Callable[..., Timed], tmp_path: Path, in_network: float, form: str
) -> None:
    """The kernel is faster alone; which engine is written depends on the whole network."""
    runtime = use(kernel=5000.0)
    runtime.whole = lambda model: in_network if form_of(model) == "kernel" else 8000.0
    report = built(tmp_path)
    assert report.exit_code == 0, report.findings
    assert [(t.form, t.alone) for t in report.tuned] == [(form, "kernel" if form == "input" else "")] * 2
    race = report.tuned_network
    assert race is not None
    assert (race.tuned, race.usual, race.is_faster) == ((in_network,), (8000.0,), form == "kernel")
    assert str(race) in build_text(report)
    # Each layer was timed once: the second network takes what is known.
    assert len(runtime.layers) == 6
    saved = load_report(tmp_path / "m.engine.json")
    assert (saved.report.tuned_network, saved.forms) == (race, {"up": form, "again": form})
    model, *_ = pickle.loads((tmp_path / "m.engine").read_bytes().removeprefix(b"FAKE"))
    assert form_of(onnx.load_from_string(model)) == form
    assert built(tmp_path).up_to_date


@pytest.mark.parametrize("failing", ["parser", "audit", "builder"])
@pytest.mark.parametrize("usual_too", [False, True])
def test_a_network_that_fails_in_the_tuned_forms_is_built_in_the_usual_ones(
    use: Callable[..., Timed], tmp_path: Path, failing: str, usual_too: bool
) -> None:
    runtime = use(kernel=5000.0)
    honest, parsed = runtime.parse, list[str]()

    def fails_as_a_whole(model: bytes, path: Path) -> Any:
        proto = onnx.load_from_string(model)
        network = honest(model, path)
        if path.name == "layer.onnx":
            return network
        parsed.append(form_of(proto))
        if form_of(proto) != "kernel" and not usual_too:
            return network
        if failing == "parser":
            return (issue(0, "ConvTranspose", "not in this place"),)
        if failing == "builder":
            return FakeNetwork(failure=BuildFailed("not in this place"), deconvolutions=network.deconvolutions)
        wrong = tuple(dataclasses.replace(each, pre_padding=(1, 0)) for each in network.deconvolutions)
        return FakeNetwork(deconvolutions=wrong)

    runtime.parse = fails_as_a_whole  # type: ignore[method-assign]
    report = built(tmp_path, mend=False)
    assert report.exit_code == (1 if usual_too else 0), report.findings
    assert (tmp_path / "m.engine").exists() is not usual_too
    assert [(t.form, t.alone) for t in report.tuned] == [("input", "kernel")] * 2
    assert any("fails in the forms of --tune" in note for note in report.notes) is not usual_too
    if not usual_too:
        assert parsed == ["kernel", "input"]
        assert load_report(tmp_path / "m.engine.json").forms == {"up": "input", "again": "input"}
        assert built(tmp_path, mend=False).up_to_date


def test_what_trials_measure_is_not_left_to_the_build(use: Callable[..., Timed], tmp_path: Path) -> None:
    """A layer alone, between neighbours of no weight, is not the layer in its place."""
    plans: list[BuildPlan] = []
    runtime = use(kernel=5000.0)
    runtime.info = dataclasses.replace(runtime.info, capabilities=dataclasses.replace(CAPABILITIES, timing_cache=True))
    honest = runtime.parse

    def watched(model: bytes, path: Path) -> Any:
        network = honest(model, path)
        network.built = plans
        return network

    runtime.parse = watched  # type: ignore[method-assign]
    built(tmp_path)
    trials, networks = plans[:6], plans[6:]
    assert [(plan.timing_cache, plan.trial) for plan in trials] == [(None, True)] * 6
    # The tuned and the usual network, each as often as with --best-of 4.
    assert [plan.trial for plan in networks] == [False] * 8
    caches = [plan.timing_cache for plan in networks]
    assert caches[0] == caches[4] == tmp_path / "t"
    assert len({*caches[1:4], *caches[5:]}) == 6


def test_a_model_without_such_layers_needs_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRuntime()
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    onnx.save(parse(UP.replace("output_padding=[1,1]", "kernel_shape=[2,2]")), tmp_path / "m.onnx")
    assert built(tmp_path).tuned == ()


@pytest.mark.parametrize("element", ["float32", "float16", "int8"])
@pytest.mark.parametrize("ends", [(True, True), (False, False)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_form_of_a_layer_alone_is_a_valid_model(element: str, ends: tuple[bool, bool], rank: int) -> None:
    said = {"strides": [2] * rank, "output_padding": [1] * rank, "kernel_shape": [2] * rank}
    layer = LayerAlone(said, (1, 4, *[5] * rank), (4, 3, *[2] * rank), True, element, 17, True, *ends)
    for form in FORMS:
        model = OnnxModel(layer.model(), Path("layer.onnx"))
        before = model.main.shapes.get("y")
        run_passes(model, (MakeDeconvExplicit(choose=lambda *_, form=form: form),), TENSORRT_8)
        onnx.checker.check_model(model.proto, full_check=True)
        assert before == (1, 3 if ends[1] else 16, *[11] * rank)


@pytest.mark.parametrize(("asked", "depends"), [({"tune": True}, True), ({"precision": "auto"}, True), ({}, False)])
def test_what_was_measured_on_a_gpu_is_not_up_to_date_on_another(
    asked: dict[str, Any], depends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine of TensorRT-RTX is for any GPU, unless the times of one chose what is in it."""
    onnx.save(parse(PLAIN), tmp_path / "m.onnx")

    def kept(gpu: str) -> bool:
        fake = FakeRuntime(gpu=gpu)
        monkeypatch.setattr(tensorrt, "load", lambda target: fake)
        return built(tmp_path, dims={}, **{"tune": False, **asked}).up_to_date

    assert [kept("A"), kept("A"), kept("B")] == [False, True, not depends]
    report = load_report(tmp_path / "m.engine.json").report
    for gpu, same in ((report.runtime.gpu, True), ("C", not depends)):
        choice = Choice((RuntimeInfo("rtx", "1.7.1.116", gpu, RTX),), (report.plan.cast_by,), "")
        assert could_make(choice, report, BuildRequest(tmp_path / "m.onnx")) is same
    named = BuildRequest(tmp_path / "m.onnx", target=Target.of_flag("rtx@c"))
    assert could_make(None, report, named) is not depends
