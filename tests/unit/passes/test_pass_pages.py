"""Every pass has its page, in docs/passes/, with an example that runs; and every pass that is written runs at all."""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx.parser
import onnxruntime
import pytest

from support.registries import not_entered, stale_pages
from trtconv import passes
from trtconv.cli.formats.pages import sections
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import undefined_opset
from trtconv.passes import PASSES, Pass, run_passes
from trtconv.passes.spelling.other_forms import OTHER_FORMS
from trtconv.rules import RULES
from trtconv.runtimes.compare import relative_error
from trtconv.runtimes.evaluator import evaluator
from trtconv.runtimes.onnxruntime import random_feeds, tolerance

PAGE = """a page has, in the docstring of the pass:
    Before:             or "Before (tensorrt-8.6):", where it does something for that target alone
        a model in ONNX's text format that the pass rewrites
    After:
        a model that computes the same, and that the pass leaves as it is"""
SIZES = {
    "match-skip-size": {"h": 6, "w": 6},
    "reshape-single-numbers": {"one": 1},
    "restore-pixel-shuffle": {"h": 16, "w": 16},
    "restore-reshape-target": {"n": 1, "h": 32, "w": 32},
    "restore-resize-scales": {"h": 32, "w": 32},
}
"""Sizes that the example takes before the pass too; of all others 5, an odd one, so that what rounds down shows."""
ABRIDGED = frozenset(
    (
        *("cumulative-product", "deform-by-samples", "determinant-by-minors", "expand-functions", "float-mod"),
        *("fourier-by-matrix", "normalize-by-batch", "overlap-add", "regions-by-matrix", "resize-by-matrix"),
        *("sample-by-gather", "scatter-by-position", "shift-bits", "unfold-columns", "update-by-scatter"),
    )
)
"""Passes whose page shows what they make in fewer nodes, which compute the same; all others show it as it is."""
MARKED = {"compute-wider"}
"""Passes that know their own nodes by metadata, which ONNX's text format does not have."""
UNTIL_1_23 = {
    "deform-by-samples": "DeformConv is not there, and ONNX's reference implementation divides by zero at sizes of 1",
}
"""What no ONNX Runtime up to 1.23, the last one for Python 3.10, can judge."""
TARGETS = {
    "8.6": Target("tensorrt", (8, 6)),
    "9.0": Target("tensorrt", (9, 0)),
    "10.0": Target("tensorrt", (10, 0)),
    "11.0": Target("tensorrt", (11, 0)),
    "rtx": Target("rtx", (1, 7)),
}
OF_SOME = {
    "cast-int8-constants": "9.0 10.0 11.0 rtx",
    "choose-at-run-time": "8.6",
    "compare-for-sign": "8.6",
    "compare-positions": "8.6 9.0",
    "convolve-products": "8.6",
    "deform-by-samples": "8.6 9.0 10.0 rtx",
    "dilate-deconv-kernel": "rtx",
    "double-one-row": "8.6",
    "expand-functions": "8.6 9.0 10.0",
    "float-mod": "9.0 10.0 11.0 rtx",
    "gather-infinities": "8.6",
    "fold-weight-quantizers": "8.6",
    "join-axes": "8.6",
    "lower-opset": "8.6",
    "multiply-for-power": "8.6",
    "overlap-add": "8.6",
    "part-skip-scales": "8.6",
    "reduce-all-axes": "8.6",
    "reduce-max-by-min": "8.6",
    "regions-by-matrix": "8.6 rtx",
    "sample-by-gather": "8.6",
    "subtract-remainders": "9.0 10.0 11.0 rtx",
    "take-from-shape": "8.6 9.0",
    "ungroup-deconv": "8.6",
    "write-kernel-shape": "8.6 9.0 10.0 11.0",
    "write-weight-quantizers": "8.6",
}
"""Passes to the targets that they do something about the example for; all others act for every one."""
LIMITS = {"move-channel-scales": 0.01, "requantize-symmetric": 0.05}
"""Largest relative error of passes that change numbers."""


def examples(each: Pass) -> dict[str, str]:
    return {title: text for title, text in sections(each.page) if title.split()[:1] in (["Before"], ["After"])}


def example(each: Pass, word: str) -> tuple[OnnxModel, Target]:
    titles = [title for title in examples(each) if title.startswith(word)]
    assert titles, f"{each.name} has no {word!r} in its docstring; {PAGE}"
    target = next(re.search(r"\((.*)\)", title) for title in examples(each) if title.startswith("Before"))
    model = OnnxModel(onnx.parser.parse_model(examples(each)[titles[0]]), Path("example.onnx"))
    return model, (Target.parse(target[1]) if target else None) or Target("rtx", (1, 7))


def spelled(model: OnnxModel) -> list[Any]:
    """Returns the nodes of a model, whatever they and their tensors are called, with the values of what is constant."""
    constants: dict[str, Any] = {}
    numbers: collections.defaultdict[str, int] = collections.defaultdict(itertools.count().__next__)

    def value(tensor: onnx.TensorProto) -> tuple[Any, ...]:
        array = onnx.numpy_helper.to_array(tensor)
        return str(array.dtype), array.shape, array.tolist()

    def tensor(name: str) -> Any:
        return constants.get(name) or (numbers[name] if name else None)

    def attribute(each: onnx.AttributeProto) -> Any:
        if each.type == onnx.AttributeProto.GRAPH:
            return each.name, graph(each.g)
        return each.name, value(each.t) if each.type == each.TENSOR else onnx.helper.get_attribute_value(each)

    def attributes(node: onnx.NodeProto) -> list[Any]:
        known = onnx.defs.has(node.op_type, node.domain)
        usual = onnx.defs.get_schema(node.op_type, model.opset, node.domain).attributes if known else {}
        defaults = [
            (name, onnx.helper.get_attribute_value(a.default_value))
            for name, a in usual.items()
            if not a.required and a.default_value.type
        ]
        return sorted((told for told in (attribute(each) for each in node.attribute) if told not in defaults), key=str)

    def graph(proto: onnx.GraphProto) -> list[Any]:
        constants.update((tensor.name, value(tensor)) for tensor in proto.initializer)
        inputs = [numbers[each.name] for each in proto.input]
        nodes = [
            (
                node.domain,
                node.op_type,
                attributes(node),
                [tensor(name) for name in node.input],
                *map(tensor, node.output),
            )
            for node in proto.node
        ]
        return [inputs, nodes, [tensor(each.name) for each in proto.output]]

    return graph(model.proto.graph)


def outputs(model: OnnxModel, each: Pass) -> list[Any]:
    """Runs a model on ONNX Runtime; on ONNX's reference implementation what that does not load."""
    sizes = SIZES.get(each.name, {})
    shapes = {
        spec.name: tuple(d if isinstance(d, int) else sizes.get(d, 5) for d in spec.dims) for spec in model.inputs
    }
    feeds = random_feeds(model.inputs, shapes)
    loaded = evaluator(model)
    computes = loaded if callable(loaded) else evaluator(model, by_reference=True)
    assert callable(computes), computes
    return computes(feeds)


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
def test_example(each: Pass) -> None:
    before, target = example(each, "Before")
    why_not = undefined_opset(before.proto.opset_import)
    if not why_not and tuple(map(int, onnxruntime.__version__.split(".")[:2])) <= (1, 23):
        why_not = UNTIL_1_23.get(each.name, "")
    if why_not:
        pytest.skip(why_not)
    after, _ = example(each, "After")
    rewritten, _ = example(each, "Before")
    assert run_passes(rewritten, [each], target).edits, f"{each.name} leaves its example as it is; {PAGE}"
    if each.name not in MARKED:
        assert not run_passes(after, [each], target).edits, f"{each.name} rewrites what it should have made; {PAGE}"
    if each.name not in ABRIDGED:
        assert spelled(rewritten) == spelled(after), f"{each.name} makes something else than its page shows"
    expected = outputs(before, each)
    limit = LIMITS.get(each.name, max(tolerance(before), tolerance(rewritten)))
    for model in (rewritten, after):
        for left, right in zip(expected, outputs(model, each), strict=True):
            assert relative_error(left, right) <= limit, f"{each.name} computes otherwise than before"


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
def test_a_pass_acts_for_the_targets_that_need_it(each: Pass) -> None:
    acts = [name for name, target in TARGETS.items() if run_passes(example(each, "Before")[0], [each], target).edits]
    told = OF_SOME.get(each.name, " ".join(TARGETS)).split()
    assert acts == told, f"{each.name} acts for {acts}; if that is meant, say so in OF_SOME of this file"


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
def test_page(each: Pass) -> None:
    assert each.summary.endswith("."), "the first line of the docstring is one sentence"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", each.name), "a pass is named by words joined by hyphens"
    assert set(each.fixes) <= {rule.code for rule in RULES}, "fixes names codes of rules"
    assert each.safety != "exact" or each.name not in LIMITS


def quantised(model: OnnxModel) -> dict[str, set[float]]:
    """Returns the tensors that are quantised, each with its single scales."""
    scales: dict[str, set[float]] = collections.defaultdict(set)
    for scope, _, node in model.nodes("QuantizeLinear"):
        values = scope.values(node.input[1])
        if values is not None and values.size == 1:
            scales[node.input[0]].add(float(values.reshape(-1)[0]))
    return scales


def test_passes_that_give_a_tensor_another_scale_say_so() -> None:
    changing = set()
    for each in PASSES:
        model, target = example(each, "Before")
        before = quantised(model)
        each.run(model, target)
        changing |= (
            {each.name} if any(before.get(name, own) != own for name, own in quantised(model).items()) else set()
        )
    assert "part-skip-scales" in changing
    assert changing <= {each.name for each in PASSES if each.requantizes}


def test_every_pass_is_in_the_registry() -> None:
    """A pass that is written and not entered would never run."""
    missing = not_entered(passes, Pass, "name", [*PASSES, *(form([]) for form in OTHER_FORMS.values())])
    assert not missing, f"enter into PASSES of trtconv/passes/__init__.py, where it has to run: {', '.join(missing)}"


def test_docs_are_up_to_date() -> None:
    stale = stale_pages("passes")
    assert not stale, f"run `make docs`, which writes {', '.join(stale)}"


def moved(model: OnnxModel, name: str) -> Iterator[tuple[str, OnnxModel]]:
    """Yields a model one of whose tensors comes from outside, and, of what it computes, is needed there."""
    known = {value.name: value for value in onnx.shape_inference.infer_shapes(model.proto).graph.value_info}
    outside = model.copy().proto
    for tensor in outside.graph.initializer:
        if tensor.name == name:
            known[name] = onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
            outside.graph.initializer.remove(tensor)
            break
    for node in outside.graph.node:
        node.output[:] = [f"{name}:other" if output == name else output for output in node.output]
    if name in known:
        outside.graph.input.append(known[name])
        yield f"{name} comes from outside", OnnxModel(outside, model.path)
        if name in model.main.producers:
            needed = model.copy().proto
            needed.graph.output.append(known[name])
            yield f"{name} is needed outside", OnnxModel(needed, model.path)


def shortened(model: OnnxModel) -> Iterator[tuple[str, OnnxModel]]:
    """Yields a model whose nodes lack what they may lack: of each one that has optional inputs the last."""
    for index, node in enumerate(model.proto.graph.node):
        known = onnx.defs.has(node.op_type, node.domain) and not undefined_opset(model.proto.opset_import)
        if known and len(node.input) > onnx.defs.get_schema(node.op_type, model.opset, node.domain).min_input:
            proto = model.copy().proto
            del proto.graph.node[index].input[-1]
            yield f"{node.op_type} lacks its last input", OnnxModel(proto, model.path)


def feeds_of(model: OnnxModel, each: Pass, held: dict[str, Any]) -> dict[str, Any]:
    """Returns inputs; what was constant in the example has the value that it had."""
    sizes = SIZES.get(each.name, {})
    shapes = {s.name: tuple(d if isinstance(d, int) else sizes.get(d, 5) for d in s.dims) for s in model.inputs}
    return {name: held.get(name, values) for name, values in random_feeds(model.inputs, shapes).items()}


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.name)
def test_an_example_in_other_surroundings(each: Pass) -> None:
    """Constants come at run time, nothing makes what a pass looks at, what it takes away is needed, or optional inputs
    are left out: what it does then, if anything, changes no number."""
    before, target = example(each, "Before")
    held = {name: onnx.numpy_helper.to_array(tensor) for name, tensor in before.main.initializers.items()}
    names = [*held, *before.main.producers]
    variants = itertools.chain(*(moved(before, name) for name in names), shortened(before))
    for what, model in variants:
        rewritten, computes = model.copy(), evaluator(model)
        if not run_passes(rewritten, [each], target).edits or not callable(computes):
            continue
        feeds = feeds_of(model, each, held)
        try:
            expected = computes(feeds)
        except Exception:
            continue  # It takes other sizes.
        computes = evaluator(rewritten)
        assert callable(computes), f"{each.name} makes what does not load, where {what}: {computes}"
        limit = LIMITS.get(each.name, max(tolerance(model), tolerance(rewritten)))
        for left, right in zip(expected, computes(feeds), strict=True):
            assert relative_error(left, right) <= limit, f"{each.name} computes otherwise than before, where {what}"
