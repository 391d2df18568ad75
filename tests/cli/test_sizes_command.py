"""`trtconv sizes`, and what build and check say of sizes, as a person or a script calls them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.paths import MODELS
from support.sizes import save

UNET = str(MODELS / "unet.onnx")


def test_json_has_the_keys_of_the_contract(call: Callable[..., Any]) -> None:
    ended = call("sizes", UNET, "--dim", "height=64:300:512", "--dim", "width=64:256:512", "--format", "json")
    document = json.loads(ended.out)
    assert ended.code == 0
    height = document["dims"]["height"]
    assert {key: height[key] for key in ("min", "max", "step", "offset")} == {
        "min": 64,
        "max": 512,
        "step": 8,
        "offset": 0,
    }
    assert height["valid"] == list(range(64, 513, 8))
    assert document["dims"]["batch"]["valid"] is None
    assert document["joint"] == []
    assert document["nearest"] == {"height": {"300": [296, 304]}}
    assert document["unasked"] == ["batch"]
    assert {i["location"]["op"] for i in document["imposed"]} == {"Concat"}
    assert document["exact"] is True


def test_text(call: Callable[..., Any]) -> None:
    ended = call("sizes", UNET, "--dim", "height=64:300:512", "--dim", "width=64", "--dim", "batch=1")
    assert ended.code == 0
    assert "multiples of 8 from 64 to 512" in ended.out
    assert "Concat /Concat_2 needs height to be a multiple of 8: it joins sizes" in ended.out
    assert "height 300 is not accepted; nearest: 296 and 304" in ended.out
    assert ended.out.isascii()


def test_no_size_in_range(call: Callable[..., Any]) -> None:
    ended = call("sizes", UNET, "--dim", "height=65:71")
    assert ended.code == 1
    assert "no size from 65 to 71" in ended.out


def test_static_model(call: Callable[..., Any], tmp_path: Path) -> None:
    model = save("g (float[1,2] x) => (float[1,2] y) { y = Relu (x) }", tmp_path / "m.onnx")
    assert "no dynamic dimension; its shapes fit" in call("sizes", str(model)).out
    broken = save("g (float[1,2] x, float[1,3] z) => (float[1,2] y) { y = Add (x, z) }", tmp_path / "b.onnx")
    ended = call("sizes", str(broken), "--format", "json")
    assert (ended.code, json.loads(ended.out)["dims"]) == (1, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sizes", "none.onnx"], "no such file"),
        (["sizes", UNET, "--dim", "depth=1:2:3"], "no dimension 'depth'"),
        (["sizes", UNET, "--dim", "height=3:2:1"], "min <= opt <= max"),
        (["sizes", UNET, "--dim", "height"], "is not NAME=MIN:OPT:MAX"),
        (["sizes", UNET, "--dim", "x:1=4"], "static (3)"),
        (["build", UNET], "3 dynamic dimension(s) without bounds"),
        (["build", UNET, "--dim", "batch=1", "--dim", "height=64:32:128", "--dim", "width=64"], "min <= opt <= max"),
        (
            ["build", UNET, "--dim", "batch=1", "--dim", "height=64:128", "--dim", "width=64", "--split", "0"],
            "--split '0'",
        ),
        (
            ["build", UNET, "--dim", "batch=1", "--dim", "height=64:128", "--dim", "width=64", "--split", "x"],
            "--split 'x'",
        ),
        (
            ["build", UNET, *["--dim", "batch=1", "--dim", "height=64:128", "--dim", "width=64", "--split", "9"]],
            "--split 9 is finer than the sizes that the network accepts",
        ),
        (
            [
                "build",
                UNET,
                *["--dim", "batch=1", "--dim", "height=64:512", "--dim", "width=64"],
                *["--profile", "height=64:256", "--profile", "height=272:512"],
            ],
            "the profiles do not cover what --dim asks for (height=64:512): height 264 is in none of the 2",
        ),
        (["build", UNET, "--value", "x=1"], "holds no shape or count"),
        (["build", UNET, "--value", "x"], "is not NAME=MIN:OPT:MAX"),
    ],
)
def test_mistakes(call: Callable[..., Any], tmp_path: Path, arguments: list[str], message: str) -> None:
    if arguments[0] == "build":
        arguments = [*arguments, "-o", str(tmp_path / "e.engine"), "-q"]
        if "--value" in arguments:
            arguments += ["--dim", "batch=1", "--dim", "height=64", "--dim", "width=64"]
    ended = call(*arguments)
    assert ended.code == 2
    assert message in ended.err
    assert "hint" in ended.err.lower() or len(ended.err.splitlines()) >= 2
    assert list(tmp_path.iterdir()) == []


SIZES = ("--dim", "batch=1:1:4", "--dim", "height=64:256:512", "--dim", "width=64:256:512")


def _check(call: Callable[..., Any], *flags: str) -> tuple[int, dict[str, Any]]:
    ended = call("check", UNET, "--target", "tensorrt-8.6", *flags, "--format", "json", "-q")
    return ended.code, json.loads(ended.out)


def test_memory_at_the_largest_sizes(call: Callable[..., Any]) -> None:
    _, document = _check(call, *SIZES)
    (taken,) = document["memory"]["profiles"]
    assert taken["sizes"] == {"batch": 4, "height": 512, "width": 512}
    # Of the rewritten model.
    assert document["memory"]["model_bytes"] == pytest.approx((MODELS / "unet.onnx").stat().st_size, rel=0.01)
    ended = call("sizes", UNET, *SIZES)
    assert "of activations at batch 4, height 512, width 512, most at Concat /Concat_2" in ended.out


def test_what_fits_is_named_and_fits(call: Callable[..., Any]) -> None:
    code, document = _check(call, *SIZES, "--gpu-memory", "60M")
    (finding,) = [each for each in document["findings"] if each["code"] == "TC208"]
    assert code == 1
    assert finding["fix"] == "What fits is a max of batch 1, or of height 192, or of width 192."
    for flag, fits in (("batch=1", 0), ("height=64:64:192", 0), ("width=64:64:192", 0), ("height=64:64:200", 1)):
        name = flag.partition("=")[0]
        sizes = [flag if each.startswith(name) else each for each in SIZES]
        code, document = _check(call, *sizes, "--gpu-memory", "60M")
        assert (code, [each["code"] for each in document["findings"] if each["code"] == "TC208"]) == (
            fits,
            ["TC208"] * fits,
        )


def test_memory_of_a_static_model(call: Callable[..., Any], tmp_path: Path) -> None:
    model = save("g (float[1,4,256,256] x) => (float[1,4,256,256] y) { y = Relu (x) }", tmp_path / "m.onnx")
    for memory, code in (("2M", 1), ("3M", 0)):
        assert call("check", str(model), "--target", "tensorrt-8.6", "-q", "--gpu-memory", memory).code == code
    assert call("check", str(model), "--target", "tensorrt-8.6", "--gpu-memory", "much").code == 2
