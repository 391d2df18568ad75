"""TC201 to TC203, TC206 and TC207: what is wrong with the sizes of a profile.

They need a profile beside the model, so they are no `Rule`s of a model alone: `SizesView` has both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trtconv.core.dim_flags import quoted
from trtconv.core.dims import Range, ShapeProfile, sizes_text
from trtconv.core.export_command import export_command
from trtconv.core.findings import Finding, Location, Severity
from trtconv.rules.base import Page

if TYPE_CHECKING:
    from trtconv.shapes.lattice import Check, DimLattice
    from trtconv.shapes.view import SizesView


class ProfileRule(Page):
    """A check of a model's profiles."""

    fix = ""

    def check(self, view: SizesView) -> Iterator[Finding]:
        """Yields what is wrong with the profiles."""
        raise NotImplementedError

    def finding(self, message: str, location: Location, fix: str, severity: Severity = Severity.ERROR) -> Finding:
        """Makes a finding of this rule."""
        return Finding(self.code, self.name, message, severity, location, fix or self.fix)


class SizeOffLattice(ProfileRule):
    """A profile's min, opt or max is a size that the network does not accept.

    What it checks:
        Every dimension's min, opt and max against the sizes for which the shapes of the network fit together. They are
        found on shapes alone; the node that refuses the size is named, and the nearest sizes that work.
    Why TensorRT cares:
        A profile is a box, but the network accepts a lattice in it: a U-Net that halves three times only multiples of
        8. An impossible opt fails the build; an impossible min or max is only warned of, and the engine fails when
        it runs.
    Versions:
        All.
    Dims:
        h=8:16:30
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,8] x) => (float[1,1,h,8] y) {
            a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
            b = MaxPool <kernel_shape = [2,2], strides = [2,2]> (a)
            s = Constant <value = float[4] {1.0, 1.0, 4.0, 4.0}> ()
            c = Resize <mode = "nearest"> (b, , s)
            y = Add (c, x)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,8] x) => (float[1,1,h,8] y) {
            a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
            s = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
            c = Resize <mode = "nearest"> (a, , s)
            y = Add (c, x)
        }
    Fix:
        Use the sizes that the message offers, or let --round move them; pad inputs of other sizes before the engine
        sees them. `trtconv sizes MODEL` lists what works.
    Source:
        Measured on 8.6 and RTX 1.7; see docs/sizes.md.
    """

    code = "TC201"
    name = "size-off-lattice"
    fix = "Use accepted sizes, or let --round move them."

    def check(self, view: SizesView) -> Iterator[Finding]:
        if all(fault is None for fault in view.faults) or view.lattice.empty:
            return
        again = _again(view)
        earlier: set[tuple[int, str, int]] = set()
        for row, ((number, pick, sizes), fault) in enumerate(zip(view.points, view.faults, strict=True)):
            if fault is None:
                continue
            for name, near in view.lattice.nearest(sizes).items():
                dim, size, own = view.lattice.dims[name], sizes[name], view.fault_of(row, name)
                # Where min, opt and max are one size, it is said once.
                if (number, name, size) in earlier:
                    continue
                earlier.add((number, name, size))
                bound = view.profiles[number].dims[name]
                what = "size" if bound.min == bound.max else pick
                message = (
                    f"the {what} of {name}{view.describe(number)}, {size}, does not fit the network, which accepts"
                    f" {dim.describe()}: {_blame(view, name, own, row)}"
                )
                offered = near[str(size)]
                place = own.node.location
                fix = again or _alone(view, number) or _offer(view.profiles[number], dim, pick, offered)
                yield self.finding(message, place, fix)


def _blame(view: SizesView, name: str, fault: Check, row: int) -> str:
    node = fault.node
    source = f" ({node.source})" if node.source else ""
    last = next((i for i in reversed(view.lattice.imposed) if i.dims == (name,)), None)
    asks = f"; {_short(last.location)} needs {last.needs}" if last is not None else ""
    return f"{node.label}{source} {fault.evidence(row)}{asks}"


def _short(place: Location) -> str:
    return f"{place.op} {place.node}" if place.node else f"{place.op} (node {place.index})"


def _again(view: SizesView) -> str:
    """Returns how to get rid of sizes that an exporter fixed; nothing where the network itself asks for its sizes.

    Sizes beside the example's that a constant happens to divide would help nobody.
    """
    if not view.is_baked:
        return ""
    command = export_command(view.model.inputs, view.profiles[0].dims, view.model.path.name)
    return f"The exporter fixed the sizes of its example. Export it again, from its Python: {command}"


def _other_images(view: SizesView) -> str:
    """Returns what to do where images have one size that the network may not take; nothing where none have."""
    size = None if view.model.images is None else view.model.images.resized_to
    return "" if size is None else f"Images come to it as {size[0]}x{size[1]}: give another size in --preprocess size=."


def _alone(view: SizesView, number: int) -> str:
    """Returns what to do where ends of ranges do not go together, whatever they are; nothing where they could."""
    # Loaded only here, with all that knows of sizes.
    from trtconv.shapes.profiles import alone

    use = " ".join(f"--dim {quoted(name)}={bound.opt}" for name, bound in alone(view, number).items())
    return f"No ends of these ranges go together: use one size, {use}, or add --round." if use else ""


def _offer(profile: ShapeProfile, dim: DimLattice, pick: str, offered: Sequence[int]) -> str:
    if not offered:
        return ""
    bound = profile.dims[dim.name]
    if bound.min == bound.max:
        lines = [f"--dim {quoted(dim.name)}={size}" for size in offered]
        return f"The nearest sizes are {' and '.join(map(str, offered))}: use {' or '.join(lines)}, or add --round."
    lines = []
    for size in offered:
        sizes = {"min": bound.min, "opt": bound.opt, "max": bound.max, pick: size}
        fits = sizes["min"] <= sizes["opt"] <= sizes["max"]
        lines.append(f"--dim {quoted(dim.name)}={Range(**sizes)}" if fits else f"{pick} {size}")
    return f"The nearest sizes are {' and '.join(map(str, offered))}: use {' or '.join(lines)}, or add --round."


class DimensionsTied(ProfileRule):
    """A profile gives sizes that are fine alone and not together.

    What it checks:
        Min, opt and max of all dimensions together, where each one alone is accepted.
    Why TensorRT cares:
        Two dimensions that must be equal are two to TensorRT: profiles with other combinations build, and fail when
        the engine runs.
    Versions:
        All.
    Dims:
        h=8:16:32 w=8:16:64
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,h,w] x) => (float[1,h,w] y) {
            t = Transpose <perm = [0,2,1]> (x)
            y = Add (x, t)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,h,w] x) => (float[1,h,w] y) {
            y = Add (x, x)
        }
    Fix:
        Give the dimensions sizes that go together; where they must be equal, export them with one name.
    Source:
        See docs/sizes.md.
    """

    code = "TC202"
    name = "dimensions-tied"
    fix = "Give the dimensions sizes that go together, or add --round."

    def check(self, view: SizesView) -> Iterator[Finding]:
        if all(fault is None for fault in view.faults) or view.lattice.empty:
            return
        earlier: list[Mapping[str, int]] = []
        for row, ((number, pick, sizes), fault) in enumerate(zip(view.points, view.faults, strict=True)):
            if fault is None or not sizes or view.lattice.nearest(sizes) or sizes in earlier:
                continue
            earlier.append(sizes)
            text = sizes_text(sizes)
            tied = f" (it needs {'; '.join(view.lattice.joint)})" if view.lattice.joint else ""
            node = fault.node
            source = f" ({node.source})" if node.source else ""
            message = (
                f"the {pick} sizes{view.describe(number)}, {text}, do not go together{tied}: {node.label}{source}"
                f" {fault.evidence(row)}"
            )
            moved = view.lattice.rounded(sizes, up=None)
            nearest = ", ".join(f"{name} {size}" for name, size in moved.items() if size != sizes[name])
            works = f"Nearest that works: {nearest}. --round does so." if nearest else ""
            fix = _again(view) or _alone(view, number) or works
            yield self.finding(message, node.location, fix)


class NoValidSize(ProfileRule):
    """The network accepts no size in the range that was asked for.

    What it checks:
        That some size between min and max of every dimension is accepted.
    Why TensorRT cares:
        The builder fails, with a message about kOPT.
    Versions:
        All.
    Dims:
        h=9:9:11
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,8] x) => (float[1,1,h,8] y) {
            a = SpaceToDepth <blocksize = 4> (x)
            y = DepthToSpace <blocksize = 4> (a)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,8] x) => (float[1,1,h,8] y) {
            y = Relu (x)
        }
    Fix:
        Choose a range with one of the sizes that the message offers; where there is none at all, the model is broken
        or has one size baked in: export it again with dynamic shapes.
    Source:
        See docs/sizes.md.
    """

    code = "TC203"
    name = "no-valid-size"
    fix = "Choose another range, or export the model again with dynamic shapes."

    def check(self, view: SizesView) -> Iterator[Finding]:
        if all(fault is None for fault in view.faults) or (view.lattice.dims and not view.lattice.empty):
            return
        for dim in view.lattice.dims.values():
            if dim.valid != () or dim.looked is not None:
                continue
            near = [n for n in (dim.nearest(dim.min)[0], dim.nearest(dim.max)[1]) if n is not None]
            blamed = next((i for i in view.lattice.imposed if dim.name in i.dims), None)
            because = f": {blamed}" if blamed is not None else ""
            between = f"{dim.min}" if dim.min == dim.max else f"{dim.min} to {dim.max}"
            message = f"the network accepts no {dim.name} of {between}{because}"
            flags = (
                f": --dim {' or --dim '.join(f'{quoted(dim.name)}={n}' for n in near)}" if dim.min == dim.max else ""
            )
            nearest = f"The nearest sizes that it accepts are {' and '.join(map(str, near))}{flags}." if near else ""
            fix = _again(view) or nearest or _other_images(view)
            location = blamed.location if blamed is not None else Location(tensor=dim.name)
            yield self.finding(message, location, fix)
        if not view.lattice.dims:
            fault = next(f for f in view.faults if f is not None)
            # The parser decides about sizes that are all given.
            message = f"the shapes of the model do not fit together: {fault.node.label} {fault.evidence(0)}"
            command = export_command(view.model.inputs, {}, view.model.path.name)
            fix = _again(view) or (
                "What exported it is wrong here, not TensorRT. Export it again, from its Python, which tries PyTorch's"
                f" exporters in turn: {command}"
            )
            yield self.finding(message, fault.node.location, fix, Severity.WARNING)


class SizesNotKnown(ProfileRule):
    """The sizes that a network accepts could not be told in full.

    What it checks:
        Whether the shapes behind every node can be computed from those of the inputs.
    Why TensorRT cares:
        It does not; but a size that trtconv calls fine may then still fail behind the node that is named.
    Versions:
        All.
    Dims:
        h=8:16:32
    Before:
        <ir_version: 8, opset_import: ["": 17, "my": 1]>
        g (float[1,1,h,8] x) => (float[a,b,c,d] y) { y = my.Strange (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,8] x) => (float[1,1,h,8] y) { y = Relu (x) }
    Fix:
        Try the engine at min, opt and max.
    Source:
        See docs/sizes.md.
    """

    code = "TC206"
    name = "sizes-not-known"
    fix = "Try the engine at min, opt and max."

    def check(self, view: SizesView) -> Iterator[Finding]:
        if all(bound.min == bound.max for profile in view.profiles for bound in profile.dims.values()):
            return
        opaque = view.trial.opaque
        if opaque:
            reasons = "; ".join(f"{node}: {why}" for node, why in list(opaque.items())[:3])
            more = f" (and {len(opaque) - 3} more nodes)" if len(opaque) > 3 else ""
            message = f"which sizes the network accepts is not known behind {reasons}{more}"
            yield self.finding(message, Location(), "", Severity.INFO)


class TensorTooLarge(ProfileRule):
    """At the max of a profile a tensor has more than 2147483647 elements.

    What it checks:
        The number of elements of every tensor at the max of every profile, by the shapes of the network.
    Why TensorRT cares:
        It counts elements of a tensor in 32 bits in places: such engines fail to build, or give wrong results.
    Versions:
        All.
    Dims:
        h=1:256:65536
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,1] x, float[1,1,1,65536] k) => (float[1,1,h,65536] y) { y = Mul (x, k) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,1] x, float[1,1,1,256] k) => (float[1,1,h,256] y) { y = Mul (x, k) }
    Fix:
        Give the dimensions a smaller max, and larger inputs in parts.
    Source:
        NVIDIA/TensorRT issue 3033.
    """

    code = "TC207"
    name = "tensor-too-large"
    fix = "Give the dimensions a smaller max."

    def check(self, view: SizesView) -> Iterator[Finding]:
        # Loaded only here, with all that knows of sizes.
        from trtconv.shapes.memory import MOST_ELEMENTS

        for number, need in enumerate(view.memory):
            if need.elements > MOST_ELEMENTS:
                message = (
                    f"tensor {need.largest!r} has {need.elements} elements at the max{view.describe(number)}, and"
                    f" TensorRT counts some in 32 bits, which end at {MOST_ELEMENTS}"
                )
                yield self.finding(message, need.maker, "", Severity.WARNING)


SIZE_CHECKS: tuple[ProfileRule, ...] = (
    SizeOffLattice(),
    DimensionsTied(),
    NoValidSize(),
    SizesNotKnown(),
    TensorTooLarge(),
)
MISFITS = frozenset({SizeOffLattice.code, DimensionsTied.code, NoValidSize.code})
"""Codes that say of a size that the network does not accept it."""
