"""Parts of models that a plugin computes too: found however they are written, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import trtconv
from support.paths import MODELS as NETS
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.pipeline.substituting.passes import offers, substitutions, unused
from trtconv.pipeline.substituting.trial import SUBSTITUTES, serve
from trtconv.runtimes.onnxruntime import session

DATA = Path(__file__).resolve().parents[2] / "data" / "substitution"
TARGET = Target.parse("tensorrt-10")
MODELS = {
    "moved-apart": "efficient-nms",
    "moved-apart-batch": "efficient-nms",
    "padded": "efficient-nms",
    "filtered-first": "efficient-nms",
    "attention": "deformable-attention",
    "attention-by-concat": "deformable-attention",
}


def load(name: str) -> OnnxModel:
    return OnnxModel.load(DATA / f"{name}.onnx")


def feeds(model: OnnxModel, images: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns inputs: coordinates of boxes in the hundreds, all else between 0 and 1."""
    given = {}
    for spec in model.inputs:
        sizes = [size if isinstance(size, int) else images for size in spec.dims]
        values = random.random(sizes).astype(np.float32)
        if sizes[-1] == 4:
            low = np.rint(values[..., :2] * 4000) / 8
            values = np.concatenate([low, low + 30 + np.rint(values[..., 2:] * 640) / 8], -1).astype(np.float32)
        elif sizes[-1] == 9:
            values[..., :4] = np.rint(values[..., :4] * 1600) / 8
        given[spec.name] = values
    return given


@pytest.mark.parametrize("name", MODELS)
def test_a_spelling_is_substituted_and_computes_the_same(name: str) -> None:
    original, model = load(name), load(name)
    done = run_passes(model, substitutions([MODELS[name]]), TARGET)
    plugin = SUBSTITUTES[MODELS[name]].plugin
    assert len(done.edits) == 1 and len(model.main.by_op[plugin]) == 1
    assert not {"NonMaxSuppression", "GridSample"} & model.main.by_op.keys()
    before, after = session(original), session(model)
    seen = 0
    for number in range(5):
        given = feeds(model, 1 + number % 2, np.random.default_rng([7, number]))
        one, two = before.run(None, given), after.run(None, given)
        seen += sum(each.size for each in one)
        for expected, got in zip(one, two, strict=True):
            assert expected.dtype == got.dtype
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert seen > 100
    assert not run_passes(model, substitutions([MODELS[name]]), TARGET).edits


def _scaled(model: onnx.ModelProto) -> None:
    """Scales the boxes after the suppression."""
    name = model.graph.output[0].name
    producer = next(node for node in model.graph.node if name in node.output)
    producer.output[list(producer.output).index(name)] = "inner"
    model.graph.initializer.append(numpy_helper.from_array(np.float32([3]), "three"))
    model.graph.node.append(onnx.helper.make_node("Mul", ["inner", "three"], [name]))


def _sampling(**changed: object) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        for node in (each for each in model.graph.node if each.op_type == "GridSample"):
            kept = [each for each in node.attribute if each.name not in changed]
            kept += [onnx.helper.make_attribute(name, value) for name, value in changed.items()]
            del node.attribute[:]
            node.attribute.extend(kept)

    return change


def _index_handed_out(model: onnx.ModelProto) -> None:
    kept = next(node for node in model.graph.node if node.op_type == "NonMaxSuppression").output[0]
    model.graph.output.append(onnx.helper.make_tensor_value_info(kept, onnx.TensorProto.INT64, [None, 3]))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("moved-apart", _scaled),
        ("padded", _scaled),
        ("padded", _index_handed_out),
        ("attention", _sampling(align_corners=1)),
        ("attention-by-concat", _sampling(padding_mode="border")),
    ],
)
def test_what_computes_something_else_is_left_alone(name: str, change: Callable[[onnx.ModelProto], None]) -> None:
    model = load(name)
    change(model.proto)
    model.touch()
    substitute = SUBSTITUTES[MODELS[name]]
    lists = list(substitute.candidates(model))
    assert lists and serve((substitute.name, lists), lambda _: None) == [None] * len(lists)


def test_check_offers_what_it_finds() -> None:
    def found(target: str, **asked: object) -> list[trtconv.Finding]:
        request = CheckRequest(DATA / "moved-apart.onnx", target=Target.parse(target), prove="none", **asked)  # type: ignore[arg-type]
        return [each for each in trtconv.check(request).findings if each.code == "TC414"]

    (offer,) = found("tensorrt-8.6")
    assert offer.severity is trtconv.Severity.INFO and "--substitute efficient-nms" in offer.fix
    assert not found("tensorrt-8.6", substitute=("efficient-nms",))
    assert not found("tensorrt-8.6", rewrite=False)
    assert not list(offers(load("moved-apart"), Target.parse("rtx-1.7")))


def test_rewrite_substitutes_and_compares(tmp_path: Path) -> None:
    request = RewriteRequest(
        DATA / "attention.onnx", tmp_path / "m.onnx", target=TARGET, substitute=("deformable-attention",)
    )
    report = trtconv.rewrite(request)
    assert report.verified.max_relative_error is not None and report.verified.max_relative_error < 1e-4
    assert any(node.domain == "TRT" for node in onnx.load(tmp_path / "m.onnx").graph.node)


@pytest.mark.parametrize(
    ("name", "asked", "target", "said"),
    [
        ("attention", "deformable-attention", "tensorrt-8.6", []),
        ("attention", "efficient-nms", "tensorrt-8.6", ["EfficientNMS_TRT does"]),
        ("attention", "deformable-attention", "rtx-1.7", ["rtx-1.7 has no plugin"]),
    ],
)
def test_a_substitute_that_changes_nothing_is_told(name: str, asked: str, target: str, said: list[str]) -> None:
    result = run_passes(load(name), substitutions([asked]), Target.parse(target))
    notes = list(unused([asked], result.edits, Target.parse(target)))
    assert len(notes) == len(said)
    assert all(
        f"--substitute {asked} changed nothing" in n and words in n for n, words in zip(notes, said, strict=True)
    )


def test_a_build_notes_a_substitute_that_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    path, dims = NETS / "unet.onnx", {"batch": 1, "height": 16, "width": 16}
    request = trtconv.BuildRequest(
        path, tmp_path / "e.engine", dims, target=Target.parse("rtx"), substitute=("efficient-nms",)
    )
    assert any("--substitute efficient-nms changed nothing" in note for note in trtconv.build(request).notes)


def test_a_target_without_plugins_keeps_the_nodes() -> None:
    done = run_passes(load("attention"), substitutions(["deformable-attention"]), Target.parse("rtx-1.7"))
    assert not done.edits and "no plugin" in done.skipped[0].reason
