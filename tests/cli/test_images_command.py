"""`build --preprocess`, `--images` and `--postprocess`: engines of RTX's builder that take images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli import Ended
from support.float_nets import HEAD, saved_net

Call = Callable[..., Ended]
NET = f"""{HEAD} g (float[n,3,8,8] x) => (float[n,4,8,8] y) {{
    a = Conv <pads = [1,1,1,1]> (x, w_4_3_3_3)
    y = Relu (a) }}"""
SCALED = "scale=1/255,mean=0.5"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return saved_net(NET, tmp_path)


def document(call: Call, *args: str) -> dict:  # type: ignore[type-arg]
    ended = call("build", *args, "--target", "rtx", "--format", "json", "-q")
    assert ended.code == 0, ended.err + ended.out
    report: dict = json.loads(ended.out)  # type: ignore[type-arg]
    return report


def test_an_engine_takes_images_of_each_listed_size(call: Call, net: Path) -> None:
    asked = f"image=16x12+10x20,letterbox=114,pixels=bgr,{SCALED}"
    args = (str(net), "--dim", "n=1:1:2", "--preprocess", asked, "--postprocess", "argmax", "--prove", "full")
    report = document(call, *args)
    assert [profile["x"]["max"] for profile in report["profiles"]] == [[2, 16, 12, 3], [2, 10, 20, 3]]
    assert [(each["name"], each["dtype"]) for each in report["io"]] == [("x", "uint8"), ("y", "int32")]
    taken = report["images"]
    assert (taken["name"], taken["pixels"], taken["resized_to"]) == ("x", "bgr", [8, 8])
    assert taken["sizes"] == [[16, 12], [10, 20]]
    assert taken["difference"] < 0.02
    assert report["proof"]["agrees"] is True
    assert (report["plan"]["preprocess"], report["plan"]["postprocess"]) == (None, {"": "argmax"})
    # Said otherwise it is the same engine; another filter is another one.
    same = ("--images", report["plan"]["images"], *args[1:3], *args[5:])
    assert document(call, str(net), *same)["up_to_date"]
    ended = call(
        "build", str(net), *args[1:3], "--images", f"{asked},filter=linear", *args[5:], "--target", "rtx", "-q"
    )
    assert "since what was asked for (images) changed" in ended.out
    assert "takes images, bgr in NHWC, 16x12, 10x20, resized to 8x8" in ended.out
    assert call("verify", str(net), "-q").code == 0


def test_samples_keep_their_preprocessing(call: Call, net: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "samples").mkdir()
    for size in ((8, 8), (16, 12)):
        image.new("RGB", size[::-1], (200, 100, 50)).save(tmp_path / "samples" / f"{size[0]}.png")
    auto = ("--precision", "auto", "--data", str(tmp_path / "samples"), "--dim", "n=1")
    report = document(call, str(net), *auto, "--preprocess", f"size=8x8,{SCALED}")
    assert (report["io"][0]["dtype"], "images" in report) == ("float32", False)
    # With both, the samples are what the engine takes.
    report = document(call, str(net), *auto, "--images", f"image=8x8+16x12,{SCALED}")
    assert report["io"][0]["dtype"] == "uint8"
    ended = call("build", str(net), *auto, "--images", f"image=8x8,{SCALED}", "--target", "rtx", "-q")
    assert (ended.code, "the engine takes 8x8" in ended.err) == (2, True)


def test_a_configuration_says_it_too(call: Call, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = f'[[models]]\npath = "{net.name}"\ntargets = ["rtx"]\ndims = {{n = 1}}\n'
    (tmp_path / "trtconv.toml").write_text(f'{listed}preprocess = "{SCALED}"\n')
    ended = call("build", "-q")
    assert (ended.code, "images says it of the engine" in ended.out) == (2, True)
    (tmp_path / "trtconv.toml").write_text(f'{listed}images = "{SCALED}"\npostprocess = {{y = "softmax"}}\n')
    assert call("build", "-q").code == 0
    report = json.loads(next(tmp_path.glob("*.engine.json")).read_text())
    assert (report["io"][0]["dtype"], report["plan"]["postprocess"]) == ("uint8", {"y": "softmax"})


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--preprocess", "size=9x9"), "x is 8x8, and size= says 9x9"),
        (("--preprocess", "color=gray"), "3 channels, and an image 1"),
        (("--preprocess", "bogus"), "--preprocess 'bogus': there is no such setting"),
        (("--images", "letterbox=300"), "--images 'letterbox=300': not 0 to 255"),
        (("--preprocess", "pixels=nv12,image=9x12"), "needs sizes that are even"),
        (("--images", SCALED, "--preprocess", SCALED), "says the same as --images"),
        (("--images", SCALED, "--io", "x=fp16"), "cannot be fp16: it is uint8"),
        (("--images", SCALED, "--partition"), "--images is about one engine"),
        (("--debug-tensor", "conv", "--partition"), "--debug-tensor is about one engine"),
        (("--postprocess", "z=argmax"), "no output 'z'"),
        (("--postprocess", "argmax:7"), "no axis 7"),
        (("--postprocess", "median"), "'median' is unknown"),
    ],
)
def test_what_cannot_be_leaves_no_engine(call: Call, net: Path, args: tuple[str, ...], said: str) -> None:
    ended = call("build", str(net), "--dim", "n=1", "--target", "rtx", "-q", *args)
    assert ended.code == 2
    assert said in ended.err
    assert [each.name for each in net.parent.iterdir()] == [net.name]


def test_a_size_of_images_that_the_network_does_not_take_is_named(call: Call, tmp_path: Path) -> None:
    dims = ("--dim", "batch=1", "--target", "rtx", "-o", str(tmp_path / "u.engine"))
    ended = call("build", "models/unet.onnx", *dims, "--preprocess", "size=33x32")
    assert ended.code == 1
    assert "TC203" in ended.out and "as 33x32: give another size in --preprocess size=" in ended.out
    assert call("build", "models/unet.onnx", *dims, "--preprocess", "size=32x32", "-q").code == 0


def test_sizes_of_images_are_said_once(call: Call, net: Path) -> None:
    ended = call(
        "build", str(net), "--dim", "n=1", "--dim", "h=8", "--preprocess", f"size=8x8,{SCALED}", "--target", "rtx"
    )
    assert ended.code == 2
    assert "leave out the --dim of these" in ended.err and "export again" not in ended.err
