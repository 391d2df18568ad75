"""References of NVIDIA's plugins beside independent implementations: ONNX Runtime's and ONNX's own operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from trtconv.plugins.registry import STANDARD, find

SEEDS = range(4)


def ort(text: str, **feeds: Any) -> list[Any]:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]> {text}')
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def reference(op: str, *inputs: Any, **attributes: Any) -> Any:
    found = find("TRT", op)
    assert found is not None
    results = found(inputs, attributes)
    return results if len(results) > 1 else results[0]


def boxes_of(random: np.random.Generator, *shape: int) -> Any:
    centre, size = random.random((*shape, 2)), random.uniform(0.05, 0.5, (*shape, 2))
    return np.concatenate([centre - size / 2, centre + size / 2], -1).astype(np.float32)


def selected(boxes: Any, scores: Any, iou: float, floor: float, most: int) -> list[tuple[int, int]]:
    """What ONNX's own operator keeps of one image, as (class, box), the best first."""
    text = """g (float[1,n,4] b, float[1,c,n] s, int64[1] m, float[1] i, float[1] f) => (int64[k,3] y)
              { y = NonMaxSuppression (b, s, m, i, f) }"""
    given = {"m": np.array([most]), "i": np.array([iou], np.float32), "f": np.array([floor], np.float32)}
    (rows,) = ort(text, b=boxes[None], s=scores.T[None], **given)
    return sorted(((int(kind), int(box)) for _, kind, box in rows), key=lambda each: -scores[each[1], each[0]])


def test_every_reference_that_is_named_is_there() -> None:
    for op in STANDARD:
        assert find("any.domain", op) is not None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("coding", [0, 1])
def test_efficient_nms_keeps_what_onnx_keeps(seed: int, coding: int) -> None:
    random = np.random.default_rng(seed)
    boxes, scores = boxes_of(random, 60), random.random((60, 3)).astype(np.float32)
    expected = selected(boxes, scores, 0.45, 0.3, 100)[:20]
    coded = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], -1) if coding else boxes
    options = {"score_threshold": 0.3, "iou_threshold": 0.45, "max_output_boxes": 20, "box_coding": coding}
    count, kept, values, kinds = reference("EfficientNMS_TRT", coded[None], scores[None], **options)
    assert count.item() == len(expected)
    assert kinds[0, : len(expected)].tolist() == [kind for kind, _ in expected]
    np.testing.assert_allclose(kept[0, : len(expected)], [boxes[box] for _, box in expected], atol=1e-6)
    np.testing.assert_allclose(values[0, : len(expected)], [scores[box, kind] for kind, box in expected])
    assert not kept[0, len(expected) :].any()


def test_efficient_nms_takes_logits_background_and_all_classes_together() -> None:
    random = np.random.default_rng(9)
    boxes, scores = boxes_of(random, 40), random.random((40, 4)).astype(np.float32)
    logits = np.log(scores / (1 - scores))
    options = {"score_threshold": 0.4, "iou_threshold": 0.5, "max_output_boxes": 30}
    plain = reference("EfficientNMS_TRT", boxes[None], scores[None], background_class=2, **options)
    of_logits = reference(
        "EfficientNMS_TRT", boxes[None], logits[None], background_class=2, score_activation=1, **options
    )
    for one, two in zip(plain, of_logits, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    assert 2 not in plain[3][0, : plain[0].item()]
    # Together, of overlapping boxes one is left whatever their classes are.
    same = np.repeat(boxes[None, :1], 5, 1)
    count = reference("EfficientNMS_TRT", same, scores[None, :5], class_agnostic=1, **options)[0]
    assert count.item() == 1


def test_efficient_nms_of_anchors() -> None:
    random = np.random.default_rng(2)
    raw, anchors = random.normal(0, 0.1, (1, 10, 4)).astype(np.float32), boxes_of(random, 1, 10)
    scores = np.linspace(0.5, 0.9, 10, dtype=np.float32)[None, :, None]
    options = {"score_threshold": 0.1, "iou_threshold": 0.99, "max_output_boxes": 10, "box_coding": 1}
    _, kept, _, _ = reference("EfficientNMS_TRT", raw, scores, anchors, **options)
    middle = raw[..., :2] * anchors[..., 2:] + anchors[..., :2]
    size = anchors[..., 2:] * np.exp(raw[..., 2:])
    expected = np.concatenate([middle - size / 2, middle + size / 2], -1)[0, ::-1]
    np.testing.assert_allclose(kept[0], expected, atol=1e-6)


def test_efficient_nms_for_onnx_pads_with_the_last_row() -> None:
    random = np.random.default_rng(3)
    boxes, scores = boxes_of(random, 30), random.random((30, 2)).astype(np.float32)
    options = {"score_threshold": 0.6, "iou_threshold": 0.3, "max_output_boxes_per_class": 50}
    rows = reference("EfficientNMS_ONNX_TRT", boxes[None], scores[None], **options)
    expected = [(0, kind, box) for kind, box in selected(boxes, scores, 0.3, 0.6, 50)]
    assert rows.shape == (50, 3)
    assert [tuple(row) for row in rows.tolist()] == expected + [expected[-1]] * (50 - len(expected))
    none = reference("EfficientNMS_ONNX_TRT", boxes[None], scores[None] * 0, **options)
    assert (none == -1).all()


def test_efficient_nms_for_tensorflow_limits_classes_and_clips() -> None:
    random = np.random.default_rng(4)
    boxes, scores = boxes_of(random, 50) * 2 - 0.5, random.random((50, 3)).astype(np.float32)
    options = {"max_output_size_per_class": 4, "max_total_size": 40, "iou_threshold": 0.5, "score_threshold": 0.2}
    count, kept, _, kinds = reference(
        "EfficientNMS_Explicit_TF_TRT", boxes[None, :, None], scores[None], clip_boxes=1, pad_per_class=1, **options
    )
    assert kept.shape == (1, 12, 4) and kept.min() >= 0 and kept.max() <= 1
    expected = [kind for kind, _ in selected(boxes, scores, 0.5, 0.2, 4)][:12]
    assert kinds[0, : count.item()].tolist() == expected
    assert reference("EfficientNMS_Implicit_TF_TRT", boxes[None, :, None], scores[None], **options)[0].shape == (1,)


@pytest.mark.parametrize("seed", SEEDS)
def test_batched_nms_keeps_what_onnx_keeps(seed: int) -> None:
    random = np.random.default_rng(seed)
    boxes, scores = boxes_of(random, 50), random.random((50, 3)).astype(np.float32)
    options = {"topK": 50, "keepTopK": 25, "scoreThreshold": 0.3, "iouThreshold": 0.4, "clipBoxes": 0}
    count, kept, values, kinds = reference("BatchedNMSDynamic_TRT", boxes[None, :, None], scores[None], **options)
    expected = selected(boxes, scores, 0.4, 0.3, 50)[:25]
    assert count.item() == len(expected)
    assert kinds[0, : len(expected)].tolist() == [kind for kind, _ in expected]
    np.testing.assert_allclose(kept[0, : len(expected)], [boxes[box] for _, box in expected])
    assert (kinds[0, len(expected) :] == -1).all() and not values[0, len(expected) :].any()


def test_batched_nms_in_pixels_counts_the_last_row_and_column() -> None:
    boxes = np.array([[[0, 0, 9, 9]], [[0, 0, 9, 4]]], np.float32)[None]
    scores = np.array([[[0.9], [0.8]]], np.float32)
    options = {"topK": 2, "keepTopK": 2, "scoreThreshold": 0.1, "clipBoxes": 0, "isNormalized": 0}
    # 10 x 5 of 10 x 10 is 0.5; without the pixel it would be 36 / 81.
    assert reference("BatchedNMSDynamic_TRT", boxes, scores, iouThreshold=0.49, **options)[0].item() == 1
    assert reference("BatchedNMSDynamic_TRT", boxes, scores, iouThreshold=0.51, **options)[0].item() == 2


@pytest.mark.parametrize("ratio", [0, 1, 2])
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("mode", [0, 1])
def test_roi_align_is_onnx_s(ratio: int, aligned: int, mode: int) -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal((2, 3, 14, 11)).astype(np.float32)
    rois = (boxes_of(random, 6) * np.array([22, 28, 22, 28])).astype(np.float32)
    index = random.integers(0, 2, 6)
    word, form = "avg" if mode else "max", "half_pixel" if aligned else "output_half_pixel"
    options = f'sampling_ratio={ratio}, spatial_scale=0.5, mode="{word}", coordinate_transformation_mode="{form}"'
    text = f"""g (float[2,3,14,11] x, float[6,4] r, int64[6] i) => (float[6,3,4,5] y)
              {{ y = RoiAlign <output_height=4, output_width=5, {options}> (x, r, i) }}"""
    (expected,) = ort(text, x=x, r=rois, i=index)
    given = {"output_height": 4, "output_width": 5, "sampling_ratio": ratio, "spatial_scale": 0.5}
    got = reference("ROIAlign_TRT", x, rois, index, mode=mode, coordinate_transformation_mode=aligned, **given)
    np.testing.assert_allclose(got, expected, atol=2e-6)


def test_pyramid_roi_align_takes_the_level_that_suits() -> None:
    random = np.random.default_rng(6)
    levels = [random.standard_normal((1, 2, 64 // n, 64 // n)).astype(np.float32) for n in (4, 8, 16, 32)]
    # Well inside, so that no sample is moved to the border.
    rois = np.array([[[20, 20, 28, 28], [18, 16, 40, 38], [10, 10, 54, 54]]], np.float32)
    options = {"pooled_size": 3, "image_size": [64, 64], "fpn_scale": 12, "sampling_ratio": 2}
    got = reference("PyramidROIAlign_TRT", rois, *levels, **options)
    # Areas 64, 484 and 1936: beyond 36, 144 and 576 the next level counts.
    for number, level in enumerate((1, 2, 3)):
        one = reference(
            "ROIAlign_TRT",
            levels[level],
            rois[0, number : number + 1],
            np.zeros(1, int),
            output_height=3,
            output_width=3,
            sampling_ratio=2,
            spatial_scale=levels[level].shape[-1] / 64,
        )
        np.testing.assert_allclose(got[0, number], one[0], atol=1e-5)


@pytest.mark.parametrize("crop", [(1, 1), (3, 4), (6, 2)])
def test_crop_and_resize_is_tensorflow_s(crop: tuple[int, int]) -> None:
    random = np.random.default_rng(7)
    x, rois = random.standard_normal((2, 3, 9, 12)).astype(np.float32), boxes_of(random, 2, 4)
    text = """g (float[2,3,9,12] x, float[8,4] r, int32[8] i, int32[2] s) => (float[8,3,h,w] y)
              { y = com.microsoft.CropAndResize (x, r, i, s) }"""
    (expected,) = ort(
        text, x=x, r=rois.reshape(-1, 4), i=np.repeat(np.arange(2, dtype=np.int32), 4), s=np.array(crop, np.int32)
    )
    got = reference("CropAndResizeDynamic", x, rois, crop_height=crop[0], crop_width=crop[1])
    np.testing.assert_allclose(got.reshape(expected.shape), expected, atol=1e-5)


def test_deformable_attention_is_a_weighted_grid_sample() -> None:
    random = np.random.default_rng(8)
    shapes = np.array([[6, 5], [3, 4]], np.int32)
    starts = np.array([0, 30], np.int32)
    value = random.standard_normal((2, 42, 3, 4)).astype(np.float32)
    places = random.uniform(-0.1, 1.1, (2, 7, 3, 2, 5, 2)).astype(np.float32)
    weights = random.random((2, 7, 3, 2, 5)).astype(np.float32)
    expected = np.zeros((2, 7, 3, 4))
    text = "g (float[2,4,h,w] x, float[2,7,5,2] g) => (float[2,4,7,5] y) { y = GridSample <align_corners=0> (x, g) }"
    for level, ((height, width), start) in enumerate(zip(shapes, starts, strict=True)):
        for head in range(3):
            picture = value[:, start : start + height * width, head].transpose(0, 2, 1).reshape(2, 4, height, width)
            (sampled,) = ort(text, x=picture, g=places[:, :, head, level] * 2 - 1)
            expected[:, :, head] += np.einsum("bcqp,bqp->bqc", sampled, weights[:, :, head, level])
    got = reference("MultiscaleDeformableAttnPlugin_TRT", value, shapes, starts, places, weights)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_normalizations_are_onnx_s() -> None:
    random = np.random.default_rng(10)
    x = (random.standard_normal((2, 6, 5, 4)) * 3 + 1).astype(np.float32)
    scale, bias = random.uniform(0.5, 2, 6).astype(np.float32), random.standard_normal(6).astype(np.float32)
    text = """g (float[2,6,5,4] x, float[6] s, float[6] b) => (float[2,6,5,4] y)
              { y = InstanceNormalization <epsilon=0.001> (x, s, b) }"""
    (expected,) = ort(text, x=x, s=scale, b=bias)
    got = reference("InstanceNormalization_TRT", x, scales=scale.tolist(), bias=bias.tolist(), epsilon=0.001)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    leaky = reference("InstanceNormalization_TRT", x, scales=scale, bias=bias, epsilon=0.001, relu=1, alpha=0.1)
    np.testing.assert_allclose(leaky, np.where(expected < 0, expected * 0.1, expected), atol=1e-5)
    for group in range(3):
        own = x[:, 2 * group : 2 * group + 2].reshape(2, -1)
        normal = (own - own.mean(1, keepdims=True)) / np.sqrt(own.var(1, keepdims=True) + 0.001)
        part = slice(2 * group, 2 * group + 2)
        wanted = normal.reshape(2, 2, 5, 4) * scale[part, None, None] + bias[part, None, None]
        got = reference("GroupNormalizationPlugin", x, scale.reshape(1, 6, 1, 1), bias, num_groups=3, eps=0.001)
        np.testing.assert_allclose(got[:, part], wanted, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_scatters_are_onnx_s(reduction: str) -> None:
    random = np.random.default_rng(11)
    data, updates = random.standard_normal((5, 4)).astype(np.float32), random.standard_normal((3, 4)).astype(np.float32)
    if reduction == "none":
        indices = np.stack([random.permutation(5)[:3] for _ in range(4)], 1)
    else:
        indices = random.integers(-5, 5, (3, 4))
    text = f"""g (float[5,4] d, int64[3,4] i, float[3,4] u) => (float[5,4] y)
              {{ y = ScatterElements <axis=0, reduction="{reduction}"> (d, i, u) }}"""
    (expected,) = ort(text, d=data, i=indices, u=updates)
    word = {"add": "sum"}.get(reduction, reduction)
    got = reference("ScatterElements", data, indices, updates, axis=0, reduction=word)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    rows = random.permutation(5)[:3, None]
    (expected,) = ort(
        "g (float[5,4] d, int64[3,1] i, float[3,4] u) => (float[5,4] y) { y = ScatterND (d, i, u) }",
        d=data,
        i=rows,
        u=updates,
    )
    np.testing.assert_array_equal(reference("ScatterND", data, rows, updates), expected)


@pytest.mark.parametrize(("group", "parts"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_deformable_convolution_is_onnx_s(group: int, parts: int) -> None:
    random = np.random.default_rng(12)
    x, weight = random.standard_normal((2, 4, 7, 6)), random.standard_normal((4, 4 // group, 3, 3))
    offset, mask = random.normal(0, 0.8, (2, parts * 18, 7, 6)), random.random((2, parts * 9, 7, 6))
    bias = random.standard_normal(4)
    arrays = [each.astype(np.float32) for each in (x, weight, offset, bias, mask)]
    node = onnx.helper.make_node(
        "DeformConv",
        ["x", "w", "o", "b", "m"],
        ["y"],
        pads=[1] * 4,
        group=group,
        offset_group=parts,
        kernel_shape=[3, 3],
    )
    (expected,) = ReferenceEvaluator(node).run(None, dict(zip("xwobm", arrays, strict=True)))
    x32, w32, o32, b32, m32 = arrays
    got = reference(
        "ModulatedDeformConv2d", x32, o32, m32, w32, b32, padding=[1, 1], group=group, deformable_group=parts
    )
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_deformable_convolution_strides_along_the_width_first() -> None:
    x, weight = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6), np.ones((1, 1, 1, 1), np.float32)
    still, full = np.zeros((1, 2, 4, 3), np.float32), np.ones((1, 1, 4, 3), np.float32)
    got = reference("ModulatedDeformConv2d", x, still, full, weight, stride=[2, 1])
    np.testing.assert_array_equal(got, x[:, :, :, ::2])


def test_disentangled_attention_near_and_far() -> None:
    random = np.random.default_rng(13)
    content, there, back = (random.standard_normal((2, 12, n)).astype(np.float32) for n in (12, 8, 8))
    got = reference("DisentangledAttention_TRT", content, there, back, span=4, factor=0.25)
    for row in range(12):
        for column in range(12):
            distance = row - column
            if abs(distance) > 2:
                # Of length 12 and span 4: beyond 2, the bucket grows from 2 by the logarithm, to 3 at 11.
                bucket = int(np.ceil(np.log(abs(distance) / 2) / np.log(11 / 2) * (1 - 1e-7) * 1)) + 2
                distance = int(np.sign(distance)) * bucket
            at = min(max(distance + 4, 0), 7)
            expected = (content[:, row, column] + there[:, row, at] + back[:, column, at]) * 0.25
            np.testing.assert_allclose(got[:, row, column], expected, atol=1e-6)


def test_anchors_of_a_small_map() -> None:
    options = {
        "numLayers": 2,
        "minSize": 0.2,
        "maxSize": 0.8,
        "aspectRatios": [1.0, 4.0, 0.25],
        "variance": [0.1, 0.1, 0.2, 0.2],
    }
    first, second = reference("GridAnchor_TRT", featureMapShapes=[2, 1], **options)
    assert first.shape == (1, 2, 2 * 2 * 3 * 4, 1) and second.shape == (1, 2, 4 * 4, 1)
    # Centres at one quarter; the first anchor is 0.1 wide, the second 0.2 * 2 by 0.2 / 2.
    np.testing.assert_allclose(first[0, 0, :8, 0], [0.2, 0.2, 0.3, 0.3, 0.05, 0.2, 0.45, 0.3], atol=1e-6)
    half = np.sqrt(0.8) / 2
    np.testing.assert_allclose(second[0, 0, -4:, 0], [0.5 - half, 0.5 - half, 0.5 + half, 0.5 + half], atol=1e-6)
    np.testing.assert_allclose(second[0, 1, :4, 0], options["variance"])
    wide, _ = reference("GridAnchorRect_TRT", featureMapShapes=[1, 2, 1, 1], **options)
    np.testing.assert_allclose(wide[0, 0, :4, 0], [0.2, 0.45, 0.3, 0.55], atol=1e-6)


def test_prior_boxes_of_one_place() -> None:
    features, picture = np.zeros((1, 1, 1, 1), np.float32), np.zeros((1, 3, 100, 200), np.float32)
    options = {"minSize": [20.0], "maxSize": [80.0], "aspectRatios": [1.0, 4.0], "flip": 1, "variance": [1, 2, 3, 4]}
    got = reference("PriorBox_TRT", features, picture, **options)
    assert got.shape == (1, 2, 4 * 4, 1)
    sizes = [(20, 20), (40, 40), (40, 10), (10, 40)]
    expected = [[0.5 - w / 400, 0.5 - h / 200, 0.5 + w / 400, 0.5 + h / 200] for w, h in sizes]
    np.testing.assert_allclose(got[0, 0, :, 0].reshape(-1, 4), expected, atol=1e-6)
    np.testing.assert_allclose(got[0, 1, :4, 0], [1, 2, 3, 4])
