"""Rules on models of which less is known than on their pages: sizes, values, attributes, inputs that are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

from support.onnx_models import RTX, TENSORRT_8
from trtconv.cli.formats.pages import sections
from trtconv.core.target import Target
from trtconv.graph.checker import examine
from trtconv.graph.model import OnnxModel
from trtconv.rules import CHECKS, Rule, run_rules
from trtconv.rules.base import ModelView

TARGETS = (RTX, TENSORRT_8, Target("tensorrt", (10, 13)))


def page(rule: Rule) -> onnx.ModelProto:
    return onnx.parser.parse_model(next(text for title, text in sections(rule.page) if title.startswith("Before")))


def copied(proto: onnx.ModelProto, change: Callable[[onnx.GraphProto], None]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    change(made.graph)
    return made


def without_sizes(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()


def without_ranks(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.ClearField("shape")


def with_values_as_inputs(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    del graph.initializer[:]


def with_unknown_values(graph: onnx.GraphProto) -> None:
    with_values_as_inputs(graph)
    without_ranks(graph)


def flat(graph: onnx.GraphProto) -> None:
    for value in graph.input:
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, []))


def variants(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yields what a model becomes, with what was done to it, as far as it is one that is read at all."""
    yield from ((name, made) for name, made in _changed(proto) if not isinstance(examine(made), str))


def _changed(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    for change in (without_sizes, without_ranks, with_values_as_inputs, with_unknown_values, flat):
        yield change.__name__, copied(proto, change)
    for at, node in enumerate(proto.graph.node):
        for slot in range(len(node.input)):

            def cut(graph: onnx.GraphProto, at: int = at, slot: int = slot) -> None:
                del graph.node[at].input[slot:]

            def empty(graph: onnx.GraphProto, at: int = at, slot: int = slot) -> None:
                graph.node[at].input[slot] = ""

            yield f"{node.op_type} of {slot} inputs", copied(proto, cut)
            yield f"{node.op_type} without input {slot}", copied(proto, empty)
        for number, attribute in enumerate(node.attribute):

            def drop(graph: onnx.GraphProto, at: int = at, number: int = number) -> None:
                del graph.node[at].attribute[number]

            yield f"{node.op_type} without {attribute.name}", copied(proto, drop)


@pytest.mark.parametrize("rule", CHECKS, ids=lambda rule: rule.code)
def test_no_rule_fails_on_what_is_not_known(rule: Rule) -> None:
    for name, proto in variants(page(rule)):
        for target in TARGETS:
            try:
                found = list(rule.check(ModelView(OnnxModel(proto, Path("m.onnx"))), target))
            except Exception as error:
                pytest.fail(f"{rule.code} on {name} for {target}: {error!r}")
            assert all(finding.code == rule.code and finding.message for finding in found)


@pytest.mark.parametrize("rule", CHECKS, ids=lambda rule: rule.code)
def test_all_rules_take_what_one_is_about(rule: Rule) -> None:
    for name, proto in variants(page(rule)):
        try:
            run_rules(OnnxModel(proto, Path("m.onnx")), RTX)
        except Exception as error:
            pytest.fail(f"{name}: {error!r}")
