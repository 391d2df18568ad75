"""What callers of the Python API may write, and what they are told where they may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import trtconv
from trtconv.core.preprocessing import parse_images
from trtconv.core.target import Target

CALLS = [
    trtconv.check, trtconv.build, trtconv.build_pipeline, trtconv.rewrite, trtconv.sizes, trtconv.inspect,
    trtconv.verify, trtconv.verify_pipeline, trtconv.bench, trtconv.run, trtconv.run_pipeline, trtconv.refit,
    trtconv.upgrade,
]  # fmt: skip


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_what_is_no_request_is_refused_with_its_name(function: Callable[[Any], Any]) -> None:
    for call in (lambda: function("net.onnx"), lambda: function(request="net.onnx")):  # type: ignore[call-arg]
        with pytest.raises(trtconv.InputError, match=rf"{function.__name__} takes a \w+Request, and was given str"):
            call()


def test_text_is_read_as_flags_and_settings_are() -> None:
    request = trtconv.BuildRequest(
        "net.onnx", target="tensorrt-8.6", images="size=8x8", io={"x": "fp16"}, results={"y": "argmax"}
    )  # type: ignore[arg-type]
    assert request.target == Target.parse("tensorrt-8.6")
    assert request.images == parse_images("size=8x8")
    assert request.io["x"].type == "fp16"
    assert str(request.results["y"]) == "argmax"
    # What it was read into is taken as well.
    again = trtconv.BuildRequest(
        "net.onnx", target=request.target, images=request.images, io=request.io, results=request.results
    )
    assert again == request


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"target": "trt10"}, "--target 'trt10' is unknown"),
        ({"images": "size=8"}, "--images 'size=8'"),
        ({"io": {"x": "fp17"}}, "fp17"),
        ({"tolerance": -1, "precision": "auto"}, "--tolerance -1 is not at least 0"),
        ({"tolerance": float("nan"), "precision": "auto"}, "--tolerance nan is not at least 0"),
    ],
)
def test_what_cannot_be_read_is_refused_before_any_work(what: dict[str, Any], said: str) -> None:
    with pytest.raises(trtconv.InputError) as refused:
        trtconv.BuildRequest("net.onnx", **what)
    assert said in refused.value.message
