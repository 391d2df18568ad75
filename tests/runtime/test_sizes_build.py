"""Sizes and profiles with the installed runtime: real engines, built without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import trtconv
from support.paths import MODELS
from support.sizes import save, unet
from trtconv import BuildRequest, CheckRequest, InputError, Range, RewriteRequest, Target
from trtconv.core.dim_flags import parse_dims, parse_values
from trtconv.core.errors import EnvironmentMissing
from trtconv.runtimes.tensorrt import load

RTX = Target("rtx")
WANTED = parse_dims(["batch=1", "height=200:300:400", "width=200:300:400"])


@pytest.fixture(autouse=True)
def _runtime() -> None:
    try:
        load(RTX)
    except EnvironmentMissing as error:
        pytest.skip(error.message)


def request(model: Path, tmp_path: Path, **options: object) -> BuildRequest:
    return BuildRequest(model, tmp_path / "m.engine", target=RTX, **options)  # type: ignore[arg-type]


def test_axes_that_an_exporter_named_with_a_question_mark_may_differ(tmp_path: Path) -> None:
    """Paddle2ONNX does that; for TensorRT's parser equal names are equal sizes."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,3,h,w] x) => (float[1,3,p,q] y) { y = Relu (x) }"""
    proto = onnx.parser.parse_model(text)
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim[2:]:
            dim.dim_param = "?"
    onnx.save(proto, tmp_path / "m.onnx")
    sizes = parse_dims(["x:2=48", "x:3=96:192:384"])
    for rewrite in (True, False):
        built = request(tmp_path / "m.onnx", tmp_path, dims=sizes, rewrite=rewrite)
        assert trtconv.build(built).exit_code == 0


class TestIssue2617:
    MODEL = MODELS / "super_resolution.onnx"

    def test_check_names_the_node_and_the_multiple(self) -> None:
        report = trtconv.check(CheckRequest(self.MODEL, WANTED, target=RTX))
        (found, _) = (f for f in report.findings if f.code == "TC201")
        assert report.exit_code == 1
        assert "multiples of 8" in found.message
        assert found.location.node == "/Add"

    def test_build_offers_the_nearest_sizes(self, tmp_path: Path) -> None:
        report = trtconv.build(request(self.MODEL, tmp_path, dims=WANTED))
        assert report.exit_code == 1
        assert "296 and 304" in report.findings[0].fix
        assert list(tmp_path.iterdir()) == []

    def test_round_builds(self, tmp_path: Path) -> None:
        report = trtconv.build(request(self.MODEL, tmp_path, dims=WANTED, rounded=True))
        assert report.exit_code == 0
        assert report.plan.profiles[0].dims["height"] == Range(200, 304, 400)
        saved = json.loads((tmp_path / "m.engine.json").read_text())
        assert saved["lattice"]["dims"]["height"]["step"] == 8
        assert saved["plan"]["dims"][0]["height"] == "200:300:400"
        again = trtconv.build(request(self.MODEL, tmp_path, dims=WANTED, rounded=True))
        assert again.up_to_date
        assert again.to_json()["profiles"] == saved["profiles"]
        assert not trtconv.build(
            request(self.MODEL, tmp_path, dims=parse_dims(["batch=1", "height=200", "width=200"]))
        ).up_to_date


def test_split_profiles_are_built_and_chosen(tmp_path: Path) -> None:
    dims = parse_dims(["batch=1", "height=64:128:256", "width=64:128:256"])
    report = trtconv.build(request(MODELS / "unet.onnx", tmp_path, dims=dims, split="2"))
    assert report.exit_code == 0
    assert len(report.plan.profiles) == 2
    saved = trtconv.load_report(tmp_path / "m.engine.json")
    assert [saved.profile_for({"x": (1, 3, n, n)}) for n in (64, 128, 256)] == [0, 1, 1]


def test_split_finer_than_the_lattice_leaves_nothing(tmp_path: Path) -> None:
    dims = parse_dims(["batch=1", "height=64:72:80", "width=64"])
    with pytest.raises(InputError, match="finer"):
        trtconv.build(request(MODELS / "unet.onnx", tmp_path, dims=dims, split="3"))
    assert list(tmp_path.iterdir()) == []


SHUFFLE = """g (float[1,8,h,w] x) => (float[1,2,a,b] y) <int64[6] s = {1,2,2,2,16,24}, int64[4] t = {1,2,32,48}> {
    r = Reshape (x, s) q = Transpose <perm = [0,1,4,2,5,3]> (r) y = Reshape (q, t) }"""


def test_baked_pixel_shuffle_is_repaired_and_built(tmp_path: Path) -> None:
    model = save(SHUFFLE, tmp_path / "shuffle.onnx")
    report = trtconv.build(request(model, tmp_path, dims=parse_dims(["h=8:16:64", "w=8:16:64"])))
    assert report.exit_code == 0
    assert [(f.code, f.mended_by) for f in report.findings] == [("TC211", "restore-pixel-shuffle")]
    raw = trtconv.build(request(model, tmp_path, dims=parse_dims(["h=8:16:64", "w=8:16:64"]), rewrite=False))
    assert raw.exit_code == 1


SHAPE_INPUT = """g (float[1,2,h,w] x, int64[4] size) => (float[a,b,c,d] y) {
    y = Resize <mode = "nearest"> (x, , , size) }"""


class TestShapeInput:
    DIMS = parse_dims(["h=8:16:32", "w=8:16:32"])

    def test_without_bounds(self, tmp_path: Path) -> None:
        model = save(SHAPE_INPUT, tmp_path / "m.onnx")
        report = trtconv.build(request(model, tmp_path, dims=self.DIMS))
        assert report.exit_code == 1
        assert report.findings[-1].code == "TC205"
        assert "--value size=MIN:OPT:MAX" in report.findings[-1].fix

    def test_with_bounds(self, tmp_path: Path) -> None:
        model = save(SHAPE_INPUT, tmp_path / "m.onnx")
        values = parse_values(["size=1x2x8x8:1x2x32x32:1x2x64x64"])
        report = trtconv.build(request(model, tmp_path, dims=self.DIMS, values=values))
        assert report.exit_code == 0
        saved = trtconv.load_report(tmp_path / "m.engine.json")
        assert saved.profiles[0].values["size"].max == (1, 2, 64, 64)


def test_a_unet_whose_deconvolutions_match_their_skips(tmp_path: Path) -> None:
    """Multiples of four before; one engine for every size afterwards, its deconvolutions audited."""
    onnx.save(unet(pooled=True), tmp_path / "m.onnx")
    trtconv.rewrite(RewriteRequest(tmp_path / "m.onnx", tmp_path / "any.onnx", only=("match-skip-size",), target=RTX))
    dims = parse_dims(["height=15:33:64", "width=17:31:63"])
    assert trtconv.build(request(tmp_path / "m.onnx", tmp_path, dims=dims)).exit_code == 1
    done = trtconv.build(request(tmp_path / "any.onnx", tmp_path, dims=dims))
    assert done.exit_code == 0
    assert [f for f in done.findings if f.severity.value != "info"] == []
