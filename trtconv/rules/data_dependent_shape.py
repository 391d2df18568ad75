"""TC204."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from trtconv.core.findings import Finding, Severity
from trtconv.core.target import Target
from trtconv.rules.base import ModelView, Rule

_WHAT: Mapping[str, str] = {
    "NonZero": "as many elements as its input has that are not zero",
    "NonMaxSuppression": "as many boxes as are left",
    "Unique": "as many elements as its input has different ones",
    "Compress": "as many elements as its condition selects",
}


_EXPERTS = "experts"
"""Of the module, in the names of its nodes."""


class DataDependentShape(Rule):
    """A node's output size depends on the data, not on the sizes of the inputs.

    What it checks:
        NonZero, NonMaxSuppression, Unique and Compress.
    Why TensorRT cares:
        Profiles cannot bound such a size. TensorRT-RTX refuses NonZero and NonMaxSuppression; the full TensorRT
        takes both from 8.5 on, allocates for the worst case and cannot tell output sizes before it has run.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4,h] x) => (int64[2,n] y) { y = NonZero (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4,h] x) => (float[4,1] y) { y = ReduceMax <axes = [1]> (x) }
    Fix:
        trtconv build --partition leaves it, and what follows, to ONNX Runtime; or use a TopK of fixed size. A mixture
        of experts of transformers looks for the tokens of each expert with NonZero: call
        model.set_experts_implementation("batched_mm") before the export, which multiplies for all tokens at once.
    Source:
        TensorRT developer guide, data-dependent shapes.
    """

    code = "TC204"
    name = "data-dependent-shape"
    severity = Severity.WARNING
    fix = "Leave it to ONNX Runtime, build --partition (docs/partition.md), or use a TopK of fixed size."
    of_experts = (
        'Call model.set_experts_implementation("batched_mm") of transformers before the export: it looks for no tokens.'
        " Or leave it to ONNX Runtime: build --partition (docs/partition.md)."
    )

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for scope, index, node in view.model.nodes(*_WHAT):
            message, severity = f"it returns {_WHAT[node.op_type]}: known only at run time", None
            if target.family == "rtx" and node.op_type == "NonMaxSuppression":
                # Its parser takes the node, and the builder, which check does not ask about large networks, does not.
                message, severity = f"{message}, and TensorRT-RTX has no kernel for it", Severity.ERROR
            finding = self.finding(message, scope.location(index), severity)
            is_of_experts = node.op_type == "NonZero" and _EXPERTS in node.name.split("/")
            yield dataclasses.replace(finding, fix=self.of_experts) if is_of_experts else finding
