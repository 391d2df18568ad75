"""What each command asks of the library, and what it prints."""

from __future__ import annotations

import dataclasses
import json
import types
from pathlib import Path
from typing import Any

import click
import pytest

from support.cli import build_report, check_report, rewrite_report
from trtconv.cli.commands.check import FORMATS
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.dims import Range
from trtconv.core.findings import Severity
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.target import Target


def test_build_defaults(call, pipeline) -> None:
    ended = call("build", "dir/m.onnx", "--timing-cache", "none")
    assert ended.code == 0
    assert pipeline.requests == [BuildRequest(Path("dir/m.onnx"))]
    assert ended.out.splitlines()[-1] == "built m.engine (1.2 MB) in 1.6 s"


def test_build_flags(call, pipeline) -> None:
    flags = (
        "-o out.engine --dim batch=1:1:4 --dim height=64:256:512 --profile height=64,x:3=1:2:3 --profile width=8:16 "
        "--target tensorrt-8.6 --precision fp16 --report r.json --format json --no-rewrite --fail-on never --force -q "
        "--timing-cache t.cache --workspace 2G --no-tf32 --compute-capability 7.5 --compute-capability 8.9"
    )
    ended = call("build", "m.onnx", *flags.split())
    assert ended.err == ""
    assert json.loads(ended.out) == build_report().to_json()
    assert pipeline.requests == [
        BuildRequest(
            model=Path("m.onnx"),
            engine=Path("out.engine"),
            dims={"batch": Range(1, 1, 4), "height": Range(64, 256, 512)},
            profiles=({"height": Range(64, 64, 64), "x:3": Range(1, 2, 3)}, {"width": Range(8, 16, 16)}),
            target=Target("tensorrt", (8, 6)),
            precision="fp16",
            rewrite=False,
            fail_on=None,
            force=True,
            report=Path("r.json"),
            options=BuilderOptions(workspace_bytes=2 << 30, tf32=False, compute_capabilities=("7.5", "8.9")),
            timing_cache=Path("t.cache"),
        )
    ]


def test_trtexec_shapes_are_laid_over_dims(call, pipeline) -> None:
    shapes = "--minShapes x:1x3 --optShapes x:2x3 --maxShapes x:4x3 --dim height=8"
    assert call("build", "m.onnx", *shapes.split()).code == 0
    (request,) = pipeline.requests
    assert request.dims == {"height": Range(8, 8, 8)}
    assert request.profiles == ({"x:0": Range(1, 2, 4), "x:1": Range(3, 3, 3)},)


def test_check(call, pipeline) -> None:
    ended = call("check", "m.onnx", "--dim", "h=8", "--fail-on", "warning", "--target", "rtx", "--no-rewrite")
    assert ended.code == 1
    assert ended.out.splitlines()[0] == 'm.onnx: graph/node[5] ConvTranspose "up1"'
    assert pipeline.requests == [
        CheckRequest(
            Path("m.onnx"),
            {"h": Range(8, 8, 8)},
            target=Target("rtx"),
            rewrite=False,
            fail_on=Severity.WARNING,
        )
    ]


def test_check_formats_are_a_table(call, pipeline, monkeypatch) -> None:
    assert list(FORMATS) == ["text", "json", "sarif", "github", "junit"]
    ended = call("check", "m.onnx", "--format", "json")
    assert json.loads(ended.out) == check_report().to_json()


def test_rewrite(call, pipeline) -> None:
    ended = call(
        "rewrite", "m.onnx", "-o", "o.onnx", "--only", "a", "--only", "b", "--skip", "c", "--target", "rtx-1.7"
    )
    assert ended.code == 0
    assert ended.out.splitlines()[-1] == "wrote out.onnx (2.0 kB): 1 edit"
    assert pipeline.requests == [
        RewriteRequest(Path("m.onnx"), Path("o.onnx"), ("a", "b"), ("c",), Target("rtx", (1, 7)))
    ]


def test_rewrite_json(call, pipeline) -> None:
    ended = call("rewrite", "m.onnx", "-o", "o.onnx", "--format", "json")
    assert json.loads(ended.out) == rewrite_report().to_json()


def test_progress_goes_to_stderr_and_quiet_silences_it(call, pipeline) -> None:
    assert "s] build" in call("build", "m.onnx").err
    assert call("build", "m.onnx", "-q").err == ""


def test_what_failed_is_said_on_stderr_where_programs_read_the_result(call, pipeline) -> None:
    failing: list[tuple[str, Any, tuple[str, ...]]] = [
        ("check", check_report(), ("json", "sarif", "github", "junit")),
        ("build", build_report(engine=None, exit_code=1), ("json",)),
        ("rewrite", dataclasses.replace(rewrite_report(), exit_code=1), ("json",)),
    ]
    for command, pipeline.result, formats in failing:
        more = ("-o", "o.onnx") if command == "rewrite" else ("-q",)
        for each in formats:
            ended = call(command, "m.onnx", *more, "--format", each)
            assert ended.code == 1
            told = [line for line in ended.err.splitlines() if line.startswith("error: ")]
            assert len(told) == 1, ended.err
            assert "m.onnx" in told[0] or f"trtconv {command}" in told[0]
        # A person reads it in the result.
        assert "error: " not in call(command, "m.onnx", *more).err
    pipeline.result = check_report(exit_code=0)
    assert call("check", "m.onnx", "-q", "--format", "json").err == ""


@pytest.mark.parametrize(
    ("output_format", "code", "verdict", "said"),
    [
        ("json", 3, "", "trtconv do-it ends with 3; its document says why"),
        ("json", 3, "2 of 5 differ", "2 of 5 differ"),
        ("json", 0, "all are as they were", ""),
        ("text", 3, "2 of 5 differ", ""),
    ],
)
def test_who_reads_a_log_learns_why_a_command_ends(
    capfd: pytest.CaptureFixture[str], output_format: str, code: int, verdict: str, said: str
) -> None:
    option = click.Option(["--format", "output_format"])
    command = Command("do-it", params=[option], callback=lambda **_: Outcome("a document", code, verdict=verdict))
    assert command.main(["--format", output_format], standalone_mode=False) == code
    out, err = capfd.readouterr()
    assert out == "a document\n"
    assert err == (f"error: {said}\n" if said else "")


PASSES = (
    types.SimpleNamespace(
        name="mend-it",
        fixes=("TC101", "TC102"),
        safety="exact",
        on_request=False,
        summary="Mends it.",
        page="Mends it.\n\nWhy.",
    ),
    types.SimpleNamespace(
        name="round-it", fixes=(), safety="within tolerance", on_request=True, summary="Rounds it.", page="Rounds it."
    ),
)
RULES = (
    types.SimpleNamespace(code="TC101", name="padding-lost", summary="Loses padding.", page="Loses padding.\n\nWhy.\n"),
    types.SimpleNamespace(code="TC102", name="shape-lost", summary="Loses shape.", page="Loses shape."),
    types.SimpleNamespace(code="TC301", name="scale-lost", summary="Loses scale.", page="Loses scale."),
)


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtconv.passes.PASSES", PASSES)
    monkeypatch.setattr("trtconv.rules.RULES", RULES)


def test_passes(call, catalogue) -> None:
    assert call("passes").out == (
        "mend-it (exact, mends TC101, TC102)\n  Mends it.\nround-it (within tolerance, on request)\n  Rounds it.\n"
    )
    assert json.loads(call("passes", "--format", "json").out) == {
        "schema": 1,
        "passes": [{**vars(each), "fixes": list(each.fixes)} for each in PASSES],
        "exit_code": 0,
    }


def test_page_of_a_pass(call, catalogue) -> None:
    assert call("passes", "Mend-it").out == "mend-it (exact, mends TC101, TC102)\n\nMends it.\n\nWhy.\n"
    assert [each["name"] for each in json.loads(call("passes", "mend-it", "--format", "json").out)["passes"]] == [
        "mend-it"
    ]


def test_unknown_pass(call, catalogue) -> None:
    ended = call("passes", "mend-at")
    assert (ended.code, ended.out) == (2, "")
    assert "Did you mean mend-it?" in ended.err
    assert "'trtconv passes' lists them all." in call("passes", "nonsense").err


def test_rules(call, catalogue) -> None:
    assert call("rule").out.splitlines()[0] == "TC101  padding-lost: Loses padding."
    assert json.loads(call("rule", "--format", "json").out)["rules"] == [vars(rule) for rule in RULES]


@pytest.mark.parametrize("asked", ["TC101", "tc101", "padding-lost"])
def test_rule_page(call, catalogue, asked: str) -> None:
    assert call("rule", asked).out == "TC101 padding-lost\n\nLoses padding.\n\nWhy.\n"
    assert json.loads(call("rule", asked, "--format", "json").out)["rules"] == [vars(RULES[0])]


def test_unknown_rule(call, catalogue) -> None:
    ended = call("rule", "TC103")
    assert (ended.code, ended.out) == (2, "")
    assert "Did you mean TC101 (padding-lost) or TC102 (shape-lost)" in ended.err
    assert "'trtconv rule' lists them all." in call("rule", "nonsense").err
    assert json.loads(call("rule", "TC103", "--format", "json").out)["exit_code"] == 2


def _status(**changes: object) -> types.SimpleNamespace:
    values = {"family": "rtx", "installed": True, "version": "1.7.1", "works": True, "why": "", "install": "pip x"}
    status = types.SimpleNamespace(**{**values, **changes})
    status.to_json = lambda: {key: getattr(status, key) for key in values}
    status.plugins = ()
    return status


@pytest.mark.parametrize(
    ("statuses", "code", "said"),
    [
        ((_status(),), 0, "runtime rtx 1.7.1: works"),
        ((_status(works=False, why="no driver"),), 4, "runtime rtx 1.7.1: does not work here\n  no driver"),
        ((_status(works=False, installed=False, version=None),), 4, "runtime rtx: not installed\n  install: pip x"),
        ((_status(works=False), _status(family="tensorrt")), 0, "runtime tensorrt 1.7.1: works"),
    ],
)
def test_doctor(call, monkeypatch, statuses: tuple[object, ...], code: int, said: str) -> None:
    monkeypatch.setattr("trtconv.runtimes.tensorrt.available", lambda: statuses)
    monkeypatch.setattr("trtconv.runtimes.tensorrt.gpu.gpu_name", lambda: "Test GPU")
    ended = call("doctor")
    assert ended.code == code
    assert said in ended.out
    assert "Test GPU" in ended.out
    document = json.loads(call("doctor", "--format", "json").out)
    assert document["exit_code"] == code
    assert document["gpu"] == "Test GPU"
    assert [runtime["family"] for runtime in document["runtimes"]] == [status.family for status in statuses]
    assert "onnx" in document["packages"]
