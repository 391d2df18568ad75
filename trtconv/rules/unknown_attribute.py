"""TC004."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding
from trtconv.core.suggest import nearest
from trtconv.core.target import Target
from trtconv.graph.checker import attribute_names
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.rules.base import ModelView, Rule


class UnknownAttribute(Rule):
    """A node has an attribute that its operator does not have.

    What it checks:
        The names of the attributes of every node of a standard operator, against ONNX's schema of the model's opset.
        Operators that ONNX does not know, such as those of plugins, may have any.
    Why TensorRT cares:
        It passes over such an attribute without a word: `stride = [2,2]`, meant as strides, is computed with a stride
        of 1. ONNX Runtime refuses the model, so that nothing can be proven of it either.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <stride = [2,2]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2]> (x, w) }
    Fix:
        Correct the name, or take the attribute off. Some belong to another opset: say in the file which one is meant.
    Source:
        ONNX's operator schemas; the networks that TensorRT-RTX 1.7.1 makes.
    """

    code = "TC004"
    name = "unknown-attribute"
    fix = "Correct the attribute's name, take it off, or give the model the opset that has it."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for scope in view.model.scopes:
            for index, name, names in _unknown(scope, view.model.opset):
                near = nearest(name, sorted(names))
                hint = f"; did you mean {near}?" if near else ""
                op = scope.columns.ops[index]
                yield self.finding(
                    f"{op} of opset {view.model.opset} has no attribute {name}{hint}", scope.location(index)
                )


def _unknown(scope: Scope, opset: int) -> Iterator[tuple[int, str, frozenset[str]]]:
    columns = scope.columns
    names_by_op = {op: attribute_names(op, opset) for op in set(columns.ops)}
    for index, (op, domain, attributes) in enumerate(
        zip(columns.ops, columns.domains, columns.attributes, strict=True)
    ):
        names = names_by_op[op]
        if names is not None and attributes and domain in ONNX_DOMAINS:
            yield from ((index, attribute.name, names) for attribute in attributes if attribute.name not in names)
