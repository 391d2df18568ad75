"""Random configurations of NVIDIA's standard plugins, as nodes of ONNX models with inputs that suit them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Random = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Case:
    """A node.

    Args:
        op: Its operator, which is the plugin's name.
        inputs: Values that come at run time.
        constants: Values that are in the model, behind the inputs.
        attributes: Its attributes.
        outputs: How many it has.
    """

    op: str
    inputs: tuple[Array, ...]
    constants: tuple[Array, ...] = ()
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: int = 1


def _boxes(random: Random, *shape: int) -> Array:
    centre, size = random.random((*shape, 2)), random.uniform(0.05, 0.5, (*shape, 2))
    return np.concatenate([centre - size / 2, centre + size / 2], -1).astype(np.float32)


def _scores(random: Random, *shape: int) -> Array:
    """Returns scores of which no two are equal."""
    count = int(np.prod(shape))
    return (random.permutation(count).reshape(shape).astype(np.float32) + 0.5) / count


def efficient_nms(random: Random, number: int) -> Case:
    """Two inputs or, each third time, anchors too; both codings, both activations."""
    batch, count, classes = int(random.integers(1, 4)), int(random.integers(20, 200)), int(random.integers(1, 6))
    coding, sigmoid, anchored = number % 2, number // 2 % 2, number % 3 == 2
    boxes = _boxes(random, batch, count)
    if coding:
        boxes = np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], -1)
    if number % 4 == 3 and not anchored:
        boxes = np.repeat(boxes[:, :, None], classes, 2) + random.normal(0, 0.02, (batch, count, classes, 4))
    scores = _scores(random, batch, count, classes)
    inputs = [boxes.astype(np.float32), np.log(scores / (1 - scores)) if sigmoid else scores]
    if anchored:
        inputs.append(_boxes(random, 1, count))
        inputs[0] = random.normal(0, 0.1, inputs[0].shape).astype(np.float32)
    attributes = {
        "score_threshold": float(random.uniform(0.05, 0.5)),
        "iou_threshold": float(random.uniform(0.2, 0.8)),
        "max_output_boxes": int(random.integers(5, 60)),
        "background_class": int(random.integers(-1, classes)),
        "score_activation": sigmoid,
        "box_coding": coding,
    }
    return Case("EfficientNMS_TRT", tuple(inputs), attributes=attributes, outputs=4)


def efficient_nms_onnx(random: Random, number: int) -> Case:
    """A batch of 1: beyond, the order of the rows is left to chance."""
    count, classes = int(random.integers(20, 120)), int(random.integers(1, 5))
    attributes = {
        "score_threshold": float(random.uniform(0.05, 0.5)),
        "iou_threshold": float(random.uniform(0.2, 0.8)),
        "max_output_boxes_per_class": int(random.integers(3, 20)),
        "center_point_box": number % 2,
    }
    inputs = _boxes(random, 1, count), _scores(random, 1, count, classes)
    return Case("EfficientNMS_ONNX_TRT", inputs, attributes=attributes)


def _tensorflow(op: str) -> Callable[[Random, int], Case]:
    def make(random: Random, number: int) -> Case:
        batch, count, classes = int(random.integers(1, 3)), int(random.integers(20, 120)), int(random.integers(1, 5))
        batch = 1 if "Implicit" in op else batch
        attributes = {
            "max_output_size_per_class": int(random.integers(2, 20)),
            "max_total_size": int(random.integers(5, 40)),
            "iou_threshold": float(random.uniform(0.2, 0.8)),
            "score_threshold": float(random.uniform(0.05, 0.5)),
            "pad_per_class": number % 2,
            "clip_boxes": number // 2 % 2,
        }
        inputs = _boxes(random, batch, count, 1), _scores(random, batch, count, classes)
        return Case(op, inputs, attributes=attributes, outputs=4)

    return make


def _batched_nms(op: str) -> Callable[[Random, int], Case]:
    def make(random: Random, number: int) -> Case:
        batch, count, classes = int(random.integers(1, 4)), int(random.integers(20, 150)), int(random.integers(1, 6))
        shared, normal = number % 2, number // 2 % 2
        boxes = _boxes(random, batch, count, 1 if shared else classes) * (1 if normal else 300)
        # Candidates are fewer than the boxes, and enough for what is kept.
        keep = int(random.integers(5, min(40, count)))
        attributes = {
            "shareLocation": shared,
            "backgroundLabelId": int(random.integers(-1, classes)),
            "numClasses": classes,
            "topK": min(count - 1, keep + int(random.integers(0, 60))),
            "keepTopK": keep,
            "scoreThreshold": float(random.uniform(0.05, 0.5)),
            "iouThreshold": float(random.uniform(0.2, 0.8)),
            "isNormalized": normal,
            "clipBoxes": normal * int(random.integers(0, 2)),
            "caffeSemantics": int(random.integers(0, 2)),
        }
        inputs = boxes.astype(np.float32), _scores(random, batch, count, classes)
        return Case(op, inputs, attributes=attributes, outputs=4)

    return make


def roi_align(random: Random, number: int) -> Case:
    """Both modes, both transformations, a fixed and a free number of samples."""
    batch, channels, height, width = 2, int(random.integers(1, 5)), *(int(n) for n in random.integers(6, 24, 2))
    count, scale = int(random.integers(1, 9)), float(random.choice([0.25, 0.5, 1.0]))
    extents = np.array([width, height] * 2) / scale
    rois = (_boxes(random, count) * extents).astype(np.float32)
    attributes = {
        "output_height": int(random.integers(1, 6)),
        "output_width": int(random.integers(1, 6)),
        "sampling_ratio": int(random.integers(0, 4)),
        "spatial_scale": scale,
        "mode": number % 2,
        "coordinate_transformation_mode": number // 2 % 2,
    }
    features = random.standard_normal((batch, channels, height, width)).astype(np.float32)
    chosen = random.integers(0, batch, count).astype(np.int32)
    return Case("ROIAlign_TRT", (features, rois), (chosen,), attributes)


def pyramid_roi_align(random: Random, number: int) -> Case:
    """Four levels, rois in pixels or parts of the picture, every transformation."""
    batch, channels, count, side = int(random.integers(1, 3)), int(random.integers(1, 4)), 6, 256
    absolute = number % 2
    rois = _boxes(random, batch, count) * (side if absolute else 1)
    levels = [random.standard_normal((batch, channels, side // n, side // n)) for n in (4, 8, 16, 32)]
    attributes = {
        "pooled_size": int(random.integers(2, 8)),
        "image_size": [side, side],
        "fpn_scale": int(random.integers(20, 120)),
        "roi_coords_absolute": absolute,
        "roi_coords_swap": number // 2 % 2,
        "roi_coords_plusone": number // 4 % 2,
        "roi_coords_transform": int(random.integers(0, 3)),
        "sampling_ratio": int(random.integers(0, 3)),
        "legacy": int(number == 9),
    }
    inputs = tuple(each.astype(np.float32) for each in (rois, *levels))
    return Case("PyramidROIAlign_TRT", inputs, attributes=attributes)


def _crop_and_resize(op: str) -> Callable[[Random, int], Case]:
    def make(random: Random, number: int) -> Case:
        batch, channels, height, width = (int(n) for n in random.integers((1, 1, 5, 5), (3, 4, 20, 20)))
        rois = _boxes(random, batch, int(random.integers(1, 6)))
        attributes = {"crop_width": int(random.integers(1, 8)), "crop_height": int(random.integers(1, 8))}
        pictures = random.standard_normal((batch, channels, height, width)).astype(np.float32)
        return Case(op, (pictures, rois), attributes=attributes)

    return make


def deformable_attention(random: Random, number: int) -> Case:
    """One to four levels, some places outside."""
    batch, queries, heads, points = (int(n) for n in random.integers((1, 2, 1, 1), (3, 20, 5, 5)))
    channels = int(random.choice([4, 8, 16, 32]))
    shapes = random.integers(2, 12, (int(random.integers(1, 5)), 2)).astype(np.int32)
    areas = shapes.prod(1)
    starts = (np.cumsum(areas) - areas).astype(np.int32)
    value = random.standard_normal((batch, int(areas.sum()), heads, channels))
    places = random.uniform(-0.1, 1.1, (batch, queries, heads, len(shapes), points, 2))
    weights = random.random((batch, queries, heads, len(shapes), points))
    # The plugin takes the two constants between the others.
    inputs = (value.astype(np.float32), places.astype(np.float32), weights.astype(np.float32))
    return Case("MultiscaleDeformableAttnPlugin_TRT", inputs, (shapes, starts))


def instance_normalization(random: Random, number: int) -> Case:
    """Pictures."""
    batch, channels, height, width = (int(n) for n in random.integers((1, 1, 3, 3), (4, 17, 20, 20)))
    attributes = {
        "epsilon": float(random.choice([1e-5, 1e-3])),
        "scales": random.uniform(0.5, 2, channels).tolist(),
        "bias": random.standard_normal(channels).tolist(),
        "relu": number % 2,
        "alpha": float(random.uniform(0, 0.3)),
    }
    x = random.standard_normal((batch, channels, height, width)) * 3 + 1
    return Case("InstanceNormalization_TRT", (x.astype(np.float32),), attributes=attributes)


def group_normalization(random: Random, number: int) -> Case:
    """Pictures, one group to as many as there are channels."""
    groups, each = int(random.choice([1, 2, 4])), int(random.integers(1, 5))
    channels = groups * each
    x = random.standard_normal((int(random.integers(1, 4)), channels, *random.integers(3, 16, 2))) * 2 + 1
    scale, bias = random.uniform(0.5, 2, (1, channels, 1, 1)), random.standard_normal((1, channels, 1, 1))
    attributes = {"eps": float(random.choice([1e-5, 1e-3])), "num_groups": groups}
    constants = scale.astype(np.float32), bias.astype(np.float32)
    return Case("GroupNormalizationPlugin", (x.astype(np.float32),), constants, attributes)


def deformable_convolution(random: Random, number: int) -> Case:
    """Groups, deformable groups, a bias each second time; stride and padding differ by axis."""
    group, parts = int(random.choice([1, 2])), int(random.choice([1, 2]))
    channels, out, kernel = 4, 4 * int(random.integers(1, 3)), int(random.choice([1, 3]))
    strides, pads, dilation = random.integers(1, 3, 2).tolist(), random.integers(0, 2, 2).tolist(), [1, 1]
    batch, height, width = (int(n) for n in random.integers((1, 6, 6), (3, 14, 14)))
    # The first number is along the width.
    oh, ow = ((n + 2 * pads[i] - kernel) // strides[i] + 1 for n, i in ((height, 1), (width, 0)))
    x = random.standard_normal((batch, channels, height, width))
    offset = random.normal(0, 0.7, (batch, parts * kernel * kernel * 2, oh, ow))
    mask = random.random((batch, parts * kernel * kernel, oh, ow))
    weight = random.normal(0, 0.3, (out, channels // group, kernel, kernel))
    bias = (random.standard_normal(out),) if number % 2 else ()
    attributes = {"stride": strides, "padding": pads, "dilation": dilation, "group": group, "deformable_group": parts}
    inputs = tuple(each.astype(np.float32) for each in (x, offset, mask))
    return Case("ModulatedDeformConv2d", inputs, tuple(e.astype(np.float32) for e in (weight, *bias)), attributes)


def disentangled_attention(random: Random, number: int) -> Case:
    """Sequences longer than the span, of as many positions as the plugin takes."""
    heads, length, span = (
        int(random.integers(1, 4)),
        int(random.choice([64, 128, 192])),
        int(random.choice([4, 8, 16])),
    )
    shapes = (heads, length, length), (heads, length, 2 * span), (heads, length, 2 * span)
    inputs = tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)
    return Case(
        "DisentangledAttention_TRT", inputs, attributes={"span": span, "factor": float(random.uniform(0.05, 0.5))}
    )


def _grid_anchor(op: str) -> Callable[[Random, int], Case]:
    def make(random: Random, number: int) -> Case:
        layers = int(random.integers(2, 7))
        sides = random.integers(1, 12, layers * (2 if "Rect" in op else 1)).tolist()
        attributes = {
            "numLayers": layers,
            "minSize": float(random.uniform(0.1, 0.3)),
            "maxSize": float(random.uniform(0.6, 0.95)),
            "aspectRatios": [1.0, 2.0, 0.5, 3.0, 0.33][: int(random.integers(3, 6))],
            "variance": [0.1, 0.1, 0.2, 0.2],
            "featureMapShapes": sides,
        }
        return Case(op, (), attributes=attributes, outputs=layers)

    return make


def prior_box(random: Random, number: int) -> Case:
    """One picture; steps given or not."""
    height, width = (int(n) for n in random.integers(2, 8, 2))
    least = sorted(random.uniform(10, 60, int(random.integers(1, 3))).tolist())
    attributes = {
        "minSize": least,
        "maxSize": [size + float(random.uniform(5, 60)) for size in least],
        "aspectRatios": [2.0, 3.0][: int(random.integers(1, 3))],
        "flip": number % 2,
        "clip": number // 2 % 2,
        "variance": [0.1, 0.1, 0.2, 0.2],
        "imgH": 0,
        "imgW": 0,
        "stepH": float(16 * (number % 3 == 0)),
        "stepW": float(24 * (number % 3 == 0)),
        "offset": float(random.choice([0.5, 0.25])),
    }
    features = random.standard_normal((1, 3, height, width)).astype(np.float32)
    picture = random.standard_normal((1, 3, height * 16, width * 20)).astype(np.float32)
    return Case("PriorBox_TRT", (features, picture), attributes=attributes)


def scatter_nd(random: Random, number: int) -> Case:
    """Elements, rows or planes of a volume; no place twice."""
    shape = tuple(int(n) for n in random.integers(2, 9, 3))
    depth = number % 3 + 1
    places = np.argwhere(np.ones(shape[:depth]))
    indices = random.permutation(places)[: int(random.integers(1, len(places) + 1))].astype(np.int32)
    data, updates = (
        random.standard_normal(each).astype(np.float32) for each in (shape, indices.shape[:1] + shape[depth:])
    )
    return Case("ScatterND", (data, indices, updates))


def scatter_elements(random: Random, number: int) -> Case:
    """Each axis; no place twice."""
    shape, axis = tuple(int(n) for n in random.integers(2, 9, 3)), number % 3
    order = random.random((*shape[:axis], *shape[axis + 1 :], shape[axis])).argsort(-1)
    chosen = order[..., : int(random.integers(1, shape[axis] + 1))]
    indices = np.ascontiguousarray(np.moveaxis(chosen, -1, axis), np.int32)
    data, updates = (random.standard_normal(each).astype(np.float32) for each in (shape, indices.shape))
    return Case("ScatterElements", (data, indices, updates), attributes={"axis": axis})


CASES: Mapping[str, Callable[[Random, int], Case]] = {
    "EfficientNMS_TRT": efficient_nms,
    "EfficientNMS_ONNX_TRT": efficient_nms_onnx,
    **{name: _tensorflow(name) for name in ("EfficientNMS_Explicit_TF_TRT", "EfficientNMS_Implicit_TF_TRT")},
    **{name: _batched_nms(name) for name in ("BatchedNMS_TRT", "BatchedNMSDynamic_TRT")},
    "ROIAlign_TRT": roi_align,
    "PyramidROIAlign_TRT": pyramid_roi_align,
    **{name: _crop_and_resize(name) for name in ("CropAndResize", "CropAndResizeDynamic")},
    "MultiscaleDeformableAttnPlugin_TRT": deformable_attention,
    "InstanceNormalization_TRT": instance_normalization,
    "GroupNormalizationPlugin": group_normalization,
    "ModulatedDeformConv2d": deformable_convolution,
    "DisentangledAttention_TRT": disentangled_attention,
    **{name: _grid_anchor(name) for name in ("GridAnchor_TRT", "GridAnchorRect_TRT")},
    "PriorBox_TRT": prior_box,
    # The parser of 8.6 makes layers of its own of these two, whatever the node's domain is.
    "ScatterND": scatter_nd,
    "ScatterElements": scatter_elements,
}
"""Every plugin of the list, with what makes a configuration of it."""
ORDER = {"MultiscaleDeformableAttnPlugin_TRT": (0, 3, 4, 1, 2)}
"""In which order a node takes inputs and constants; the others take them as they are."""


def _short_sequence(random: Random, number: int) -> Case:
    """A sequence that ends within a tile of the plugin."""
    shapes = (2, 24, 24), (2, 24, 8), (2, 24, 8)
    inputs = tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)
    return Case("DisentangledAttention_TRT", inputs, attributes={"span": 4, "factor": 0.2})


def _several_images(random: Random, number: int) -> Case:
    """Two images for the plugin that has memory for one."""
    case = CASES["EfficientNMS_Implicit_TF_TRT"](random, number)
    inputs = _boxes(random, 2, 100, 1), _scores(random, 2, 100, 4)
    return dataclasses.replace(case, inputs=inputs)


def _across_classes(random: Random, number: int) -> Case:
    """Boxes of several classes, which suppress one another."""
    inputs = _boxes(random, 1, 80), _scores(random, 1, 80, 4)
    attributes = {**efficient_nms(random, 0).attributes, "background_class": -1, "class_agnostic": 1}
    return Case("EfficientNMS_TRT", inputs, attributes=attributes, outputs=4)


def _too_many_candidates(random: Random, number: int) -> Case:
    """More candidates asked for than there are boxes, each class with boxes of its own."""
    case = CASES["BatchedNMSDynamic_TRT"](random, 4)
    inputs = (_boxes(random, 3, 20, 4) * 300).astype(np.float32), _scores(random, 3, 20, 4)
    changed = {"numClasses": 4, "topK": 55, "keepTopK": 25, "shareLocation": 0, "isNormalized": 0, "clipBoxes": 0}
    return dataclasses.replace(case, inputs=inputs, attributes={**case.attributes, **changed, "backgroundLabelId": 2})


FAULTS = {
    "DisentangledAttention_TRT": _short_sequence,
    "EfficientNMS_Implicit_TF_TRT": _several_images,
    "EfficientNMS_TRT": _across_classes,
    "BatchedNMSDynamic_TRT": _too_many_candidates,
}
"""What these plugins compute wrongly (trtconv/rules/plugin_limits.py), and a build has to say."""
