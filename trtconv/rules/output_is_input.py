"""TC003."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding, Location
from trtconv.core.target import Target
from trtconv.rules.base import ModelView, Rule


class OutputIsInput(Rule):
    """A graph output is itself an input of the graph.

    What it checks:
        No output of the graph has the name of one of its inputs; initializers may be outputs.
    Why TensorRT cares:
        Inputs and outputs of an engine are told apart by their names alone. The parser therefore calls the input `__x`
        in place of `x`, and whoever feeds the engine by the names of the model finds no input of that name.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,3] x, float[2,3] y) { y = Relu(x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,3] same, float[2,3] y) { same = Identity(x)  y = Relu(x) }
    Fix:
        Put an Identity in front of the output, and give that a name of its own; or leave the output out, since the
        caller has it. trtconv never renames inputs or outputs.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes.
    """

    code = "TC003"
    name = "output-is-input"
    fix = "Put an Identity in front of the output, with a name of its own; or leave the output out."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        graph = view.model.proto.graph
        inputs = {value.name for value in graph.input} - view.model.main.initializers.keys()
        for name in dict.fromkeys(value.name for value in graph.output):
            if name in inputs:
                yield self.finding(f"output {name!r} is an input of the graph too", Location(tensor=name))
