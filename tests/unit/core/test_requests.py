"""What callers of the Python API may write, and what they are told where they may not."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import trtconv
from trtconv.core.errors import InputError
from trtconv.core.options import options
from trtconv.core.preprocessing import parse_images
from trtconv.core.target import Target
from trtconv.core.typed import converted
from trtconv.pipeline.batch import LocalPool

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


REQUESTS: dict[str, dict[str, Any]] = {
    "BenchRequest": {"engine": "a"},
    "BuildRequest": {"model": "a"},
    "BuilderOptions": {},
    "CheckRequest": {"model": "a"},
    "ExportOptions": {},
    "ExportRequest": {"spec": "a:b", "output": "c"},
    "InspectRequest": {"path": "a"},
    "Limits": {},
    "Range": {"min": 1, "opt": 2, "max": 3},
    "RefitRequest": {"engine": "a", "model": "b"},
    "RewriteRequest": {"model": "a", "output": "b"},
    "RunRequest": {"engine": "a"},
    "SizesRequest": {"model": "a"},
    "UpgradeRequest": {"builds": (), "before": "a"},
    "VerifyRequest": {"model": "a"},
}
WRONG: list[Any] = [
    object(), 3.5, -7, 16, True, [("batch", 1)], {0: 1}, {"a": None}, None, print, b"x", "no such word", ("a", 1), [{}],
    {"a": {}}, 1j, float("nan"), numpy.ones(3), numpy.float32(0.5),
]  # fmt: skip


def test_all_requests_are_in_the_table() -> None:
    assert {name for name in trtconv.__all__ if name.endswith("Request")} <= set(REQUESTS)


def test_every_option_is_read() -> None:
    sources = " ".join(path.read_text(encoding="utf-8") for path in Path(trtconv.__file__).parent.rglob("*.py"))
    read = set(re.findall(r"\.([a-z]\w*)", sources))
    unread = {
        f"{name}.{field}" for name in REQUESTS for field, _ in options(getattr(trtconv, name)) if field not in read
    }
    assert not unread, f"declared, and without an effect: {sorted(unread)}"


@pytest.mark.parametrize("name", REQUESTS)
def test_every_field_refuses_other_types_and_words_where_the_request_is_made(name: str) -> None:
    kind = getattr(trtconv, name)
    hints = typing.get_type_hints(kind)
    words = {field: option.flags[0].takes for field, option in options(kind) if len(option.flags) == 1}
    for field in dataclasses.fields(kind):
        for value in WRONG:
            try:
                made = getattr(kind(**{**REQUESTS[name], field.name: value}), field.name)
            except trtconv.InputError:
                continue
            # What is taken is what the field says that it holds, or its default.
            assert made is field.default or converted(hints[field.name], made) is made, (field.name, value)
            if isinstance(words.get(field.name), tuple) and isinstance(made, str):
                assert made in words[field.name], (field.name, value)


def test_a_refusal_names_the_field_and_what_it_takes() -> None:
    for what, said in (
        ({"precision": 16}, "precision of BuildRequest takes one of as-is, fp16"),
        ({"fail_on": "bad"}, "fail_on of BuildRequest takes one of error, warning, never"),
        ({"dims": [("batch", 1)]}, "dims of BuildRequest takes a mapping of names"),
        ({"dims": {0: 1}}, "dims of BuildRequest takes a mapping of names"),
        ({"options": {"refittable": True}}, "options of BuildRequest takes a BuilderOptions"),
        ({"model": None}, "model of BuildRequest takes a path, and was given None"),
        ({"leave": "abc"}, "leave of BuildRequest takes a tuple of text"),
    ):
        with pytest.raises(trtconv.InputError, match=re.escape(said)):
            trtconv.BuildRequest(**{"model": "net.onnx", **what})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"has no field 'dim'\. Did you mean dims"):
        trtconv.BuildRequest("net.onnx", dim={})  # type: ignore[call-arg]


def test_what_is_alike_is_taken() -> None:
    request = trtconv.BuildRequest(
        "net.onnx",  # type: ignore[arg-type]
        dims={"batch": numpy.int64(2)},  # type: ignore[dict-item]
        split=2,  # type: ignore[arg-type]
        best_of=numpy.int32(3),
        leave=["a"],  # type: ignore[arg-type]
        plugins=["lib.so"],  # type: ignore[arg-type]
        prove_time=5,
    )
    assert request.dims == {"batch": trtconv.Range(2, 2, 2)}
    assert (request.split, request.best_of, request.leave, request.prove_time) == ("2", 3, ("a",), 5)
    assert type(request.best_of) is int
    assert [str(each.path) for each in request.plugins] == ["lib.so"]


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_progress_that_is_none_is_refused_before_any_work(function: Callable[..., Any]) -> None:
    if "progress" not in function.__annotations__:
        return
    name = function.__annotations__["request"]
    request = getattr(trtconv, name)(**REQUESTS[name])
    for call in (lambda: function(request, print), lambda: function(request, progress=trtconv.NullProgress)):
        with pytest.raises(
            trtconv.InputError, match=f"progress of {function.__name__} takes an object with the methods"
        ):
            call()


def test_arguments_of_files_are_paths() -> None:
    for function in (trtconv.load_report, trtconv.load_pipeline):
        with pytest.raises(trtconv.InputError, match=f"path of {function.__name__} takes a path, and was given 3"):
            function(3)  # type: ignore[arg-type]


def test_sizes_given_as_numbers_have_a_range_too() -> None:
    read = trtconv.CheckRequest(Path("m.onnx"), gpu_memory="24G")  # type: ignore[arg-type]
    assert read.gpu_memory == 24 << 30
    assert trtconv.CheckRequest(Path("m.onnx"), gpu_memory=1).gpu_memory == 1
    with pytest.raises(InputError, match="--gpu-memory -7 is not at least 1"):
        trtconv.CheckRequest(Path("m.onnx"), gpu_memory=-7)


@pytest.mark.parametrize("jobs", [0, -7])
def test_there_is_a_process_at_least(jobs: int) -> None:
    with pytest.raises(InputError, match=f"jobs {jobs} is not at least 1"):
        LocalPool(jobs)
