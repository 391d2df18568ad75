"""TC617."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.older_opset import LOWERED, lowered
from trtconv.rules.base import ModelView, Rule


class NewerMeaning(Rule):
    """A node says what no opset says that TensorRT 8.6 knows.

    What it checks:
        For TensorRT 8.6 and models of an opset above 17: whether each node can be written at opset 17 with the same
        meaning.
    Why TensorRT cares:
        8.6 reads newer nodes as those of opset 17 and leaves out what it does not know, without a message: a Resize
        with antialias is one without, a ScatterND with reduction max overwrites.
    Versions:
        TensorRT 8.6.
    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 18]>
        g (float[1,1,8,8] x) => (float[1,1,4,4] y) <float[4] s = {1, 1, 0.5, 0.5}>
        { y = Resize <antialias = 1, mode = "linear"> (x, , s) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,4,4] y) <float[4] s = {1, 1, 0.5, 0.5}>
        { y = Resize <mode = "linear"> (x, , s) }
    Fix:
        Write the network with operators of opset 17, or build for TensorRT 10 or newer.
    Source:
        Run on TensorRT 8.6.0: bench/results/gpu-node-suite-8.6.json.
    """

    code = "TC617"
    name = "newer-meaning"
    fix = "Write the network with operators of opset 17, or build for TensorRT 10 or newer."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        newest = view.model.opset
        if not target.before(9) or newest <= LOWERED:
            return
        for scope in view.model.scopes:
            for index, node in enumerate(scope.columns.nodes):
                refusal = lowered(scope, node, newest)
                if isinstance(refusal, str):
                    yield self.finding(refusal, scope.location(index))
