"""What the rules on sizes say of profiles, and that what they offer is accepted."""

from __future__ import annotations

import itertools
import re

import pytest

from support.sizes import parse
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.core.findings import Finding, Severity
from trtconv.rules import run_size_rules
from trtconv.shapes.view import SizesView

BY_4 = """g (float[1,1,h,8] x) => (float[a,b,c,d] y) { y = SpaceToDepth <blocksize = 4> (x) }"""
BY_2_AND_3 = """g (float[1,1,h,w] x) => (float[a,b,c,d] y) {
    [two] t = SpaceToDepth <blocksize = 2> (x) [three] y = SpaceToDepth <blocksize = 3> (x) }"""
SQUARE = "g (float[1,h,w] x) => (float[1,a,b] y) { t = Transpose <perm = [0,2,1]> (x) [sum] y = Add (x, t) }"
BAKED_PRODUCT = "g (float[1,h,w] x) => (float[1,a] y) <int64[2] s = {1,144}> { y = Reshape (x, s) }"


def view(text: str, *profiles: dict[str, Range]) -> SizesView:
    model = parse(text)
    return SizesView(model, [make_profile(model.inputs, dims) for dims in profiles])


def found(text: str, *profiles: dict[str, Range]) -> list[Finding]:
    return list(run_size_rules(view(text, *profiles)))


def offers(fix: str) -> list[dict[str, Range]]:
    """Returns the bounds of each --dim that is offered."""
    read = re.findall(r"--dim (\w+)=([\d:]+)", fix)
    sizes = [(name, [int(n) for n in text.split(":")]) for name, text in read]
    return [{name: Range(*(ends if len(ends) == 3 else ends * 3))} for name, ends in sizes]


@pytest.mark.parametrize("sizes", [*itertools.combinations_with_replacement((7, 8, 9, 12, 14), 3)])
def test_each_size_that_does_not_fit_is_named_once_and_its_neighbours_offered(sizes: tuple[int, int, int]) -> None:
    bound = Range(*sizes)
    wrong = {size for size in sizes if size % 4}
    findings = found(BY_4, {"h": bound})
    fits = any(size % 4 == 0 for size in range(sizes[0], sizes[2] + 1))
    assert {finding.code for finding in findings} == ({"TC201" if fits else "TC203"} if wrong else set())
    if not wrong:
        return
    assert len(findings) == (len(wrong) if fits else 1)
    for size, finding in zip(sorted(wrong), findings, strict=False):
        near = [size - size % 4, size - size % 4 + 4] if fits else [sizes[0] // 4 * 4, -(-sizes[2] // 4) * 4]
        assert set(map(int, re.findall(r"\d+", finding.fix.partition(":")[0]))) == set(near)
        assert finding.severity is Severity.ERROR
        for offered in offers(finding.fix):
            ends = (offered["h"].min, offered["h"].opt, offered["h"].max)
            moved = [after for before, after in zip(sizes, ends, strict=True) if before != after]
            assert set(moved) <= set(near)
            assert len(moved) == (1 if sizes[0] < sizes[2] else 3)


def test_the_pick_and_the_profile_are_named() -> None:
    fitting, other = {"h": Range(8, 12, 16)}, {"h": Range(8, 13, 18)}
    messages = [finding.message for finding in found(BY_4, fitting, other)]
    assert [re.findall(r"the (\w+) of h of profile (\d), (\d+)", message) for message in messages] == [
        [("opt", "2", "13")],
        [("max", "2", "18")],
    ]
    (alone,) = found(BY_4, {"h": Range(9, 9, 9)}, {"h": Range(8, 8, 8)})
    assert "the size of h of profile 1, 9," in alone.message


def test_the_node_that_refuses_a_size_is_blamed() -> None:
    three, two = Range(9, 9, 9), Range(4, 4, 4)
    codes = {finding.location.node: finding.code for finding in found(BY_2_AND_3, {"h": three, "w": two})}
    assert codes == {"two": "TC203", "three": "TC203"}
    wide = Range(6, 9, 24)
    findings = found(BY_2_AND_3, {"h": wide, "w": wide})
    assert {(finding.code, finding.location.node) for finding in findings} == {("TC201", "two")}
    assert [re.findall(r"of (\w), (\d+)", finding.message)[0] for finding in findings] == [("h", "9"), ("w", "9")]


@pytest.mark.parametrize(("h", "w"), [(9, 12), (12, 9), (1, 5), (8, 8)])
def test_sizes_that_do_not_go_together(h: int, w: int) -> None:
    findings = found(SQUARE, {"h": Range(1, h, 20), "w": Range(1, w, 20)})
    if h == w or 1 in (h, w):
        assert not findings
        return
    (finding,) = findings
    assert (finding.code, finding.location.node) == ("TC202", "sum")
    assert f"the opt sizes, h {h}, w {w}, do not go together" in finding.message
    moved = {"h": h, "w": w} | {name: int(size) for name, size in re.findall(r"(h|w) (\d+)", finding.fix)}
    assert moved["h"] == moved["w"]
    assert abs(moved["h"] - h) + abs(moved["w"] - w) == abs(h - w)


def test_sizes_of_several_profiles_are_told_once() -> None:
    bound = {"h": Range(9, 9, 9), "w": Range(12, 12, 12)}
    fitting = {"h": Range(9, 10, 12), "w": Range(9, 10, 12)}
    (finding,) = found(SQUARE, bound, bound, fitting)
    assert "of profile 1" in finding.message


@pytest.mark.parametrize(("ends", "alone"), [((6, 24), True), ((7, 24), True), ((10, 14), False)])
def test_ends_that_go_together_nowhere_are_one_size(ends: tuple[int, int], alone: bool) -> None:
    """Height times width is one number: where several pairs fit, no range of one has ends that go with the other's."""
    bound = Range(ends[0], 12, ends[1])
    findings = found(BAKED_PRODUCT, {"h": bound, "w": bound})
    assert findings
    for finding in findings:
        offered = offers(finding.fix)
        if alone:
            assert {name: ends for each in offered for name, ends in each.items()} == dict.fromkeys(
                "hw", Range(12, 12, 12)
            )
        else:
            assert all(12 in (bound.min, bound.max) for each in offered for bound in each.values())


def strange(count: int) -> str:
    nodes = " ".join(f"t{n} = my.Strange (x)" for n in range(count))
    return f"g (float[1,1,h,8] x) => (float[a,b,c,d] y) {{ {nodes} y = Relu (x) }}"


@pytest.mark.parametrize(("count", "more"), [(0, 0), (1, 0), (3, 0), (4, 1), (6, 3)])
def test_nodes_behind_which_nothing_is_known(count: int, more: int) -> None:
    model = parse(strange(count), '<ir_version: 8, opset_import: ["": 17, "my": 1]>')
    ranging, fixed = ({"h": Range(*ends)} for ends in ((4, 8, 9), (8, 8, 8)))
    seen = [list(run_size_rules(SizesView(model, [make_profile(model.inputs, dims)]))) for dims in (ranging, fixed)]
    assert not seen[1], "of sizes that are all given the parser tells"
    assert len(seen[0]) == bool(count)
    for finding in seen[0]:
        assert (finding.code, finding.severity) == ("TC206", Severity.INFO)
        assert finding.message.count("Strange") == min(count, 3)
        assert (f"(and {more} more nodes)" in finding.message) == bool(more)


def test_a_model_of_fixed_sizes_that_do_not_fit() -> None:
    text = "g (float[1,1,6,8] x) => (float[a,b,c,d] y) { [deep] y = SpaceToDepth <blocksize = 4> (x) }"
    (finding,) = found(text, {})
    assert (finding.code, finding.severity, finding.location.node) == ("TC203", Severity.WARNING, "deep")
    assert "trtconv export FILE.py:NETWORK" in finding.fix
    assert not found(text.replace("6,8", "4,8"), {})


@pytest.mark.parametrize("line", ["", "net.py:12"])
def test_the_python_line_is_named_where_there_is_one(line: str) -> None:
    model = parse(BY_4)
    if line:
        model.proto.metadata_props.add(key="other", value="v")
        model.proto.graph.node[0].metadata_props.add(key="trtconv.source", value=line)
    profile = make_profile(model.inputs, {"h": Range(8, 9, 12)})
    (finding,) = run_size_rules(SizesView(model, [profile]))
    assert "()" not in finding.message
    assert (f"({line})" in finding.message) == bool(line)


@pytest.mark.parametrize(("bound", "words"), [(Range(9, 9, 9), "h of 9: "), (Range(9, 9, 11), "h of 9 to 11: ")])
def test_the_range_without_a_size_is_said(bound: Range, words: str) -> None:
    (finding,) = found(BY_4, {"h": bound})
    assert words in finding.message
