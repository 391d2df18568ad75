"""What a person reads."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from trtconv.cli.formats.engine import verify_text
from trtconv.cli.formats.text import (
    LISTED,
    build_text,
    check_text,
    findings_text,
    proof_lines,
    rewrite_text,
    runs_text,
)
from trtconv.cli.formats.wording import byte_size, count, memory_by_profile, shape_text
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.dims import InputRange, Range, ShapeProfile
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.documents.check import CheckReport, ParserVerdict
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.proof import BuildProof, PieceCounts
from trtconv.core.documents.rewrite import Comparison, Edit, RewriteReport, Skip
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.documents.verify import VerifyCase, VerifyReport
from trtconv.core.findings import Finding, Ignored, Location, Severity
from trtconv.core.target import Target
from trtconv.core.text import clean

MODEL = FileIdentity("m.onnx", "0" * 64)
TARGET = Target("rtx", (1, 7))


def finding(code: str, severity: Severity, location: Location, **changes: Any) -> Finding:
    return dataclasses.replace(Finding(code, "a-fault", "something is wrong", severity, location), **changes)


UP1 = Location("", 5, "up1", "ConvTranspose")
UP2 = Location("", 11, "up2", "ConvTranspose")
THEN = Location("if/then_branch", 0, "", "Resize")
FINDINGS = (
    finding("TC101", Severity.INFO, UP2, mended_by="make-deconv-explicit"),
    finding("TC102", Severity.WARNING, UP1, fix="Do this."),
    finding("TC103", Severity.ERROR, dataclasses.replace(UP1, tensor="w"), message="first line\nsecond line"),
    finding("TC001", Severity.ERROR, Location()),
    finding("TC104", Severity.WARNING, THEN),
)


def check(findings: tuple[Finding, ...], **parser: Any) -> str:
    verdict = ParserVerdict(**{"runtime": "rtx", "version": "1.7.1", "accepted": True, **parser})
    return check_text(CheckReport(MODEL, TARGET, findings, verdict, 1))


def test_check_groups_by_node_worst_first() -> None:
    assert (
        check(FINDINGS)
        == """\
m.onnx: graph
  error TC001 a-fault: something is wrong

m.onnx: graph/node[5] ConvTranspose "up1"
  error TC103 a-fault: first line (tensor w)
    | second line
  warning TC102 a-fault: something is wrong
    fix: Do this.

m.onnx: if/then_branch/node[0] Resize
  warning TC104 a-fault: something is wrong

m.onnx: graph/node[11] ConvTranspose "up2"
  info TC101 a-fault: something is wrong
    mended by trtconv build and rewrite (make-deconv-explicit)

parser: rtx 1.7.1 accepts the model
m.onnx: 2 errors, 2 warnings, 1 info for rtx-1.7"""
    )


def test_of_many_findings_of_one_rule_the_first_are_listed() -> None:
    many = tuple(finding("TC305", Severity.ERROR, Location("", n, f"q{n}", "QuantizeLinear")) for n in range(100))
    text = check((*many, FINDINGS[0]))
    assert [line for line in text.splitlines() if "TC305" in line] == [
        *["  error TC305 a-fault: something is wrong"] * 3,
        "... and 97 more of error TC305 a-fault (--verbose)",
    ]
    assert all(f'"q{n}"' in text for n in range(3))
    assert "TC101" in text
    assert text.endswith("m.onnx: 100 errors, 1 info for rtx-1.7")
    report = CheckReport(MODEL, TARGET, many, ParserVerdict(accepted=True), 1)
    assert check_text(report, verbose=True).count("TC305") == 100
    assert check(many[:10]).count("TC305") == 10


def test_sizes_that_were_not_checked_are_told() -> None:
    report = CheckReport(MODEL, TARGET, (), ParserVerdict(accepted=True), 0, unbounded=("height", "width"))
    assert "no sizes checked: no bounds were given for height, width (--dim)" in check_text(report)


def test_the_pass_that_mends_is_named() -> None:
    mended = finding("TC101", Severity.INFO, UP2, mended_by="a-pass")
    assert "mended by trtconv build and rewrite (a-pass)" in findings_text("", [mended])


def test_check_does_not_depend_on_the_order_of_findings() -> None:
    assert check(FINDINGS) == check(tuple(reversed(FINDINGS)))


@pytest.mark.parametrize(
    ("accepted", "line"),
    [
        (True, "parser: rtx 1.7.1 accepts the model"),
        (False, "parser: rtx 1.7.1 refuses the model"),
        (None, "parser: not asked, by rules alone: that TensorRT is not installed here"),
    ],
)
def test_clean_check(accepted: bool | None, line: str) -> None:
    assert check((), accepted=accepted) == f"{line}\nm.onnx: nothing to report for rtx-1.7"


def build_report(**changes: Any) -> BuildReport:
    shapes = InputRange((1, 3, 64, 64), (1, 3, 256, 256), (4, 3, 512, 512))
    fixed = InputRange((), (), ())
    profile = ShapeProfile({"x": shapes, "steps": fixed}, {"height": Range(64, 256, 512)})
    report = BuildReport(
        model=MODEL,
        plan=BuildPlan(TARGET, (profile,)),
        runtime=RuntimeIdentity("rtx", "1.7.1.116"),
        edits=(Edit("make-deconv-explicit", "up1", "pads made explicit"), Edit("another", "", "done")),
        skipped=(Skip("another", "up2", "weight is not constant"),),
        findings=(FINDINGS[0],),
        engine=FileIdentity("out/m.engine", "1" * 64, 1_234_567),
        io=(TensorInfo("x", "input", "float", (-1, 3, -1, -1)), TensorInfo("out", "output", "float", (-1, 1))),
        seconds={"load": 0.01, "build": 1.5},
    )
    return dataclasses.replace(report, **changes)


def test_build() -> None:
    assert (
        build_text(build_report())
        == """\
model    m.onnx
runtime  rtx 1.7.1.116 without a GPU
target   rtx-1.7, precision as-is

profile
  input  min        opt          max
  x      1x3x64x64  1x3x256x256  4x3x512x512
  steps  scalar     scalar       scalar

rewritten, 2 edits
  make-deconv-explicit (1)
    up1: pads made explicit
  another (1)
    (unnamed): done

left alone, 1 skip
  another (1)
    up2: weight is not constant

mended (each by itself: --verbose)
  TC101 a-fault (1), by make-deconv-explicit

engine
  input   x    float  -1x3x-1x-1
  output  out  float  -1x1

seconds: load 0.01, build 1.50

runs with  TensorRT-RTX 1.7.1.116 alone, not TensorRT, trtexec or Triton
runs on    A100 (8.0), RTX 30 series and A10 (8.6), RTX 40 series and L4 (8.9), RTX 50 series (12.0), GB10 (12.1)

built out/m.engine (1.2 MB) in 1.5 s; 1 info"""
    )


def test_build_with_profiles_gpu_and_no_rewrite() -> None:
    report = build_report()
    plan = dataclasses.replace(report.plan, profiles=report.plan.profiles * 2, rewrite=False)
    text = build_text(build_report(plan=plan, runtime=RuntimeIdentity("rtx", "1.7", "RTX 4090")))
    assert "\nprofile 0\n" in text
    assert "\nprofile 1\n" in text
    assert "rtx 1.7 on RTX 4090" in text
    assert "precision as-is, not rewritten" in text
    assert "options" not in text


def test_options_are_listed_where_there_are_any() -> None:
    options = BuilderOptions(workspace_bytes=1 << 30, tf32=False, compute_capabilities=("7.5", "8.9"))
    report = build_report()
    text = build_text(build_report(plan=dataclasses.replace(report.plan, options=options)))
    assert "options  workspace-bytes 1073741824, tf32 no, compute-capabilities 7.5 8.9" in text


def test_build_that_made_nothing() -> None:
    text = build_text(build_report(engine=None, io=(), exit_code=1, findings=FINDINGS))
    assert text.splitlines()[-1] == "m.onnx: no engine, 2 errors, 2 warnings, 1 info"


def test_up_to_date_is_one_line() -> None:
    assert build_text(build_report(up_to_date=True)) == ("out/m.engine (1.2 MB) is up to date; --force builds it again")


def test_many_edits_are_counted() -> None:
    edits = tuple(Edit("p", f"n{i}", "done") for i in range(LISTED + 5))
    text = build_text(build_report(edits=edits))
    assert f"p ({LISTED + 5})" in text
    assert f"n{LISTED - 1}: done" in text
    assert f"n{LISTED}: done" not in text
    assert "... and 5 more" in text


def rewrite_report(**verified: Any) -> RewriteReport:
    output = FileIdentity("o.onnx", "2" * 64, 512)
    return RewriteReport(
        MODEL, output, (Edit("p", "n", "done"),), (Skip("p", "m", "why"),), Comparison(**{"why": None, **verified})
    )


def test_rewrite() -> None:
    assert (
        rewrite_text(rewrite_report(max_relative_error=1.54e-7))
        == """\
rewritten, 1 edit
  p (1)
    n: done

left alone, 1 skip
  p (1)
    m: why

compared on ONNX Runtime: largest relative error 1.5e-07

wrote o.onnx (512 bytes): 1 edit"""
    )


def test_rewrite_that_failed() -> None:
    text = rewrite_text(dataclasses.replace(rewrite_report(max_relative_error=0.5), output={}, exit_code=1))
    assert "largest relative error 0.5" in text
    assert text.splitlines()[-1] == "wrote nothing: the rewritten model does not compute what m.onnx does"


def test_rewrite_not_verified() -> None:
    assert "not compared: no float64" in rewrite_text(rewrite_report(max_relative_error=None, why="no float64"))
    nothing = dataclasses.replace(rewrite_report(max_relative_error=0.0), edits=(), skipped=())
    assert rewrite_text(nothing).startswith("compared on ONNX Runtime: largest relative error 0\n")
    assert rewrite_text(nothing).endswith(": no edits")


def test_names_cannot_steer_the_terminal() -> None:
    nasty = "\x1b[2J\r\n\u202eevil"
    place = Location(nasty, 1, nasty, nasty, nasty)
    text = findings_text("m.onnx", [Finding("TC101", "n", f"about {nasty}", Severity.ERROR, place, nasty, nasty)])
    edits = build_text(build_report(edits=(Edit(nasty, nasty, nasty),), skipped=(Skip(nasty, nasty, nasty),)))
    for shown in (text, edits):
        assert "\x1b" not in shown
        assert "\r" not in shown
        assert "\u202e" not in shown
    assert "\\x1b[2J" in text


def test_fixed_text_is_ascii() -> None:
    assert build_text(build_report()).isascii()
    assert check(FINDINGS).isascii()


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (5_500_000_000, "5.5 GB")],
)
def test_byte_size(size: int, text: str) -> None:
    assert byte_size(size) == text


def test_wording() -> None:
    assert (count(1, "error"), count(2, "error")) == ("1 error", "2 errors")
    assert (shape_text((1, -1)), shape_text(())) == ("1x-1", "scalar")
    assert clean("caf\u00e9 \u4e2d") == "caf\u00e9 \u4e2d"
    assert clean("a\tb\udcff") == "a\\tb\\udcff"


def test_several_runs() -> None:
    asked = CheckReport(MODEL, TARGET, FINDINGS[3:4], ParserVerdict("rtx", "1.7.1", True), 1, unbounded=("h",))
    told = CheckReport(MODEL, Target("tensorrt", (8, 6)), FINDINGS[3:4], ParserVerdict(), 1)
    known = dataclasses.replace(
        asked,
        model=FileIdentity("b.onnx"),
        findings=(),
        ignored=(Ignored(FINDINGS[0], "known"),),
        unbounded=(),
        exit_code=0,
    )
    text = runs_text([asked, told, known, build_report(up_to_date=True, model=FileIdentity("c.onnx"))])
    first, second, ignored, summary = text.split("\n\n")
    assert first.startswith("m.onnx for rtx-1.7: graph\n")
    assert second.startswith("m.onnx for tensorrt-8.6: graph\n")
    assert ignored.splitlines() == ["b.onnx", "  ignored: TC101 a-fault", "      because: known"]
    assert summary.splitlines() == [
        "FAILED  m.onnx: 1 error for rtx-1.7; no sizes checked",
        "FAILED  m.onnx: 1 error for tensorrt-8.6; by rules alone",
        "ok      b.onnx: nothing to report for rtx-1.7",
        "ok      out/m.engine (1.2 MB) is up to date for rtx-1.7",
        "2 of 4 runs ok",
    ]


def test_several_runs_show_what_made_one_fail_also_where_build_mends_it() -> None:
    fails = finding("TC308", Severity.ERROR, UP1, mended_by="compute-in-float", message="asymmetric")
    passes = dataclasses.replace(fails, severity=Severity.INFO, message="only told")
    failed = CheckReport(MODEL, TARGET, (fails, passes), ParserVerdict("rtx", "1.7.1", True), 1)
    assert "error TC308" in runs_text([failed])
    assert "only told" not in runs_text([failed])
    assert "TC308" not in runs_text([dataclasses.replace(failed, exit_code=0)])
    many = tuple(dataclasses.replace(fails, location=Location("", index, f"up{index}")) for index in range(20))
    text = runs_text([dataclasses.replace(failed, findings=many)])
    assert "... and 17 more of error TC308 a-fault (--verbose)" in text


def test_what_was_not_built_was_not_built_again() -> None:
    built = dataclasses.replace(build_report(), rebuilt="the model has changed")
    assert "built again, since the model has changed" in build_text(built)
    assert "built again, since the model has changed" in runs_text([built])
    failed = dataclasses.replace(built, engine=None, exit_code=1)
    assert "built again" not in build_text(failed) + runs_text([failed])


def test_why_sizes_were_skipped_is_said_once_and_never_lost() -> None:
    skipped = [VerifyCase(0, size, skipped="too large") for size in ("min", "max")]
    open_ = VerifyReport("network", None, tuple(skipped), incomplete="min and max of profile 0: too large")
    assert (open_.exit_code, verify_text(open_).count("too large")) == (4, 1)
    other = dataclasses.replace(open_, cases=(*skipped, VerifyCase(0, "random 1", skipped="no time")))
    assert "random 1 of profile 0: no time" in verify_text(other)
    failed = dataclasses.replace(open_, cases=(*skipped, VerifyCase(0, "opt", passed=False)))
    assert (failed.exit_code, verify_text(failed).count("too large")) == (1, 2)


def test_memory_is_told_by_profile_where_there_are_several() -> None:
    assert memory_by_profile([1_200_000, 900]) == " (by profile: 1.2 MB, 900 bytes)"
    for sizes in (None, [], [1_200_000]):
        assert memory_by_profile(sizes) == ""


def test_a_proof_tells_what_was_run() -> None:
    def told(sizes: int, layers: int, pieces: PieceCounts) -> str:
        return proof_lines(BuildProof("network", sizes, layers, (), None, None, True, pieces=pieces))[0]

    assert "(nothing was run)" in told(0, 0, PieceCounts())
    assert "(1 of 2 pieces, each by itself)" in told(0, 0, PieceCounts(1, 2))
    assert "(1 of 2 pieces, 3 layers run at 1 size)" in told(1, 3, PieceCounts(1, 2))
    assert "(3 layers run at 1 size)" in told(1, 3, PieceCounts())


@pytest.mark.parametrize(("proven", "start"), [(0, "proof: none"), (2, "proof: in part: 2 of 3 pieces")])
def test_a_whole_that_is_not_compared_takes_nothing_from_its_pieces(proven: int, start: str) -> None:
    proof = BuildProof("network", 0, 0, (), None, None, None, pieces=PieceCounts(proven, 3), why="no reference")
    (line,) = proof_lines(proof)
    assert line.startswith(start) and "no reference" in line
