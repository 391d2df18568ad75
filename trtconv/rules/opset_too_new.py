"""TC001."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.target import Target
from trtconv.rules.base import ModelView, Rule


class OpsetTooNew(Rule):
    """The model's opset is newer than the target's parser documents.

    What it checks:
        The version of the default operator set against the newest that the target's ONNX parser documents.
    Why TensorRT cares:
        A parser reads newer operators by the rules of the older version that it knows: it refuses them, or misses what
        has changed in them.
    Versions:
        TensorRT 8.6: opset 17. 10.0 to 10.4: 20. 10.5 and newer, 11 and RTX: 24 or 25.
    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 20]>
        g (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu(x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu(x) }
    Fix:
        Export with the opset that the target reads: torch.onnx.export(..., opset_version=17).
    Source:
        Operator tables of the TensorRT ONNX parser, 8.6 to 11.
    """

    code = "TC001"
    name = "opset-too-new"
    severity = Severity.WARNING
    fix = "Export with an opset that the target reads (torch.onnx.export(..., opset_version=17))."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        if view.model.opset > target.max_opset:
            message = f"opset {view.model.opset} is newer than {target.max_opset}, the newest that {target} documents"
            yield self.finding(message, Location())
