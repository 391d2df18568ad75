"""TC616: what public issues say of versions of TensorRT, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx

from trtconv.core.findings import Finding, Severity
from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.places import products_before
from trtconv.graph.scope import Scope
from trtconv.rules.base import ModelView, Rule

Pattern = Callable[[ModelView], Iterator[tuple[Scope, int]]]
"""Yields the places of a model that an advisory is about."""

Versions = tuple[tuple[int, ...], tuple[int, ...] | None]
"""The first version that has a fault, and the first that has it no more; None where none is known."""


@frozen
class Advisory:
    """A fault of some versions of TensorRT that is known from a public report.

    Args:
        pattern: Where a model meets it.
        what: What goes wrong.
        versions: For each family the versions that have it.
        issue: Where it was reported.
        workaround: What to do.
        severity: Whether such an engine must not be built.
    """

    pattern: Pattern
    what: str
    versions: dict[str, Versions]
    issue: str
    workaround: str
    severity: Severity = Severity.WARNING

    def concerns(self, target: Target) -> bool:
        """Whether a version of TensorRT has the fault; one that is not known may."""
        if target.family not in self.versions:
            return False
        if target.version is None:
            return True
        first, fixed = self.versions[target.family]
        return target.version >= first[: len(target.version)] and (fixed is None or target.version < fixed)


def _grid_samples(view: ModelView) -> Iterator[tuple[Scope, int]]:
    for scope, index, node in view.model.nodes("GridSample"):
        if view.model.opset >= 20 and attribute(node, "mode") in (None, b"linear", b"cubic"):
            yield scope, index


def _cumulative_sums(view: ModelView) -> Iterator[tuple[Scope, int]]:
    """Several CumSums of which two differ in axis or direction."""
    sums = list(view.model.nodes("CumSum"))
    spelled = {_how_summed(scope, node) for scope, _, node in sums}
    if len(spelled) > 1:
        yield from ((scope, index) for scope, index, _ in sums)


def _how_summed(scope: Scope, node: onnx.NodeProto) -> tuple[object, ...]:
    axis = scope.values(node.input[1]) if len(node.input) > 1 else None
    return None if axis is None else axis.tobytes(), attribute(node, "reverse"), attribute(node, "exclusive")


def _resizes_in_branches(view: ModelView) -> Iterator[tuple[Scope, int]]:
    for scope, index, node in view.model.nodes("Resize"):
        maker = scope.producer(node.input[0])
        in_branch = scope.path.endswith(("/then_branch", "/else_branch"))
        if in_branch and maker is not None and maker.op_type == "Transpose":
            yield scope, index


def _samples_behind_products(view: ModelView) -> Iterator[tuple[Scope, int]]:
    """GridSamples whose places are computed by a product of matrices, as in a spatial transformer."""
    for scope, index, _ in view.model.nodes("GridSample"):
        if products_before(scope, index):
            yield scope, index


ADVISORIES = (
    Advisory(
        _samples_behind_products,
        "GridSample at places that a MatMul or Gemm made is computed wrongly, by as much as the values themselves",
        {"tensorrt": ((8, 6), (9,))},
        "executed by trtconv on 8.6.0: every layer is right alone, and the network is not",
        "With constant weights the pass convolve-products mends it; else use a newer TensorRT.",
        Severity.ERROR,
    ),
    Advisory(
        _grid_samples,
        "GridSample of opset 20 is computed as nearest: its mode names are not known",
        {"tensorrt": ((10,), (11, 4)), "rtx": ((1,), (1, 6))},
        "NVIDIA/TensorRT issue 4646, onnx/onnx-tensorrt pull request 1060",
        "Export with opset 19, where the modes are called bilinear and bicubic.",
    ),
    Advisory(
        _cumulative_sums,
        "of CumSums over several axes or in both directions some are computed as others",
        {"tensorrt": ((10, 8), None)},
        "NVIDIA/TensorRT issues 4551 and 4513, onnx/onnx-tensorrt issue 1034",
        "Write the sums as products with triangular matrices, or verify the engine on the GPU.",
    ),
    Advisory(
        _resizes_in_branches,
        "a Resize behind a Transpose in a branch of an If is computed wrongly at dynamic sizes",
        {"tensorrt": ((11, 1), (11, 3))},
        "NVIDIA/TensorRT issue 4846",
        "Take the If out, or put the Resize in front of the Transpose.",
    ),
)
"""Every advisory, the oldest versions first; from reports, or from runs of ours where one is named."""


class KnownWrongVersion(Rule):
    """The model holds what a version of TensorRT is publicly known to compute wrongly.

    What it checks:
        A table of patterns and versions, each from a public report that is still open or says where it was fixed.
    Why TensorRT cares:
        It does not: these are its own faults, most of them without a message. The proof finds those of the parser;
        those of the builder show on a GPU alone, by trtconv verify.
    Versions:
        As the message says.
    Before (tensorrt-10.13):
        <ir_version: 9, opset_import: ["": 20]>
        g (float[1,1,4,4] x, float[1,2,2,2] at) => (float[1,1,2,2] y) { y = GridSample <mode = "linear"> (x, at) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,4,4] x, float[1,2,2,2] at) => (float[1,1,2,2] y) { y = GridSample <mode = "bilinear"> (x, at) }
    Fix:
        As the message says; or another version.
    Source:
        The public issue that the message names.
    """

    code = "TC616"
    name = "known-wrong-version"
    severity = Severity.WARNING
    fix = "Use another version, or avoid what the message names."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for advisory in ADVISORIES:
            if not advisory.concerns(target):
                continue
            for scope, index in advisory.pattern(view):
                message = f"{target}: {advisory.what} ({advisory.issue})"
                place = scope.location(index)
                yield Finding(self.code, self.name, message, advisory.severity, place, advisory.workaround)
