"""`trtconv extension test`: a user's passes, rules, operators and rules of rewriting, tried as trtconv's own are."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from trtconv.core import foreign
from trtconv.core.agreement import AgreedCode
from trtconv.core.documents.extension import ExtensionReport, TriedPart
from trtconv.core.errors import InputError
from trtconv.core.foreign import ForeignCode
from trtconv.core.pages import sections
from trtconv.core.reading import sha256_of
from trtconv.core.rewrite_rules import read_rules
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import KNOWN_DOMAINS
from trtconv.graph.views import quantizes
from trtconv.graph.walk import all_nodes
from trtconv.passes import PASSES
from trtconv.passes.base import Pass
from trtconv.passes.patterns.rewriting import RewritingPass
from trtconv.pipeline.extending.equality import passes_of
from trtconv.pipeline.extending.loading import AddedPass, AddedRule, Extension, load
from trtconv.pipeline.extending.variants import Variant, variants
from trtconv.rules.base import ModelView
from trtconv.runtimes.compare import relative_error, same_network
from trtconv.runtimes.onnxruntime import element_types, first_line, random_feeds, session
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.lattice.registry import OPERATORS

_USUAL = Target("rtx", (1, 7))
_TOML = ".toml"
_NO_REFERENCE = "an operator of your own needs a reference (docs/plugins.md)"
Sizing = Mapping[str, str]
"""Tensors to their shapes, as "3x4"."""


def test_extension(path: Path) -> ExtensionReport:
    """Tries a file of passes, rules and operators, or one of rules of rewriting.

    Raises:
        InputError: It cannot be read.
    """
    try:
        code = AgreedCode(path, sha256_of(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", "Give a .py or a .toml file.") from error
    owner = ""
    try:
        if path.suffix == _TOML:
            trials = tuple(_of_rewriting(path))
        else:
            extension = load(code)
            owner, trials = extension.owner, tuple(_of_extension(extension))
    except InputError as error:
        trials = (TriedPart(path.name, "use", False, error.message),)
    return ExtensionReport(str(path), code.sha256, owner, trials)


def _of_rewriting(path: Path) -> Iterator[TriedPart]:
    """Tries rules of rewriting: each is shown to be right, and rewrites its own pattern, once."""
    for rule in read_rules(path):
        of = f"rule of rewriting {rule.name}"
        try:
            (pass_,) = passes_of([rule])
            yield TriedPart(of, "equality", True, f"shown for {len(pass_.instances)} types, ranks and attributes")
            yield _rewrites_its_pattern(of, pass_)
        except InputError as error:
            yield TriedPart(of, "equality", False, error.message)


def _rewrites_its_pattern(of: str, pass_: RewritingPass) -> TriedPart:
    model = pass_.example()
    edits = pass_.run(model, _USUAL).edits
    if not edits:
        return TriedPart(of, "use", False, "it does not match its own pattern: are its nodes connected?")
    again = pass_.run(model, _USUAL).edits
    return TriedPart(of, "idempotence", not again, "it rewrites what it made" if again else "")


def _of_extension(extension: Extension) -> Iterator[TriedPart]:
    # Passes may be about operators that its own references compute.
    with foreign.using(ForeignCode(extensions=(extension.code,))):
        for pass_ in extension.passes:
            yield from _of_pass(pass_)
        for rule in extension.rules:
            yield from _of_rule(rule)
        for name in extension.operators:
            wrong = _wrong_sizes(name, OPERATORS[name], _wrong_shapes)
            yield TriedPart(f"operator {name}", "shapes", not wrong, wrong)
        for reference in extension.references:
            wrong = _wrong_sizes(reference.name, reference.function, _wrong_run)
            yield TriedPart(f"reference {reference.name}", "run", not wrong, wrong)


def _of_pass(pass_: AddedPass) -> Iterator[TriedPart]:
    of = f"pass {pass_.name}"
    target, before, after = _examples(pass_.page)
    wrong = _wrong_page(pass_.page, before, after)
    if wrong:
        yield TriedPart(of, "page", False, wrong)
        return
    try:
        yield TriedPart(of, "page", *_page_holds(pass_, target, before, after))
        rewritten, compared, faults = _try(pass_, target, _corpus(before))
    except InputError as error:
        yield TriedPart(of, "contract", False, error.message)
        return
    if not compared and _is_foreign(before):
        faults.append(("equality", f"none of the {rewritten} models that it rewrites can be run: {_NO_REFERENCE}"))
    counts = {"equality": f"{compared} of {rewritten} models rewritten were compared"}
    for what in ("contract", "idempotence", "equality"):
        fault = next((why for kind, why in faults if kind == what), "")
        yield TriedPart(of, what, not fault, fault or counts.get(what, f"{rewritten} models rewritten"))


def _examples(page: str) -> tuple[Target, list[str], list[str]]:
    """Returns the target of a page's examples, and the models under "Before:" and "After:"."""
    examples = [(title, text) for title, text in sections(page) if title.split()[:1] in (["Before"], ["After"])]
    hit = next((match for title, _ in examples if (match := re.search(r"\((.*)\)", title))), None)
    target = (Target.parse(hit[1]) if hit else None) or _USUAL
    return (
        target,
        [text for title, text in examples if title.startswith("Before")],
        [text for title, text in examples if title.startswith("After")],
    )


def _wrong_page(page: str, before: Sequence[str], after: Sequence[str]) -> str:
    if not page.partition("\n")[0].endswith("."):
        return "the first line of the docstring is not a sentence, with a full stop"
    if not before or not after:
        return "the docstring has not a model under 'Before:' and one under 'After:'"
    for text in (*before, *after):
        try:
            onnx.checker.check_model(onnx.parser.parse_model(text), full_check=True)
        except (
            onnx.parser.ParseError,
            onnx.checker.ValidationError,
            onnx.shape_inference.InferenceError,
            ValueError,
        ) as error:
            return f"a model of the page is not valid: {' '.join(str(error).split())[:200]}"
    return ""


def _model(text: str) -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(text), Path("example.onnx"))


def _page_holds(pass_: Pass, target: Target, before: Sequence[str], after: Sequence[str]) -> tuple[bool, str]:
    """Whether a pass rewrites the first model of its page, leaves the second, and these compute the same."""
    model = _model(before[0])
    if not pass_.may_act(model, target) or not pass_.run(model, target).edits:
        return False, "it leaves the model under 'Before:' as it is"
    after_model = _model(after[0])
    if pass_.may_act(after_model, target) and pass_.run(after_model, target).edits:
        return False, "it rewrites the model under 'After:'"
    variant = next(iter(variants(_model(before[0]))), None)
    feeds = {} if variant is None else variant.feeds
    wrong = _difference(_model(before[0]), after_model, [feeds])
    if wrong is None and _is_foreign(before):
        return False, f"the model under 'Before:' cannot be run: {_NO_REFERENCE}"
    return not wrong, f"'Before:' and 'After:' differ: {wrong}" if wrong else ""


def _is_foreign(texts: Sequence[str]) -> bool:
    """Whether models have operators that neither ONNX nor ONNX Runtime knows; of others it may lack a type."""
    models = (onnx.parser.parse_model(text) for text in texts)
    return any(node.domain not in KNOWN_DOMAINS for model in models for node in all_nodes(model.graph.node))


def _corpus(own: Sequence[str]) -> Iterator[Variant]:
    """Yields models to try a pass with: variants of its page's, and those of the pages of trtconv's own passes."""
    for text in own:
        yield from variants(_model(text))
    for pass_ in PASSES:
        _, before, _ = _examples(pass_.page)
        for text in before[:1]:
            yield from (
                dataclasses.replace(variant, what=f"the model of {pass_.name}")
                for variant in itertools.islice(variants(_model(text)), 1)
            )


def _try(pass_: AddedPass, target: Target, corpus: Iterator[Variant]) -> tuple[int, int, list[tuple[str, str]]]:
    """Runs a pass over models; returns how many it rewrote, how many of these could be compared, and what was wrong,
    each with its kind."""
    faults: list[tuple[str, str]] = []
    rewritten = compared = 0
    for variant in corpus:
        model = variant.model.copy()
        try:
            if not pass_.may_act(model, target) or not pass_.run(model, target).edits:
                continue
        except InputError as error:
            faults.append(("contract", f"{error.message}, for {variant.what}"))
            continue
        rewritten += 1
        if pass_.may_act(model, target) and (again := pass_.run(model, target).edits):
            faults.append(("idempotence", f"a second run edits again, for {variant.what}: {again[0].what}"))
        wrong = _difference(variant.model, model, [variant.feeds])
        compared += wrong is not None
        if wrong:
            faults.append(("equality", f"{wrong}, for {variant.what}"))
    return rewritten, compared, faults


def _difference(before: OnnxModel, after: OnnxModel, feeds: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns how a model and its rewrite differ: empty where they do not, None where it does not run."""
    first, second = session(before), session(after)
    if isinstance(first, str):
        return None
    if isinstance(second, str):
        return f"the rewritten model does not load: {second}"
    limit = same_network(element_types(before), quantizes(before))
    differs = None
    for feed in feeds:
        try:
            expected = first.run(None, dict(feed))
        # ONNX Runtime raises its own types.
        except Exception:
            continue
        try:
            actual = second.run(None, dict(feed))
        except Exception as error:
            return f"the rewritten model does not run: {first_line(error)}"
        for name, one, two in zip(before.outputs, expected, actual, strict=True):
            far = relative_error(one, two)
            if not far <= limit:
                return f"output {name!r} is off by {far:.2g} of its largest magnitude"
        differs = ""
    return differs


def _of_rule(rule: AddedRule) -> Iterator[TriedPart]:
    of = f"rule {rule.code}"
    target, before, after = _examples(rule.page)
    wrong = _wrong_page(rule.page, before, after)
    try:
        if not wrong:
            wrong = _wrong_findings(rule, target, before[0], after[0])
        yield TriedPart(of, "page", not wrong, wrong)
        count = 0
        for page in (pass_.page for pass_ in PASSES):
            _, *groups = _examples(page)
            for text in itertools.chain.from_iterable(groups):
                list(rule.check(ModelView(_model(text)), target))
                count += 1
        yield TriedPart(of, "contract", True, f"{count} models looked at")
    except InputError as error:
        yield TriedPart(of, "contract", False, error.message)


def _wrong_findings(rule: AddedRule, target: Target, before: str, after: str) -> str:
    model = _model(before)
    original = model.serialize()
    if not list(rule.check(ModelView(model), target)):
        return "it finds nothing in the model under 'Before:'"
    if model.serialize() != original:
        return "it changes the model"
    return (
        "it finds something in the model under 'After:'" if list(rule.check(ModelView(_model(after)), target)) else ""
    )


_SIZES = re.compile(r"(\S+) (\d+(?:x\d+)*)")


def _wrong_sizes(name: str, function: Any, wrong_line: Callable[[OnnxModel, Sizing, Sizing], str]) -> str:
    """Returns what is wrong with what is said of an operator.

    Args:
        name: The operator.
        function: What says it; its docstring has a model, and lines of shapes, "x 3x4 -> y 6x4".
        wrong_line: Returns how the outputs of a model are others than a line says, of inputs and of outputs.
    """
    parts = dict(sections(inspect.getdoc(function) or ""))
    lines = [line.partition("->") for line in parts.get("Sizes", "").splitlines() if "->" in line]
    if "Model" not in parts or len(lines) < 2:
        return "its docstring has not a model under 'Model:' and two lines, 'x 3x4 -> y 6x4', under 'Sizes:'"
    try:
        model = _model(parts["Model"])
    except (onnx.parser.ParseError, ValueError) as error:
        return f"the model of its docstring is not valid: {' '.join(str(error).split())[:200]}"
    if all(f"{node.domain}::{node.op_type}" != name for node in model.proto.graph.node):
        return f"the model of its docstring has no {name}"
    for inputs, _, outputs in lines:
        try:
            wrong = wrong_line(model, dict(_SIZES.findall(inputs)), dict(_SIZES.findall(outputs)))
        # It is the user's code.
        except Exception as error:
            wrong = f"{type(error).__name__}: {first_line(error)}"
        if wrong:
            return f"for {inputs.strip()}: {wrong}"
    return ""


def _wrong_run(model: OnnxModel, inputs: Sizing, outputs: Sizing) -> str:
    """Returns how what a reference computes has other shapes than a line of its page says."""
    shapes = {name: [int(size) for size in text.split("x")] for name, text in inputs.items()}
    computes = session(model)
    if isinstance(computes, str):
        return computes
    arrays = dict(zip(model.outputs, computes.run(None, random_feeds(model.inputs, shapes)), strict=True))
    for name, expected in outputs.items():
        shape = "x".join(map(str, arrays[name].shape))
        if shape != expected:
            return f"{name} is {shape}, and should be {expected}"
    return "" if outputs else "the line names no output"


def _wrong_shapes(model: OnnxModel, inputs: Sizing, outputs: Sizing) -> str:
    """Returns how the shapes of a model's outputs are others than a line of its page says."""
    sizes = {
        dim: int(size)
        for spec in model.inputs
        for dim, size in zip(spec.dims, inputs.get(spec.name, "").split("x"), strict=True)
        if isinstance(dim, str)
    }
    trial = Sizes(model).run([sizes], keep=True)
    if trial.opaque:
        return "its shapes cannot be told: " + ", ".join(trial.opaque.values())
    if failed := [check for check in trial.checks if not np.ravel(check.holds)[0]]:
        return f"it does not take these: {failed[0].evidence(0)}"
    for name, expected in outputs.items():
        shape = trial.tensors[name].shape or []
        text = "x".join(str(int(np.ravel(num.value)[0]) if num.is_known else "?") for num in shape)
        if text != expected:
            return f"{name} is {text}, and should be {expected}"
    return "" if outputs else "the line names no output"
