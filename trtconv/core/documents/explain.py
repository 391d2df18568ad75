"""What `trtconv explain` says of a ConvTranspose. `trtconv.explainer.node` works it out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.encode import Document
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.target import Target

Sizes = tuple[int, ...]


@frozen
class Listed:
    """One ConvTranspose in a line.

    Args:
        place: "graph/node[5]".
        name: The node's name, possibly empty.
        output: Name of its output tensor.
        kernel: Kernel size; so are the others one entry a spatial axis, pads all begins, then all ends.
        auto_pad: "NOTSET" or what overrules the pads.
        output_shape: Spatial output sizes that the node asks for, or None.
        sizes: "64x64 -> 128x128", or "2*in + 1" where sizes are dynamic.
        fault: Why the node cannot be explained; the geometry is then empty.
    """

    place: str
    name: str
    output: str
    kernel: Sizes = ()
    strides: Sizes = ()
    pads: Sizes = ()
    output_padding: Sizes = ()
    auto_pad: str = "NOTSET"
    output_shape: Sizes | None = None
    sizes: str = ""
    fault: str = ""


@frozen
class Part:
    """What one attribute does: "stride 2" and "puts 1 zero between input elements"."""

    attribute: str
    meaning: str


@frozen
class Sample:
    """A small case to draw: an input size, and how many products meet in each element of its full result."""

    size: int
    taps: Sizes


@frozen
class Axis:
    """One spatial axis.

    Args:
        name: "L", "H", "W" or "D".
        size: Input size, None where dynamic.
        full: Size of the full result, None where dynamic.
        out: Output size, None where dynamic.
        full_formula: The full result's size in terms of the input's: "2*in + 1".
        out_formula: The output size likewise.
        full_filled: The formula of the full result with the numbers filled in.
        out_filled: The formula of the output with the numbers filled in.
        begin: Elements cut from the full result's low end, negative where zeros are added; None where known only at
            run time.
        end: The same at the high end.
        taps: How many products meet in output elements far from the edges, in turn, from an element like the first.
        parts: What each attribute does here.
        advice: What to think about.
        sample: What to draw; None where it would be too wide.
    """

    name: str
    kernel: int
    stride: int
    dilation: int
    size: int | None
    full: int | None
    out: int | None
    full_formula: str
    out_formula: str
    full_filled: str
    out_filled: str
    begin: int | None
    end: int | None
    taps: Sizes
    parts: tuple[Part, ...]
    advice: tuple[str, ...]
    sample: Sample | None


@frozen
class Layers:
    """What an installed TensorRT's parser makes of the node by itself.

    Args:
        runtime: "rtx 1.7.1.116".
        refused: Why it refuses the node; empty where it does not.
        deconvolution: The deconvolution layer: kernel, stride, dilation, pre_padding, post_padding, padding_mode,
            groups, has_bias; empty where refused. A 1-D node has two axes here.
        others: Types of the other layers that it needs, in order, constants aside.
        differences: Where the layers do not compute what the node means.
    """

    runtime: str
    refused: str = ""
    deconvolution: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    others: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@frozen
class Parser:
    """What TensorRT's parser makes of the node as it is.

    Args:
        expected: By what is known of the target, in words.
        findings: The rules' verdicts on the node (TC1xx).
        layers: What the installed parser made of it; None where it was not asked.
        why_not: Why it was not asked.
    """

    expected: str
    findings: tuple[Finding, ...]
    layers: Layers | None = None
    why_not: str = ""


@frozen
class Rewrite:
    """What the passes make of the node.

    Args:
        edits: Changes of the node and of the quantisers around it.
        skipped: What was left alone, and why.
        attributes: Attributes of the node afterwards.
        weight: Shape of its weight afterwards, (C_in, C_out/group, k...), None for each size that is not known.
        behind: Operators that were put behind the node, in order.
        why: Why that computes the same.
        findings: What the rules still have against it.
        layers: What the installed parser makes of it; None where it was not asked.
    """

    edits: tuple[Edit, ...]
    skipped: tuple[Skip, ...]
    attributes: Mapping[str, Any]
    weight: tuple[int | None, ...] | None
    behind: tuple[str, ...]
    why: tuple[str, ...]
    findings: tuple[Finding, ...]
    layers: Layers | None = None


@frozen
class Quantization:
    """How the node is quantised.

    Args:
        layout: The weight's axes with their sizes.
        scales: Number of weight scales; None where they are computed or there are none.
        axis: Axis of the scales; None for a single one.
        weight: About the weight's quantisation, in words.
        input: About the input's.
        output: About the output's.
        int8: Whether the node, as the passes leave it, will run in int8.
        why_not: Why it will not.
        findings: The rules' verdicts on the node and its quantisers (TC3xx), as the model is.
    """

    layout: str
    scales: int | None
    axis: int | None
    weight: str
    input: str
    output: str
    int8: bool
    why_not: str
    findings: tuple[Finding, ...]


@frozen
class Explanation:
    """Everything about one ConvTranspose.

    Args:
        place: "graph/node[5]".
        name: The node's name, possibly empty.
        output: Name of its output tensor.
        fault: Why the node cannot be explained; most else is then empty.
        attributes: Its attributes, defaults filled in.
        input_shape: (N, C, spatial...), None for each size that is not known; None where the rank is not.
        weight: (C_in, C_out/group, k...), likewise.
        axes: One entry a spatial axis.
        parts: What the attributes do that concern all axes.
        parser: What TensorRT's parser makes of it.
        rewrite: What the passes make of it.
        quantization: How it is quantised; None where it is not.
        advice: What to think about, all axes together.
    """

    place: str
    name: str
    output: str
    fault: str
    attributes: Mapping[str, Any]
    input_shape: tuple[int | None, ...] | None
    weight: tuple[int | None, ...] | None
    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]
    parser: Parser
    rewrite: Rewrite
    quantization: Quantization | None
    advice: tuple[str, ...]


@frozen
class ExplainReport(Document, keys="schema model target deconvolutions explanation exit_code"):
    """What `trtconv explain` found.

    Args:
        model: Path of the model.
        target: What it was explained for.
        deconvolutions: Every ConvTranspose of the model.
        explanation: About the one that was asked for; None where the list is the answer.
    """

    model: str
    target: Target
    deconvolutions: tuple[Listed, ...]
    explanation: Explanation | None
    exit_code: ClassVar[int] = 0
