"""JUnit XML: what Jenkins, GitLab and most other CI servers show as test results.

One test suite a model, one test case a rule, whether or not it found something: names then stay the same from run to
run, so that a server can tell new failures from old ones. All that a rule found is in its case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from trtconv.cli.formats.text import findings_text, ignored_lines
from trtconv.core.codes import Code, CodeFamily
from trtconv.core.documents.check import CheckReport, FailedRun
from trtconv.core.findings import Finding, Severity
from trtconv.core.text import clean, indented, leading

if TYPE_CHECKING:
    from trtconv.rules import Page

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FROM_SIZES = ("TC201", "TC202", "TC203", "TC206")
"""Codes that need bounds."""
_FROM_BUILDER = ("TC205", "TC403", "TC404", "TC405", "TC406")
"""Codes that need more than the parser."""


def check_junit(reports: Sequence[CheckReport], pages: Sequence[Page], failures: Sequence[FailedRun] = ()) -> str:
    """Renders checks as JUnit XML.

    Args:
        reports: One check or more.
        pages: Every rule there is, in order.
        failures: Models that could not be checked.
    """
    root = ElementTree.Element("testsuites", name="trtconv check")
    suites = [_suite(report, pages) for report in reports] + [_failed_suite(failure) for failure in failures]
    root.extend(suites)
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _suite(report: CheckReport, pages: Sequence[Page]) -> ElementTree.Element:
    path = _plain(report.model.path)
    own = {page.code for page in pages}
    findings = (*report.findings, *(entry.finding for entry in report.ignored))
    # Rules of extensions are known by what they found.
    added = {finding.code: Code(finding.code, finding.name) for finding in findings if finding.code not in own}
    cases = [_case(report, page, path) for page in pages] + [_case(report, code, path) for code in added.values()]
    suite = ElementTree.Element("testsuite", name=f"{path} for {report.target}")
    suite.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("errors", "0")
    suite.extend(cases)
    return suite


def _failed_suite(failure: FailedRun) -> ElementTree.Element:
    path = _plain(failure.model)
    suite = ElementTree.Element("testsuite", name=f"{path} for {failure.target}", tests="1", failures="0", errors="1")
    case = ElementTree.SubElement(suite, "testcase", classname=path, name="load")
    error = ElementTree.SubElement(case, "error", message=_plain(failure.message), type=failure.kind)
    blocks = [findings_text(leading(path), failure.findings)] if failure.findings else []
    error.text = _NOT_XML.sub("\ufffd", "\n".join([*blocks, *indented(failure.advice, "")]))
    return suite


def _case(report: CheckReport, page: Page | Code, path: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=path, name=f"{page.code} {page.name}")
    findings = [finding for finding in report.findings if finding.code == page.code]
    failing = [finding for finding in findings if _fails(report, finding)]
    if failing:
        message = _plain(failing[0].message if len(failing) == 1 else f"{len(failing)} findings")
        failure = ElementTree.SubElement(case, "failure", message=message, type=failing[0].severity.value)
        failure.text = _NOT_XML.sub("\ufffd", findings_text(leading(path), failing))
    elif not findings and not _was_asked(report, page.code):
        ElementTree.SubElement(case, "skipped", message=_plain(f"not checked for {report.target} here"))
    milder = [finding for finding in findings if finding not in failing]
    blocks = [findings_text(leading(path), milder)] if milder else []
    blocks += ignored_lines([entry for entry in report.ignored if entry.finding.code == page.code])
    if blocks:
        ElementTree.SubElement(case, "system-out").text = _NOT_XML.sub("\ufffd", "\n".join(blocks))
    return case


def _fails(report: CheckReport, finding: Finding) -> bool:
    least: Severity | None = report.fail_on
    return least is not None and finding.severity.rank >= least.rank


def _was_asked(report: CheckReport, code: str) -> bool:
    """Whether the check went so far as to try what a code is about."""
    if code in _FROM_SIZES:
        return not report.unbounded
    if code in _FROM_BUILDER:
        return report.parser.built is not None
    return CodeFamily.of(code) is not CodeFamily.TENSORRT or report.parser.accepted is not None


def _plain(text: str) -> str:
    """Replaces what XML cannot hold."""
    return clean(_NOT_XML.sub("\ufffd", text))
