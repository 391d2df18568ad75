"""What is said of a network that TensorRT parsed, and of one that it refuses, without TensorRT."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from support.onnx_models import parse, wrap
from trtconv.core import codes
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import BuildFailed
from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.stopwatch import Stopwatch
from trtconv.graph.model import OnnxModel
from trtconv.graph.views import deconvs
from trtconv.pipeline.parse import fails, findings_of, parse_model, start
from trtconv.runtimes.tensorrt import ParserIssue
from trtconv.runtimes.tensorrt.early.runtime import EarlyRuntime

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,8,8] x, bool c) => (float[1,2,8,8] w, float[1,2,8,8] y) {
    w = Relu (x)
    y = If (c) <then_branch = t () => (a) { a = Exp (w) }, else_branch = e () => (b) { b = Abs (w) }> }"""
NAMES = (("first/Relu", "choice"), ("exp",), ("abs_2",))


def model(text: str = TEXT) -> OnnxModel:
    """Returns a model whose nodes have names."""
    wrapped = wrap(parse(text))
    for scope, names in zip(wrapped.scopes, NAMES, strict=True):
        for node, name in zip(scope.graph.node, names, strict=True):
            node.name = name
    return wrap(wrapped.proto)


class Parser:
    """A TensorRT whose parser makes the same of everything."""

    def __init__(self, made: Any) -> None:
        self.made = made
        self.given: list[tuple[bytes, Path]] = []

    def parse(self, data: bytes, path: Path) -> Any:
        self.given.append((data, path))
        return self.made


def network(*shapes: tuple[int, ...]) -> Any:
    """Returns a network with outputs w, y of these shapes."""
    outputs = [TensorInfo(name, "output", "float32", shape) for name, shape in zip("wy", shapes, strict=False)]
    return SimpleNamespace(deconvolutions=(), outputs=outputs)


@pytest.mark.parametrize(
    ("declared", "computed", "told"),
    [
        ((1, 2, 8, 8), (1, 2, 8, 8), None),
        ((1, 2, 8, 9), (1, 2, 8, 8), "[1, 2, 8, 9], and the network computes [1, 2, 8, 8]"),
        ((1, 3, 8, 8), (-1, 2, 8, 8), "[1, 3, 8, 8], and the network computes [?, 2, 8, 8]"),
        (("n", 2, 8, 8), (1, 2, 8, 8), None),
        ((1, 2, 8, 8), (-1, 2, -1, -1), None),
        (("n", 2, 8), (1, 2, 8, 8), "[?, 2, 8], and the network computes [1, 2, 8, 8]"),
        (("n", "m"), (1,), "[?, ?], and the network computes [1]"),
        # No size at all: what some files say that do not know it.
        ((0, 2), (1, 2), None),
        ((-3, 2), (1, 2), None),
        ((), (1, 2), None),
        ((1,), (), None),
        ((1, 0), (1, 0), None),
        ((1, 3), (1, 0), "[1, 3], and the network computes [1, 0]"),
    ],
)
def test_an_output_that_is_declared_otherwise_is_told(
    declared: tuple[int | str, ...], computed: tuple[int, ...], told: str | None
) -> None:
    wrapped = model()
    sizes = wrapped.proto.graph.output[1].type.tensor_type.shape
    del sizes.dim[:]
    for size in declared:
        sizes.dim.add(**{"dim_param" if isinstance(size, str) else "dim_value": size})
    made = network((1, 2, 8, 8), computed)
    parsed, findings = parse_model(wrapped, Parser(made), Stopwatch(None))
    assert parsed is made
    if told is None:
        assert findings == ()
    else:
        (finding,) = findings
        assert finding.message == f"output y is declared as {told}"
        assert (finding.severity, finding.location) == (Severity.WARNING, Location(tensor="y"))


def test_an_output_that_the_model_does_not_declare_is_not_told() -> None:
    made = SimpleNamespace(deconvolutions=(), outputs=[TensorInfo("z", "output", "float32", (3,))])
    assert parse_model(model(), Parser(made), Stopwatch(None)) == (made, ())


@pytest.mark.parametrize(
    ("index", "place"),
    [
        (0, Location(index=0, node="first/Relu", op="Op", source="net.py:12")),
        (1, Location(index=1, node="first/Relu", op="Op")),
        (2, Location(node="first/Relu", op="Op")),
        (-1, Location(node="first/Relu", op="Op")),
    ],
)
@pytest.mark.parametrize(("inside", "words"), [((), ""), (("a (If)", "b (t)"), " (inside a (If), b (t))")])
def test_a_refusal_stands_at_its_node(index: int, place: Location, inside: tuple[str, ...], words: str) -> None:
    wrapped = model()
    source = onnx.StringStringEntryProto(key="trtconv.source", value="net.py:12")
    wrapped.proto.graph.node[0].metadata_props.append(source)
    issue = ParserIssue(index, "first/Relu", "Op", "no such type", inside)
    parsed, findings = parse_model(wrapped, Parser((issue, issue)), Stopwatch(None))
    assert parsed is None
    assert [finding.location for finding in findings] == [place, place]
    assert findings[0].message == f"TensorRT's parser refuses it{words}: no such type"
    assert findings[0].code == codes.PARSER_REFUSED.code


UP = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,1,8,8] y)
    <float[1,1,2,2] w = {1,2,3,4}> { y = ConvTranspose <strides = [2,2]> (x, w) }"""
IN_FUNCTION = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[4] x) => (float[4] y) { y = my.F (x) }
    <opset_import: ["": 17], domain: "my"> F (a) => (b) { b = Relu (a) }"""


def early(own: Parser, made: Any) -> Any:
    """Returns the runtime of another process, which has parsed something, and what it is asked."""
    runtime: Any = EarlyRuntime.__new__(EarlyRuntime)
    runtime.own, runtime.asked = own, []

    def told(model: OnnxModel, *plan: object) -> Any:
        runtime.asked.append(([node.node.name for node in deconvs(model)], *plan))
        return made

    runtime.network = runtime.start = told
    return runtime


def test_a_network_that_is_not_audited_is_none() -> None:
    parsed, findings = parse_model(wrap(parse(UP)), Parser(network((1, 1, 8, 8))), Stopwatch(None))
    assert parsed is None
    assert [finding.code for finding in findings] == [codes.NETWORK_DIFFERS.code]


def test_another_process_is_asked_for_its_network_first() -> None:
    made, own = network((1, 2, 8, 8), (1, 2, 8, 8)), Parser(())
    assert parse_model(model(), early(own, made), Stopwatch(None)) == (made, ())
    assert own.given == []


def test_what_another_process_has_not_is_parsed_here() -> None:
    clock, wrapped, own = Stopwatch(None), wrap(parse(UP)), Parser(())
    runtime = early(own, None)
    assert parse_model(wrapped, runtime, clock) == (None, ())
    # Its deconvolutions have names by then, as those have that both parsers are given.
    ((names,),) = runtime.asked
    assert all(names)
    assert own.given == [(wrapped.serialize(), wrapped.path)]
    assert {"parse", "runtime"} <= clock.seconds.keys()


def test_only_another_process_begins_early_and_with_no_functions() -> None:
    runtime, plan, clock = early(Parser(()), None), object(), Stopwatch(None)
    start(wrap(parse(IN_FUNCTION)), plan, runtime, clock)
    start(wrap(parse(UP)), plan, Parser(()), clock)
    assert runtime.asked == [] and clock.seconds == {}
    start(wrap(parse(UP)), plan, runtime, clock)
    (((name,), given),) = runtime.asked
    assert name and given is plan


@pytest.mark.parametrize(
    ("message", "graph", "node"),
    [
        ("no tactic for first/Relu", "", "first/Relu"),
        ("no tactic for [first/Relu].", "", "first/Relu"),
        ("no tactic for {ForeignNode[first/Relu...exp]}: none", "", "first/Relu"),
        ("layer first/Relu_12 and exp_3", "", "first/Relu"),
        ("layer exp_3 (as 'choice_output')", "choice/then_branch", "exp"),
        ("layers (nothing_1, choice+exp)", "", "choice"),
        ("layer abs_2", "choice/else_branch", "abs_2"),
        ("layer abs_2_cast", "choice/else_branch", "abs_2"),
        ("layer abs", None, ""),
        ("layer first", None, ""),
        ("out of everything", None, ""),
    ],
)
def test_what_the_builder_says_stands_at_the_first_node_that_it_names(
    message: str, graph: str | None, node: str
) -> None:
    refused = codes.BUILDER_REFUSED.finding(message, fix="Change it.")
    for error in (BuildFailed(message, "Change it."), BuildFailed("no", findings=(refused,))):
        (finding,) = findings_of(error, model())
        assert (finding.code, finding.message) == (codes.BUILDER_REFUSED.code, message)
        if graph is None:
            assert finding == refused
        else:
            assert (finding.location.graph, finding.location.node) == (graph, node)
            assert finding.location.index is not None
            assert finding.fix.startswith("Change it. Or leave it to ONNX Runtime")


def test_a_name_as_it_is_goes_before_one_with_something_behind() -> None:
    (finding,) = findings_of(BuildFailed("exp_1 abs_2"), model())
    assert finding.location.node == "abs_2"
    assert finding.fix.startswith("Or leave it")


def test_what_has_a_place_or_another_code_stays() -> None:
    placed = codes.BUILDER_REFUSED.finding("no exp", place=Location(index=0, node="first/Relu"))
    other = codes.GPU_LIMIT.finding("no exp")
    assert findings_of(BuildFailed("no", findings=(placed, other)), model()) == (placed, other)


@pytest.mark.parametrize(
    ("severities", "fail_on", "expected"),
    [
        ((), Severity.INFO, False),
        ((Severity.ERROR,), None, False),
        ((Severity.ERROR,), Severity.ERROR, True),
        ((Severity.ERROR,), Severity.WARNING, True),
        ((Severity.WARNING,), Severity.ERROR, False),
        ((Severity.INFO, Severity.ERROR, Severity.INFO), Severity.WARNING, True),
        ((Severity.INFO,), Severity.INFO, True),
    ],
)
def test_a_finding_fails_from_a_severity_on(
    severities: tuple[Severity, ...], fail_on: Severity | None, expected: bool
) -> None:
    finding: Finding = codes.GPU_LIMIT.finding("no")
    assert fails((dataclasses.replace(finding, severity=each) for each in severities), fail_on) is expected
