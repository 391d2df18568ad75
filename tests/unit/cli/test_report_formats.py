"""SARIF, JUnit and GitHub annotations, each read as its reader would."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from support.paths import DATA
from trtconv.cli.formats.github import check_github
from trtconv.cli.formats.junit import check_junit
from trtconv.cli.formats.sarif import check_sarif, relative_path
from trtconv.core.documents.check import CheckReport, ParserVerdict
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.findings import Finding, Ignored, Location, Severity
from trtconv.core.target import Target
from trtconv.rules import RULES

ROOT = Path("/checkout")

DECONV = Finding(
    "TC101",
    "output-padding-exceeds-pads",
    "output_padding [1, 1] exceeds the end pads [0, 0]: 100% wrong,\nreally",
    Severity.ERROR,
    Location("", 5, "up1", "ConvTranspose", source="/checkout/nets/u net.py:12"),
    "Run trtconv rewrite.",
)
BRANCH = Finding("TC106", "negative-pads", "pads [-1] are negative", Severity.WARNING, Location("if/then_branch", 0))
TENSOR = Finding(
    "TC205", "shape-tensor-input", "input \x1b'\udcff' holds a shape", Severity.INFO, Location(tensor="\udcff")
)
ODD = Finding("TC999", "from-the-future", "x", Severity.ERROR)


def report(*findings: Finding, ignored: tuple[Ignored, ...] = (), path: str = "/checkout/m 1.onnx") -> CheckReport:
    parser = ParserVerdict("rtx", "1.7.1.116", True, True)
    return CheckReport(FileIdentity(path, "0" * 64), Target("rtx", (1, 7)), findings, parser, 1, ignored)


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft4Validator:
    # OASIS's schema, as @microsoft/jest-sarif 1.0.0-beta.0 carries it.
    document = json.loads((DATA / "sarif-2.1.0.json").read_text())
    return jsonschema.validators.validator_for(document)(document)


@pytest.mark.parametrize(
    "reports",
    [
        [report()],
        [report(DECONV, BRANCH, TENSOR, ODD, ignored=(Ignored(BRANCH, "known"), Ignored(TENSOR)))],
        [report(DECONV, path="C:\\models\\a.onnx"), report(path="../b.onnx"), report(DECONV, path="./c\udcff%.onnx")],
        [],
    ],
)
def test_sarif_validates(schema, reports: list[CheckReport]) -> None:
    text = check_sarif(reports, RULES, ROOT)
    assert text.isascii()
    schema.validate(json.loads(text))


def test_sarif_shows_the_python_line_and_the_node() -> None:
    run = json.loads(check_sarif([report(DECONV, BRANCH, ignored=(Ignored(TENSOR, "ours"),))], RULES, ROOT))["runs"][0]
    first, second, third = run["results"]
    place = first["locations"][0]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "nets/u%20net.py", "uriBaseId": "SRCROOT"}
    assert place["physicalLocation"]["region"] == {"startLine": 12}
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "graph/node[5]/up1"
    assert first["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "m%201.onnx"
    assert second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "m%201.onnx"
    assert (first["level"], second["level"], third["level"]) == ("error", "warning", "note")
    assert third["suppressions"] == [{"kind": "external", "justification": "ours"}]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [page.code for page in RULES]
    assert rules[first["ruleIndex"]]["id"] == "TC101"
    assert all(rule["help"]["markdown"].startswith(f"# {rule['id']}") for rule in rules)


def test_sarif_fingerprints_outlive_other_nodes() -> None:
    moved = dataclasses.replace(DECONV, location=dataclasses.replace(DECONV.location, index=7))

    def prints(finding: Finding) -> object:
        return json.loads(check_sarif([report(finding)], RULES))["runs"][0]["results"][0]["partialFingerprints"]

    assert prints(DECONV) == prints(moved)
    assert prints(DECONV) != prints(BRANCH)


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        ("a/b.onnx", "a/b.onnx"),
        ("./a.onnx", "a.onnx"),
        ("../a.onnx", None),
        ("/checkout/a.onnx", "a.onnx"),
        ("/checkouts/a.onnx", None),
        ("C:\\a.onnx", None),
    ],
)
def test_relative_paths(path: str, relative: str | None) -> None:
    assert relative_path(path, ROOT) == relative


def test_github_annotations() -> None:
    lines = check_github([report(DECONV, BRANCH)], ROOT).splitlines()
    assert lines[0] == (
        "::error file=nets/u net.py,line=12,title=TC101 output-padding-exceeds-pads::/checkout/m 1.onnx: graph/node[5] "
        'ConvTranspose "up1": output_padding [1, 1] exceeds the end pads [0, 0]: 100%25 wrong,%0A| really%0A| Run '
        "trtconv rewrite."
    )
    assert lines[1].startswith("::warning file=m 1.onnx,title=TC106 negative-pads::")
    assert lines[2].endswith("1 error, 1 warning for rtx-1.7")
    assert "file=a%2Cb%3Ac.onnx," in check_github([report(BRANCH, path="a,b:c.onnx")])


def test_github_says_once_what_two_targets_have_in_common() -> None:
    other = dataclasses.replace(report(DECONV), target=Target("tensorrt", (8, 6)))
    lines = check_github([report(DECONV, BRANCH), other], ROOT).splitlines()
    assert [line.partition(" ")[0] for line in lines[:2]] == ["::error", "::warning"]
    assert [line.rpartition(" ")[2] for line in lines[2:]] == ["rtx-1.7", "tensorrt-8.6"]


def test_github_tells_what_is_ignored_in_the_line_of_the_model() -> None:
    (line,) = check_github([report(ignored=(Ignored(BRANCH, "known\n::error::x"),))]).splitlines()
    assert line.endswith("nothing to report for rtx-1.7; ignored: TC106 negative-pads because: known | ::error::x")


def test_junit_has_a_case_for_every_rule() -> None:
    root = ElementTree.fromstring(check_junit([report(DECONV, BRANCH, TENSOR), report()], RULES))
    first, second = root.findall("testsuite")
    assert (root.get("failures"), first.get("failures"), second.get("failures")) == ("1", "1", "0")
    assert [case.get("name", "").partition(" ")[0] for case in first] == [page.code for page in RULES]
    failed = {case.get("name"): case.find("failure") for case in first if case.find("failure") is not None}
    assert list(failed) == ["TC101 output-padding-exceeds-pads"]
    assert "ConvTranspose" in failed["TC101 output-padding-exceeds-pads"].text
    assert any("negative" in (case.findtext("system-out") or "") for case in first)


def test_junit_follows_fail_on() -> None:
    strict = dataclasses.replace(report(BRANCH), fail_on=Severity.WARNING)
    lenient = dataclasses.replace(report(DECONV), fail_on=None)
    assert ElementTree.fromstring(check_junit([strict], RULES)).get("failures") == "1"
    assert ElementTree.fromstring(check_junit([lenient], RULES)).get("failures") == "0"


def test_junit_skips_what_was_not_asked() -> None:
    parser = ParserVerdict()
    root = ElementTree.fromstring(check_junit([dataclasses.replace(report(), parser=parser)], RULES))
    skipped = {case.get("name", "")[:5] for case in root.iter("testcase") if case.find("skipped") is not None}
    assert {"TC401", "TC402", "TC403", "TC404", "TC205"} <= skipped
    assert not skipped & {"TC101", "TC201"}


def test_junit_skips_the_sizes_that_have_no_bounds() -> None:
    root = ElementTree.fromstring(check_junit([dataclasses.replace(report(), unbounded=("height",))], RULES))
    skipped = {case.get("name", "")[:5] for case in root.iter("testcase") if case.find("skipped") is not None}
    assert skipped == {"TC201", "TC202", "TC203", "TC206"}


def test_junit_tells_what_is_ignored() -> None:
    root = ElementTree.fromstring(check_junit([report(ignored=(Ignored(BRANCH, "known"),))], RULES))
    (told,) = (case for case in root.iter("testcase") if case.find("system-out") is not None)
    assert told.get("name", "").startswith("TC106")
    assert "because: known" in (told.findtext("system-out") or "")
