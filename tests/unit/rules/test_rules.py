"""Every rule: the example on its page fires before and not after, and the passes mend what they say they mend."""

from __future__ import annotations

import collections
import re
import textwrap

import onnx
import pytest

from support.onnx_models import RTX, parse, wrap
from trtconv.core.findings import Finding, Severity
from trtconv.core.target import Target
from trtconv.graph.types import undefined_opset
from trtconv.graph.views import deconvs
from trtconv.passes import PASSES, run_passes
from trtconv.rules import CHECKS, RULES, Rule, run_rules
from trtconv.rules.malformed_deconv import channels_fault

SECTIONS = ("What it checks", "Why TensorRT cares", "Versions", "Fix", "Source")
MENDED = sorted({code for each in PASSES for code in each.fixes})


def sections(page: str) -> dict[str, str]:
    """Splits a page into its sections, the summary under ""."""
    found, name = {"": ""}, ""
    for line in page.splitlines():
        if re.fullmatch(r"\S[^:]*:", line):
            name = line[:-1]
            found[name] = ""
        else:
            found[name] += line + "\n"
    return {name: textwrap.dedent(text).strip() for name, text in found.items()}


def examples(rule: Rule) -> list[tuple[Target, onnx.ModelProto, bool]]:
    """Returns the models on a rule's page: what they are meant for, and whether they show the fault."""
    found = []
    for name, text in sections(rule.page).items():
        match = re.fullmatch(r"(Before|After)(?: \((.*)\))?", name)
        if match:
            found.append((match[2], parse(text), match[1] == "Before"))
    meant = next((target for target, _, _ in found if target), None)
    return [(Target.parse(target or meant or "rtx") or RTX, proto, fault) for target, proto, fault in found]


def found(rule: Rule, proto: onnx.ModelProto, target: Target = RTX) -> list[Finding]:
    return [f for f in run_rules(wrap(proto), target) if f.code == rule.code]


def rule_of(code: str) -> Rule:
    return next(rule for rule in CHECKS if rule.code == code)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_section_of_a_page_says_something(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name), "a rule is named by words joined by hyphens"
    empty = [name for name, text in sections(rule.page).items() if name in SECTIONS and not text]
    assert not empty, f"{rule.code} says nothing under {empty}"


def test_codes_and_names_are_unique_and_in_order() -> None:
    for what in ("code", "name"):
        counts = collections.Counter(getattr(rule, what) for rule in RULES)
        twice = [given for given, count in counts.items() if count > 1]
        assert not twice, f"{what} of several rules: {', '.join(twice)}; take one that docs/rules/README.md has not"
    codes = [rule.code for rule in CHECKS]
    assert all(re.fullmatch(r"TC\d{3}", rule.code) for rule in RULES)
    late = [code for code, before in zip(codes[1:], codes, strict=False) if code < before]
    assert not late, f"CHECKS of trtconv/rules/__init__.py is in the order of codes; further up belong {late}"


def test_what_a_rule_promises_of_trtconv_a_pass_does() -> None:
    promised = {rule.code for rule in CHECKS if rule.by_hand or "Let trtconv" in rule.fix}
    idle = sorted(promised - set(MENDED))
    assert not idle, f"name in `fixes` of the pass that mends it, or promise nothing in `fix` and `by_hand`: {idle}"
    helpless = [rule.code for rule in CHECKS if "Let trtconv" in rule.fix and not rule.by_hand]
    assert not helpless, f"say in `by_hand` what the user can do where no pass mends it: {helpless}"


@pytest.mark.parametrize("rule", CHECKS, ids=lambda rule: rule.code)
def test_the_example_fires_before_and_not_after(rule: Rule) -> None:
    shown = examples(rule)
    assert {fault for _, _, fault in shown} == {True, False}, f"{rule.code} lacks a model under 'Before:' or 'After:'"
    for target, proto, fault in shown:
        result = found(rule, proto, target)
        page = "Before" if fault else "After"
        assert bool(result) == fault, f"{rule.code}: mend the model under '{page}:' of its page, or the rule: {result}"
        for finding in result:
            assert (finding.name, finding.mended_by) == (rule.name, None)
            assert finding.message
            assert finding.fix, f"{rule.code}: say in `fix` what trtconv does about it, or the user can do"


@pytest.mark.parametrize("rule", CHECKS, ids=lambda rule: rule.code)
def test_the_examples_are_valid_models(rule: Rule) -> None:
    for _, proto, fault in examples(rule):
        is_newer = undefined_opset(proto.opset_import) or proto.ir_version > onnx.IR_VERSION
        if not is_newer and not (fault and rule.code in ("TC002", "TC004", "TC108")):
            onnx.checker.check_model(proto)


@pytest.mark.parametrize("rule", CHECKS, ids=lambda rule: rule.code)
def test_rules_leave_the_model_as_it_is(rule: Rule) -> None:
    for target, proto, _ in examples(rule):
        model = wrap(proto)
        run_rules(model, target)
        assert model.proto == proto


# TC204: of masks whose places are written to, or known, which tests of these passes look at.
@pytest.mark.parametrize("code", [code for code in MENDED if code != "TC204"])
def test_passes_mend_what_they_say(code: str) -> None:
    rule = rule_of(code)
    for target, proto, fault in examples(rule):
        model = wrap(proto)
        done = run_passes(model, PASSES, target)
        assert bool(done.edits) or not fault, f"no pass edits the model under 'Before:' of {code}, which one mends"
        left = [finding for finding in run_rules(model, target) if finding.code == code]
        assert not left, f"the passes leave the fault in the model of {code}'s page: {left}"


def deconv(attrs: str, more: str = "", sizes: str = "8,8", name: str = "up") -> onnx.ModelProto:
    return parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,{sizes}] x, float[2] b) => (float[1,2,p,q] y) <float[2,2,1,1] w = {{1,2,3,4}}>
        {{ [{name}] y = ConvTranspose <{attrs}> (x, w{more}) }}"""
    )


@pytest.mark.parametrize(
    ("code", "attrs", "fires"),
    [
        ("TC101", "strides=[2,2], output_padding=[1,0]", True),
        ("TC101", "strides=[2,2], output_padding=[1,1], pads=[0,0,1,1]", False),
        ("TC101", "strides=[2,2], output_padding=[1,1], pads=[0,0,1,0]", True),
        ("TC101", 'strides=[2,2], output_padding=[1,1], auto_pad="VALID"', False),
        ("TC102", 'strides=[2,2], output_padding=[0,1], auto_pad="VALID"', True),
        ("TC102", 'strides=[2,2], output_padding=[0,0], auto_pad="SAME_UPPER"', False),
        ("TC102", 'strides=[2,2], output_padding=[1,1], auto_pad="NOTSET"', False),
        ("TC103", "strides=[2,2], output_shape=[15,15]", False),
        ("TC103", "strides=[2,2], output_shape=[14,15]", True),
        ("TC103", "strides=[2,2], output_shape=[16,15]", True),
        ("TC103", "strides=[2,2], output_shape=[13,13]", False),
        ("TC104", "strides=[2,1], dilations=[1,2]", True),
        ("TC104", "strides=[2,2], dilations=[1,1]", False),
        ("TC105", "strides=[2,2], dilations=[3,3], output_padding=[2,2]", False),
        ("TC105", "strides=[2,2], output_padding=[0,2]", True),
        ("TC105", "output_padding=[1,1]", True),
        ("TC105", "strides=[2,2], output_shape=[17,17]", True),
        ("TC105", "strides=[2,2], output_shape=[16,16]", False),
        ("TC106", "pads=[0,0,0,-1]", True),
        ("TC106", "pads=[0,0,0,0]", False),
        ("TC108", "strides=[2,2], pads=[9,9,9,9]", True),
        ("TC108", "strides=[2,2], pads=[7,7,7,7]", False),
        ("TC108", "group=3", True),
        ("TC108", 'auto_pad="SAME"', True),
        ("TC108", "kernel_shape=[1]", True),
        ("TC108", "kernel_shape=[2,2]", True),
        ("TC108", "dilations=[0,1]", True),
        ("TC108", "output_shape=[1,2,3]", True),
    ],
)
def test_when_rules_about_deconvolutions_fire(code: str, attrs: str, fires: bool) -> None:
    result = found(rule_of(code), deconv(attrs))
    assert bool(result) == fires, result
    assert all(f.location.node == "up" and f.location.op == "ConvTranspose" for f in result)


def test_a_node_without_weight_is_malformed() -> None:
    proto = deconv("strides=[2,2]")
    del proto.graph.node[0].input[1:]
    assert "no weight" in found(rule_of("TC108"), proto)[0].message


@pytest.mark.parametrize("biases", [5, 4])
def test_the_bias_has_to_fit(biases: int) -> None:
    numbers = [",".join(["1"] * count) for count in (80, biases)]
    proto = parse(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,4,8,8] x) => (float[] y) '
        f"<float[4,5,2,2] w = {{{numbers[0]}}}, float[{biases}] b = {{{numbers[1]}}}>"
        "{ y = ConvTranspose <strides=[2,2]> (x, w, b) }"
    )
    messages = [finding.message for finding in found(rule_of("TC108"), proto)]
    assert messages == ([] if biases == 5 else ["its bias has the shape [4], and it has 5 output channels"])


@pytest.mark.parametrize(("bias", "fires"), [(", b", True), ("", False)])
def test_a_computed_bias_is_missed_by_the_fill(bias: str, fires: bool) -> None:
    assert bool(found(rule_of("TC107"), deconv("strides=[2,2], output_padding=[1,1]", bias))) == fires


@pytest.mark.parametrize(
    "attrs", ['auto_pad="SAME_UPPER", output_padding=[1,1]', "output_shape=[9,9], output_padding=[1,1]"]
)
def test_what_decides_the_pads_itself_has_no_fill(attrs: str) -> None:
    assert not found(rule_of("TC107"), deconv(f"strides=[2,2], {attrs}", ", b"))


def test_an_output_shape_on_dynamic_sizes_is_misread() -> None:
    assert found(rule_of("TC103"), deconv("strides=[2,2], output_shape=[15,15]", sizes="h,w"))


def test_targets_differ() -> None:
    strided_dilated = deconv("strides=[2,2], dilations=[2,2]")
    assert not found(rule_of("TC104"), strided_dilated, Target("tensorrt", (8, 6)))
    proto = parse('<ir_version: 8, opset_import: ["": 20]> g (float[1] x) => (float[1] y) { y = Relu (x) }')
    fires = {text: bool(found(rule_of("TC001"), proto, Target.parse(text) or RTX)) for text in ("rtx", "tensorrt-8.6")}
    assert fires == {"rtx": False, "tensorrt-8.6": True}


def test_nodes_in_subgraphs_are_found_with_their_path() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,5,5] x, bool c) => (float[1,1,p,q] y)
        <float[1,1,1,1] v = {1}>
        { [pick] y = If (c) <
            then_branch = t () => (float[1,1,p,q] a) { a = ConvTranspose <strides=[2,2], output_padding=[2,2]> (x, v) },
            else_branch = e () => (float[1,1,p,q] b) { b = Relu (x) }> }"""
    )
    place = found(rule_of("TC105"), proto)[0].location
    assert (place.graph, place.index) == ("pick/then_branch", 0)


def test_severities_are_what_the_pages_say() -> None:
    assert rule_of("TC101").severity is Severity.WARNING
    assert rule_of("TC102").severity is Severity.ERROR


@pytest.mark.parametrize(
    ("x", "weight", "words"),
    [
        ("float[1,2,8,8] x", "w", ""),
        ("float[1,3,8,8] x", "w", "its input has 3 channels, and its weight of [2, 3, 1, 1] takes 2"),
        ("float[1,c,8,8] x", "w", ""),
        ("float[] x", "w", ""),
        ("float[1,3,8,8] x", "v", ""),
        ("float[3] x", "w", ""),
    ],
)
def test_channels_of_an_input_have_to_fit_where_both_are_known(x: str, weight: str, words: str) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]> g ({x}, float[2,2,1,1] v) => (float[] y)
        <float[2,3,1,1] w = {{1,2,3,4,5,6}}> {{ y = ConvTranspose (x, {weight}) }}"""
    )
    if "[]" in x:
        proto.graph.input[0].type.tensor_type.ClearField("shape")
    (view,) = deconvs(wrap(proto))
    assert (channels_fault(view) or "") == words
