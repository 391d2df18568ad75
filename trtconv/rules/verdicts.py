"""Pages of the codes that come from TensorRT itself rather than from a rule over the model."""

from __future__ import annotations

from typing import ClassVar

from trtconv.rules.base import Page


class ParserRefused(Page):
    """TensorRT's ONNX parser refuses a node.

    What it checks:
        The model, as the passes leave it, goes through the installed TensorRT's own parser; every node that the parser
        refuses is listed, not only the first.
    Why TensorRT cares:
        The operator, a type, an attribute or a dynamic value is not supported.
    Versions:
        The installed one; other versions may differ.
    Fix:
        Replace the operator, or give the parser what the message asks for.
    Source:
        The parser's message.
    """

    code: ClassVar[str] = "TC401"
    name: ClassVar[str] = "parser-refused"


class NetworkDiffers(Page):
    """TensorRT's network would not compute what the ONNX model says.

    What it checks:
        The audit compares every deconvolution in the parsed network - kernel, stride, dilation, group, pads, bias,
        output size - with the meaning of its ONNX node, and fails on any difference.
    Why TensorRT cares:
        It does not: such a network builds, runs and returns wrong numbers without a message.
    Versions:
        All.
    Fix:
        Build without --no-rewrite. If the passes were on, please report the model.
    Source:
        docs/deconvolution.md.
    """

    code: ClassVar[str] = "TC402"
    name: ClassVar[str] = "network-differs"


class BuilderRefused(Page):
    """TensorRT's builder refuses a network that the parser accepted.

    What it checks:
        The result of the build; the message is the builder's own.
    Why TensorRT cares:
        No kernel for a layer, too little memory, or a limit of the runtime.
    Versions:
        The installed one.
    Fix:
        See the message; narrower profiles or another precision often help. Where the ranges are to blame, `build` tries
        narrower ones for a minute at most, and names those that build.
    Source:
        The builder's log.
    """

    code: ClassVar[str] = "TC403"
    name: ClassVar[str] = "builder-refused"


class ProfileInconsistent(Page):
    """A profile's sizes do not fit the network.

    What it checks:
        The builder's checks of kMIN, kOPT and kMAX. For kOPT it fails; for kMIN and kMAX it only warns, and the engine
        fails at run time, so trtconv takes the warning for an error.
    Why TensorRT cares:
        A profile is a box of sizes, but a network accepts only some of them: a U-Net with two poolings only multiples
        of 4.
    Versions:
        All.
    Fix:
        Choose min, opt and max among the sizes that the network accepts.
    Source:
        Measured on 8.6 and RTX 1.7; no false alarm in some 600 networks.
    """

    code: ClassVar[str] = "TC404"
    name: ClassVar[str] = "profile-inconsistent"


class ShapeTensorInput(Page):
    """An input's values, not its shape, decide the sizes of other tensors.

    What it checks:
        Inputs that TensorRT reports as shape tensors.
    Why TensorRT cares:
        A profile must bound their values.
    Versions:
        All.
    Fix:
        Bound the values with --value NAME=MIN:OPT:MAX, or make them a constant of the model.
    Source:
        TensorRT developer guide, shape tensor I/O.
    """

    code: ClassVar[str] = "TC205"
    name: ClassVar[str] = "shape-tensor-input"
