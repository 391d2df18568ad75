"""TC006."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.output_types import misdeclared_types
from trtconv.graph.types import dtype_name
from trtconv.rules.base import ModelView, Rule


class OutputType(Rule):
    """A graph output is declared as another type than its node makes.

    What it checks:
        The element type of every output of the graph is the one that ONNX defines for the node that makes it.
    Why TensorRT cares:
        The engine's output has the type that the node makes, not the one in the file; a caller who trusts the file
        reads bytes of another type. ONNX Runtime does not load such a model, so that nothing can be compared.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,1] y) { y = ArgMax <axis = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (int64[2,1] y) { y = ArgMax <axis = 1> (x) }
    Fix:
        Declare the output as the type that its node makes; or, where the declared type is what callers want, put a Cast
        in front of it.
    Source:
        ONNX's definition of each operator; read back from the network that TensorRT-RTX 1.7.1 makes.
    """

    code = "TC006"
    name = "output-type"
    fix = "Declare the output as the type that its node makes, or put a Cast in front of it."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        main = view.model.main
        for name, (declared, kind) in misdeclared_types(view.model).items():
            place = main.location(main.producers[name], name)
            message = f"output {name!r} is declared as {dtype_name(declared)}, and {place.op} makes {dtype_name(kind)}"
            yield self.finding(message, place)
