"""What the rules found before the passes and after: what was mended, what is left, and what to do by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from trtconv.core import codes
from trtconv.core.codes import CodeFamily
from trtconv.core.documents.rewrite import Skip
from trtconv.core.findings import Finding, Severity
from trtconv.graph.model import OnnxModel
from trtconv.passes import Pass, PassResult
from trtconv.passes.spelling.base import Spelling


def compared(
    before: Sequence[Finding],
    after: Sequence[Finding],
    model: OnnxModel,
    result: PassResult,
    passes: Sequence[Pass],
    standing: frozenset[str],
) -> tuple[Finding, ...]:
    """Returns what was mended, one severity milder, and what is left.

    Args:
        before: Findings about the model as it was.
        after: Findings about the model after the passes, at the places of its nodes in the file.
        model: The model after the passes.
        result: What the passes did.
        passes: Those that ran.
        standing: Codes of findings that stay as severe when they are mended.
    """
    # Rules are loaded only where they are asked: a build begins before.
    from trtconv.rules.deconv_not_int8 import with_first_reasons

    rest = with_first_reasons(before, after, model)
    faults = {finding.fault for finding in rest}
    # What was only worth knowing of the model as it was is of no interest once it is otherwise.
    absent = (f for f in before if f.fault not in faults and f.severity is not Severity.INFO)
    edited: dict[str, set[str]] = {}
    for edit in result.edits:
        edited.setdefault(edit.node, set()).add(edit.pass_name)
    ran = set().union(*edited.values())
    places = ((finding, finding.location.node or str(finding.location)) for finding in absent)
    mended = (_mended(finding, (edited.get(node, set()), ran), passes, standing) for finding, node in places)
    return (*mended, *declined(rest, result, passes))


def declined(findings: Iterable[Finding], result: PassResult, passes: Sequence[Pass]) -> tuple[Finding, ...]:
    """Returns what is left after passes that would mend it, told to do by hand what they did not, and why."""
    from trtconv.rules import CHECKS

    by_hand = {rule.code: rule.by_hand for rule in CHECKS if rule.by_hand}
    reasons: dict[str, dict[str, set[str]]] = {}
    for skip in result.skipped:
        reasons.setdefault(skip.pass_name, {}).setdefault(skip.node, set()).add(skip.reason)
    rest = []
    for finding in findings:
        names = {pass_.name for pass_ in passes if finding.code in pass_.fixes}
        if names and finding.code in by_hand:
            why = _reason([reasons[name] for name in names & reasons.keys()], finding.location.node)
            finding = dataclasses.replace(finding, fix=by_hand[finding.code] + why)
        rest.append(finding)
    return tuple(rest)


def explained(findings: Iterable[Finding], skipped: Iterable[Skip]) -> tuple[Finding, ...]:
    """Returns refusals of the parser with why trtconv could not write the node in other operators, where one tried.

    Args:
        findings: What is said of a network, at the places of its nodes in the model that was parsed.
        skipped: What passes left alone.
    """
    findings = tuple(findings)
    if not findings:
        return ()
    # Loaded only here: to know them all takes all their modules.
    from trtconv.passes import PASSES

    spelling = {pass_.name for pass_ in PASSES if isinstance(pass_, Spelling)}
    reasons = {skip.node: skip.reason for skip in skipped if skip.pass_name in spelling}
    return tuple(
        dataclasses.replace(finding, fix=f"trtconv cannot write it in other operators: {why}. {finding.fix}")
        if finding.code == codes.PARSER_REFUSED.code
        and (why := reasons.get(finding.location.node or str(finding.location)))
        else finding
        for finding in findings
    )


_OF_NODES = (CodeFamily.DECONVOLUTION, CodeFamily.QUANTIZATION, CodeFamily.OPERATORS)
"""What is said of nodes that TensorRT misreads; not of sizes, limits and versions."""


def after_rules(faults: Iterable[Finding], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns what the proof says, and where a rule has said what TensorRT misreads, that this comes first.

    Args:
        faults: What parser, builder and proof say.
        findings: What the rules say.
    """
    errors = {finding.code for finding in findings if finding.severity is Severity.ERROR}
    misread = sorted(code for code in errors if CodeFamily.of(code) in _OF_NODES)
    if not misread:
        return tuple(faults)
    fix = f"Mend what {' and '.join(misread)} says first: that may be what differs."
    return tuple(
        dataclasses.replace(fault, fix=fix) if fault.code == codes.NETWORK_DIFFERS.code else fault for fault in faults
    )


def _reason(skips: Sequence[Mapping[str, set[str]]], node: str) -> str:
    """Returns why passes left a node as it is, where they said so of it, or one thing of all that they left.

    Args:
        skips: For each pass the names of the nodes that it left, and why.
        node: The node's name.
    """
    reasons = set().union(*(mapping.get(node, ()) for mapping in skips))
    if not reasons:
        reasons = set().union(*(why for mapping in skips for why in mapping.values()))
    return f" trtconv leaves it as it is: {reasons.pop()}." if len(reasons) == 1 else " trtconv leaves it as it is."


def _mended(finding: Finding, edited: Sequence[set[str]], passes: Sequence[Pass], standing: frozenset[str]) -> Finding:
    """Returns a finding that is no more, milder, with the pass that mended it.

    Args:
        finding: What was found before.
        edited: Names of the passes that edited its node, and of those that edited anything.
        passes: Those that ran.
        standing: Codes of findings that stay as severe.
    """
    able = [pass_.name for pass_ in passes if finding.code in pass_.fixes]
    by = next((name for names in (*edited, able) for name in able if name in names), None)
    # Whichever pass writes a node in other operators mends what was wrong with the node's own.
    by = by or next((pass_.name for pass_ in passes if pass_.name in edited[0]), None)
    milder = Severity.WARNING if finding.severity is Severity.ERROR else Severity.INFO
    severity = finding.severity if finding.code in standing else milder
    return dataclasses.replace(finding, severity=severity, mended_by=by)
