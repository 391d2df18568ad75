"""Hints in Python."""

from __future__ import annotations

import ast
import traceback

import pytest

import trtconv
from support.paths import ROOT
from trtconv.core.errors import InputError
from trtconv.core.findings import Finding, Severity
from trtconv.core.python_words import in_python

UNET = ROOT / "models" / "unet.onnx"
LOADED = (trtconv.BuildRequest, trtconv.CheckRequest, trtconv.ExportRequest)
"""Hints speak of the requests that are loaded, and whoever meets one has made one."""


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("Add: --dim batch=1:1:8 --dim height=64:256:512.", 'Add: dims={"batch": "1:1:8", "height": "64:256:512"}.'),
        ("Add --dim 'x y'=64:256:512 (of 8)", 'Add dims={"x y": "64:256:512"} (of 8)'),
        ("--dim a=1, or --dim a=2", 'dims={"a": "1"}, or dims={"a": "2"}'),
        ("or add --round", "or add rounded=True"),
        ("no --no-rewrite here", "no rewrite=False here"),
        ("--prove none builds it.", 'prove="none" builds it.'),
        ("Allow more time (--prove-time).", "Allow more time (prove_time)."),
        ("Allow --prove-time 600.", "Allow prove_time=600."),
        ("with --version-compatible", "with options=trtconv.BuilderOptions(version_compatible=True)"),
        ("Write --split 3 or --split auto.", 'Write split="3" or split="auto".'),
        ("Leave out --timing-cache, TensorRT has one.", "Leave out timing_cache, TensorRT has one."),
        ("Run trtconv export a.py --dim h=64. Or --round.", "Run trtconv export a.py --dim h=64. Or rounded=True."),
        ("Flags of others, --no-such-flag 3, stay.", "Flags of others, --no-such-flag 3, stay."),
        ("Nothing to say.", "Nothing to say."),
        ("Name --dynamic N=batch,_,height, or so.", 'Name dynamic={"N": ("batch", None, "height")}, or so.'),
        ("Build it first: trtconv build MODEL.", 'Build it first: trtconv.build(trtconv.BuildRequest("MODEL")).'),
        ("trtconv build MODEL writes it.", 'trtconv.build(trtconv.BuildRequest("MODEL")) writes it.'),
        ("Build it: trtconv build a/net.onnx", 'Build it: trtconv.build(trtconv.BuildRequest("a/net.onnx"))'),
        ("trtconv check m.onnx, or doctor.", 'trtconv.check(trtconv.CheckRequest("m.onnx")), or doctor.'),
        ("Run trtconv check m.onnx --dim h=64.", "Run trtconv check m.onnx --dim h=64."),
    ],
)  # fmt: skip
def test_flags_are_arguments(hint: str, said: str) -> None:
    assert in_python(hint) == said


def test_the_hint_about_bounds_can_be_pasted(tmp_path) -> None:
    with pytest.raises(InputError) as caught:
        trtconv.build(trtconv.BuildRequest(UNET, tmp_path / "unet.engine", {"batch": 1}))
    pasted = caught.value.python_hint.partition("for example ")[2].partition("}")[0] + "}"
    dims = ast.literal_eval(pasted.removeprefix("dims="))
    assert dims.keys() == {"height", "width"}
    assert trtconv.check(trtconv.CheckRequest(UNET, {"batch": 1, **dims})).exit_code == 0


def test_a_traceback_ends_with_the_hint_in_python() -> None:
    error = InputError("2 dimensions without bounds", "Add --dim batch=1.")
    assert error.__notes__ == ['hint: Add dims={"batch": "1"}.']
    # Python 3.10 writes no notes by itself, and does where a library adds that.
    if hasattr(error, "add_note"):
        assert "".join(traceback.format_exception(error)).endswith('\nhint: Add dims={"batch": "1"}.\n')
    assert error.hint == "Add --dim batch=1."


def test_a_traceback_says_the_message_in_python_where_it_names_flags() -> None:
    error = InputError("--dynamic x names 3 axes, --input x has 4", "Use _ for a static axis.")
    assert error.python_message == "dynamic x names 3 axes, inputs x has 4"
    assert error.__notes__ == [f"in Python: {error.python_message}", "hint: Use _ for a static axis."]
    assert str(error) == error.message


def test_fixes_of_findings_too() -> None:
    finding = Finding("TC201", "uneven", "no", Severity.ERROR, fix="or add --round")
    assert finding.python_fix == "or add rounded=True"


@pytest.mark.parametrize(
    ("words", "meant"),
    [({"precision": "half"}, "fp16"), ({"prove": "ful"}, "full")],
)
def test_words_that_no_flag_takes_are_refused_in_python_too(words: dict[str, str], meant: str) -> None:
    with pytest.raises(InputError, match="takes one of") as caught:
        trtconv.BuildRequest("a.onnx", "b.engine", **words)  # type: ignore[arg-type]
    assert f"Did you mean {meant}?" in caught.value.hint
