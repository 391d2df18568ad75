"""A network that takes images: bytes as cameras give them, and all that makes an input of them in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from trtconv.core.dims import InputSpec
from trtconv.core.documents.images import HALVES, HEIGHT, WIDTH, ImageInput
from trtconv.core.errors import InputError
from trtconv.core.preprocessing import CHANNELS, PIXELS, PLANES, Preprocessing, Size
from trtconv.graph.interface import rename_inside
from trtconv.graph.model import OnnxModel
from trtconv.graph.planes import to_rgb
from trtconv.graph.resampling import resizing, surroundings

_LEAST_OPSET, _LEAST_OPSET_OF_PLANES = 10, 13
_MOST_WEIGHTS = 1 << 26
_FLOATS = ("float", "float16", "bfloat16", "double")
_AXES = {"nchw": (1, 2, 3), "nhwc": (3, 1, 2)}
"""Layout to the axes of channels, height and width."""
_GRAY = (0.299, 0.587, 0.114)
"""Of red, green and blue. Source: ITU-R BT.601, as Pillow has it."""


def take_images(model: OnnxModel, how: Preprocessing) -> ImageInput:
    """Lets an input take images, uint8 and (batch, height, width, channels), and preprocesses them in the network.

    Args:
        model: The model, as it was loaded; it is changed.
        how: What becomes of an image.

    Returns:
        What the input takes from now on.

    Raises:
        InputError: No input of the model can be such an image.
    """
    least = _LEAST_OPSET_OF_PLANES if how.pixels in PLANES else _LEAST_OPSET
    if model.opset < least:
        raise InputError(
            f"images need opset {least}, and {model.path} has {model.opset}",
            "Export the model again, or preprocess outside of the engine.",
        )
    spec = _input(model, how)
    size = _size(spec, how)
    images = how.images or ((size,) if size is not None else ())
    if size is not None and sum(size[0] * image[0] + size[1] * image[1] for image in images) > _MOST_WEIGHTS:
        raise InputError("images: the matrices that resize would be of gigabytes", "Name fewer or smaller sizes.")
    if how.pixels in PLANES and (not images or any(side % 2 for image in images for side in image)):
        raise InputError(
            f"images: {how.pixels} has half as many rows and columns of chroma, and needs sizes that are even",
            "Say image=HEIGHTxWIDTH.",
        )
    front = _Front(model, spec, how)
    inner = front.build(images, size)
    return ImageInput(spec.name, how.pixels, images, size, inner, chroma=front.chroma)


def _input(model: OnnxModel, how: Preprocessing) -> InputSpec:
    """Returns the input that is to take images."""
    for name, values in (("mean", how.mean), ("std", how.std)):
        count = CHANNELS[how.color]
        if len(values) not in (1, count):
            raise InputError(
                f"images: one in color={how.color} has {count} channels, and {name} {len(values)} values",
                f"Write {name}= with one value" + (f", or with {count}: one for each channel." if count > 1 else "."),
            )
    objections = {spec.name: _why_not(spec, how) for spec in model.inputs}
    if how.input and how.input not in objections:
        raise InputError(f"images: {model.path} has no input {how.input!r}", f"It has {', '.join(objections)}.")
    fitting = [spec for spec in model.inputs if objections[spec.name] is None and how.input in ("", spec.name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(spec.name for spec in fitting)
        raise InputError(f"images: {names} of {model.path} can all be images", "Say which: input=NAME.")
    reasons = "; ".join(f"{name} {reason}" for name, reason in objections.items() if how.input in ("", name))
    raise InputError(
        f"images: {model.path} has no input that can be an image in color={how.color}, layout={how.layout}: {reasons}",
        "Say color= and layout= as the network takes them.",
    )


def _why_not(spec: InputSpec, how: Preprocessing) -> str | None:
    """Returns why an input cannot be an image, as what follows its name; None where it can."""
    if spec.dtype not in _FLOATS:
        return f"is {spec.dtype}"
    if len(spec.dims) != 4:
        return f"has {len(spec.dims)} axes, and an image 4"
    channels, count = spec.dims[_AXES[how.layout][0]], CHANNELS[how.color]
    if isinstance(channels, int) and channels != count:
        return f"has {channels} channels, and an image {count}"
    return None


def _size(spec: InputSpec, how: Preprocessing) -> Size | None:
    """Returns the size that images are brought to; None where they stay as they are."""
    _, *axes = _AXES[how.layout]
    own = [spec.dims[axis] for axis in axes]
    size = how.sizes[0] if how.sizes else None
    if size is not None and any(isinstance(a, int) and a != b for a, b in zip(own, size, strict=True)):
        raise InputError(
            f"images: {spec.name} is {own[0]}x{own[1]}, and size= says {size[0]}x{size[1]}",
            "Leave out size=, which is then the network's; image= lists the sizes of images.",
        )
    if size is None and isinstance(own[0], int) and isinstance(own[1], int):
        return own[0], own[1]
    if size is None and any(isinstance(side, int) for side in own):
        raise InputError(
            f"images: {spec.name} is {own[0]}x{own[1]}, of which one is fixed", "Say size=HEIGHTxWIDTH as well."
        )
    return size


class _Front:
    """The nodes in front of an input, as they are written.

    Args:
        model: The model, which gets them.
        spec: The input.
        how: What becomes of an image.
    """

    def __init__(self, model: OnnxModel, spec: InputSpec, how: Preprocessing) -> None:
        self._model = model
        self._spec = spec
        self._how = how
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._pixels = ""
        self.chroma = model.fresh_name(f"{spec.name}_uv") if how.pixels in PLANES else None
        """The input that takes planes of chroma; None: there is none."""

    def build(self, images: Sequence[Size], size: Size | None) -> str:
        """Writes the nodes, gives the input its new type and shape, and returns what the network reads now.

        Args:
            images: The sizes that the input takes; empty: any.
            size: What they are brought to; None: they stay.
        """
        model, how, name = self._model, self._how, self._spec.name
        value = next(entry for entry in model.proto.graph.input if entry.name == name)
        if name in model.outputs:
            raise InputError(f"images: {name} is returned as it is", "Leave it out of the model's outputs.")
        inner = model.fresh_name(f"{name}_preprocessed")
        rename_inside(model, {name: inner})
        tensor = self._pixels = self._node("Cast", [name], to=TensorProto.FLOAT)
        if self.chroma is not None:
            tensor = self._of_planes(tensor, self.chroma)
        tensor = self._colored(tensor)
        resizes = size is not None and any(image != size for image in images)
        if how.layout == "nchw" or resizes:
            tensor = self._node("Transpose", [tensor], perm=[0, 3, 1, 2])
        if resizes and size is not None:
            tensor = self._resized(tensor, images, size)
            if how.layout == "nhwc":
                tensor = self._node("Transpose", [tensor], perm=[0, 2, 3, 1])
        self._normalized(tensor)
        # The last node makes what the network reads.
        kind = value.type.tensor_type.elem_type
        if kind == TensorProto.FLOAT:
            self._nodes[-1].output[0] = inner
        else:
            self._node("Cast", [self._nodes[-1].output[0]], inner, to=kind)
        self._declare(value, images)
        nodes = [*self._nodes, *model.proto.graph.node]
        del model.proto.graph.node[:]
        model.proto.graph.node.extend(nodes)
        model.proto.graph.initializer.extend(self._constants)
        model.touch()
        return inner

    def _of_planes(self, luma: str, chroma: str) -> str:
        """Returns red, green and blue of planes; four pixels share what is in the plane of chroma."""
        halves = self._node("Transpose", [self._node("Cast", [chroma], to=TensorProto.FLOAT)], perm=[0, 3, 1, 2])
        scales = self._constant(np.array([1, 1, 2, 2], np.float32), "scales")
        nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        wide = self._node("Resize", [halves, "", scales], **nearest)
        both = self._node("Concat", [luma, self._node("Transpose", [wide], perm=[0, 2, 3, 1])], axis=3)
        matrix, added = to_rgb(self._how.pixels)
        mixed = self._node("MatMul", [both, self._constant(matrix, "matrix")])
        return self._bounded(self._node("Add", [mixed, self._constant(added, "levels")]))

    def _bounded(self, name: str) -> str:
        above = self._node("Max", [name, self._constant(np.float32(0), "black")])
        return self._node("Min", [above, self._constant(np.float32(255), "white")])

    def _colored(self, name: str) -> str:
        """Brings the channels into the order of the network."""
        source, color = "rgb" if self.chroma is not None else self._how.pixels, self._how.color
        if color == "gray" and source != "gray":
            weights = np.zeros((PIXELS[source], 1), np.float32)
            for channel, weight in zip("rgb", _GRAY, strict=True):
                weights[source.index(channel), 0] = weight
            return self._node("MatMul", [name, self._constant(weights, "gray")])
        order = [0] * CHANNELS[color] if source == "gray" else [source.index(channel) for channel in color]
        if color == "gray" or order == list(range(PIXELS[source])):
            return name
        return self._node("Gather", [name, self._constant(np.array(order, np.int64), "channels")], axis=3)

    def _resized(self, name: str, images: Sequence[Size], size: Size) -> str:
        """Resizes (batch, channels, height, width): columns, then rows, as Pillow does."""
        rows, columns = zip(*(resizing(self._how, image, size) for image in images), strict=True)
        added = [surroundings(self._how, image, size) for image in images]
        if len(images) > 1:
            height, width = (self._side(axis) for axis in (1, 2))
            which = self._which(images, height, width)
            left = self._choose([matrix.T for matrix in columns], which, width, 0)
            right = self._choose(rows, which, height, 1)
        else:
            which = ""
            left, right = self._constant(columns[0].T, "columns"), self._constant(rows[0], "rows")
        tensor = self._node("MatMul", [right, self._node("MatMul", [name, left])])
        if self._how.filter == "bicubic":
            tensor = self._bounded(tensor)
        if added[0] is None:
            return tensor
        planes = np.stack([plane for plane in added if plane is not None])
        around = self._constant(planes if which else planes[0], "around")
        return self._node("Add", [tensor, self._node("Gather", [around, which], axis=0) if which else around])

    def _side(self, axis: int) -> str:
        """Returns the image's size along an axis, (1); TensorRT 8.6 asks nothing of bytes but to be cast."""
        shape = self._node("Shape", [self._pixels])
        return self._node("Gather", [shape, self._constant(np.array([axis], np.int64), "axis")], axis=0)

    def _which(self, images: Sequence[Size], height: str, width: str) -> str:
        """Returns the index of the size that the image has, a scalar."""
        equal = [
            self._node("Equal", [side, self._constant(np.array([image[axis] for image in images], np.int64), "sides")])
            for axis, side in enumerate((height, width))
        ]
        one = self._node("Cast", [self._node("And", equal)], to=TensorProto.INT64)
        numbers = self._constant(np.arange(len(images), dtype=np.int64), "numbers")
        return self._node("ReduceSum", [self._node("Mul", [one, numbers])], keepdims=0)

    def _choose(self, weights: Sequence[NDArray[Any]], which: str, length: str, axis: int) -> str:
        """Returns the weights of the size that the image has, of which `axis` is as long as its side."""
        longest = max(matrix.shape[axis] for matrix in weights)
        stacked = np.zeros((len(weights), *(longest if i == axis else n for i, n in enumerate(weights[0].shape))))
        for target, matrix in zip(stacked, weights, strict=True):
            target[tuple(slice(0, n) for n in matrix.shape)] = matrix
        choice = self._node("Gather", [self._constant(stacked.astype(np.float32), "weights"), which], axis=0)
        start, along = (self._constant(np.array([n], np.int64), "axis") for n in (0, axis))
        return self._node("Slice", [choice, start, length, along])

    def _normalized(self, name: str) -> None:
        """Writes the arithmetic of `precision.quantize.images.as_input`, in its order."""
        how = self._how
        shape = (-1, 1, 1) if how.layout == "nchw" else (-1,)
        for op, values, idle in (("Mul", (how.scale,), 1.0), ("Sub", how.mean, 0.0), ("Div", how.std, 1.0)):
            if set(values) != {idle}:
                constant = self._constant(np.array(values, np.float32).reshape(shape), op.lower())
                name = self._node(op, [name, constant])

    def _declare(self, value: onnx.ValueInfoProto, images: Sequence[Size]) -> None:
        dims = value.type.tensor_type.shape.dim
        _, *axes = _AXES[self._how.layout]
        own = [dims[0], *(dims[axis] for axis in axes)]
        copies = [onnx.TensorShapeProto.Dimension.FromString(dim.SerializeToString()) for dim in own]
        for axis, name in ((0, HEIGHT), (1, WIDTH)):
            sides = {image[axis] for image in images}
            if len(sides) == 1:
                copies[axis + 1].dim_value = sides.pop()
            elif sides:
                copies[axis + 1].dim_param = name
        del dims[:]
        dims.extend([*copies, onnx.TensorShapeProto.Dimension(dim_value=PIXELS[self._how.pixels])])
        value.type.tensor_type.elem_type = TensorProto.UINT8
        if self.chroma is not None:
            halves_of = [HALVES.get(dim.dim_param, dim.dim_value // 2) for dim in copies[1:]]
            batch = copies[0].dim_param or copies[0].dim_value
            halves = helper.make_tensor_value_info(self.chroma, TensorProto.UINT8, [batch, *halves_of, 2])
            self._model.proto.graph.input.append(halves)

    def _node(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        name = self._model.fresh_name(f"{self._spec.name}_image_{op.lower()}")
        self._nodes.append(helper.make_node(op, inputs, [output or name], name=name, **attributes))
        return output or name

    def _constant(self, values: Any, what: str) -> str:
        name = self._model.fresh_name(f"{self._spec.name}_image_{what}")
        self._constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name


def front_of(model: OnnxModel, image: ImageInput) -> onnx.ModelProto:
    """Returns what is in front of the network, as a model of its own: from bytes to float32."""
    graph, producers = model.proto.graph, model.main.producers
    last = image.network_input
    maker = graph.node[producers[last]]
    if maker.op_type == "Cast" and maker.input[0] != image.name:
        last = maker.input[0]  # What it is rounded to is the network's business.
    needed, queue = set[int](), [last]
    while queue:
        index = producers.get(queue.pop())
        if index is not None and index not in needed:
            needed.add(index)
            queue += graph.node[index].input
    nodes = [graph.node[index] for index in sorted(needed)]
    names = {name for node in nodes for name in node.input}
    result = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
    inputs = [value for value in graph.input if value.name in (image.name, image.chroma)]
    constants = [tensor for tensor in graph.initializer if tensor.name in names]
    front = helper.make_graph(nodes, "images", inputs, [result], constants)
    return helper.make_model(front, opset_imports=model.proto.opset_import, ir_version=model.proto.ir_version)
