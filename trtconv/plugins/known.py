"""What is recorded of NVIDIA's standard plugins, for where no TensorRT is here to be asked.

Source: the creators in NVIDIA/TensorRT, releases 8.6, 10.13 and 11.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.frozen import frozen
from trtconv.core.target import Target


@frozen
class KnownPlugin:
    """A standard plugin.

    Args:
        fields: Names of its fields, which nodes have as attributes; None where they are not recorded.
        required: Those without which it is not made.
        inputs: The least and the most number of its inputs; None where that is not recorded.
        until: The first version that has it no more; None: all that are known have it.
    """

    fields: frozenset[str] | None = None
    required: frozenset[str] = frozenset()
    inputs: tuple[int, int] | None = None
    until: tuple[int, ...] | None = None

    def is_in(self, target: Target) -> bool:
        """Whether a target has it; where its version is not known, any version counts."""
        if target.family != "tensorrt":
            return False
        version = target.version
        return version is None or self.until is None or version < self.until


def _plugin(fields: str, inputs: tuple[int, int], required: str = "", until: int | None = None) -> KnownPlugin:
    ends = None if until is None else (until,)
    return KnownPlugin(frozenset(fields.split()), frozenset(required.split()), inputs, ends)


_EFFICIENT = "score_threshold iou_threshold max_output_boxes background_class score_activation box_coding"
_TENSORFLOW = "max_output_size_per_class max_total_size iou_threshold score_threshold pad_per_class clip_boxes"
_BATCHED = "shareLocation backgroundLabelId numClasses topK keepTopK scoreThreshold iouThreshold"
_CONVOLUTION = "stride padding dilation group deformable_group"
_ANCHORS = "minSize maxSize aspectRatios featureMapShapes variance numLayers"

KNOWN: Mapping[str, KnownPlugin] = {
    "EfficientNMS_TRT": _plugin(f"{_EFFICIENT} class_agnostic", (2, 3), _EFFICIENT),
    "EfficientNMS_ONNX_TRT": _plugin(
        "score_threshold iou_threshold max_output_boxes_per_class center_point_box", (2, 2), until=11
    ),
    "EfficientNMS_Explicit_TF_TRT": _plugin(_TENSORFLOW, (2, 2)),
    "EfficientNMS_Implicit_TF_TRT": _plugin(_TENSORFLOW, (2, 2)),
    **{
        name: _plugin(f"{_BATCHED} isNormalized clipBoxes scoreBits caffeSemantics", (2, 2), _BATCHED, until=11)
        for name in ("BatchedNMS_TRT", "BatchedNMSDynamic_TRT")
    },
    "ROIAlign_TRT": _plugin(
        "coordinate_transformation_mode mode output_height output_width sampling_ratio spatial_scale", (3, 3)
    ),
    "PyramidROIAlign_TRT": _plugin(
        "fpn_scale pooled_size image_size roi_coords_absolute roi_coords_swap roi_coords_plusone roi_coords_transform "
        "sampling_ratio legacy",
        (5, 5),
    ),
    "CropAndResize": _plugin("crop_width crop_height", (2, 2), until=11),
    "CropAndResizeDynamic": _plugin("crop_width crop_height", (2, 2)),
    "MultiscaleDeformableAttnPlugin_TRT": _plugin("", (5, 5)),
    "InstanceNormalization_TRT": _plugin("epsilon scales bias relu alpha", (1, 1)),
    "GroupNormalizationPlugin": _plugin("eps num_groups", (3, 3)),
    "ModulatedDeformConv2d": _plugin(_CONVOLUTION, (4, 5)),
    "DisentangledAttention_TRT": _plugin("span factor", (3, 3)),
    **{name: _plugin(_ANCHORS, (0, 0)) for name in ("GridAnchor_TRT", "GridAnchorRect_TRT")},
    "PriorBox_TRT": _plugin(
        "minSize maxSize aspectRatios flip clip variance imgH imgW stepH stepW offset", (2, 2), "minSize"
    ),
    **{
        name: KnownPlugin()
        for name in (
            *("CustomEmbLayerNormPluginDynamic", "CustomQKVToContextPluginDynamic", "CustomSkipLayerNormPluginDynamic"),
            "CustomFCPluginDynamic",
            *("DecodeBbox3DPlugin", "DetectionLayer_TRT", "FlattenConcat_TRT", "GenerateDetection_TRT"),
            *("MultilevelCropAndResize_TRT", "MultilevelProposeROI_TRT", "PillarScatterPlugin", "ProposalLayer_TRT"),
            *("Region_TRT", "Reorg_TRT", "ResizeNearest_TRT", "RPROI_TRT", "VoxelGeneratorPlugin"),
        )
    },
    **{
        name: KnownPlugin(until=(11,))
        for name in (
            *("BatchTilePlugin_TRT", "Clip_TRT", "CoordConvAC", "LReLU_TRT", "NMS_TRT", "NMSDynamic_TRT"),
            *("Normalize_TRT", "Proposal", "ProposalDynamic", "SpecialSlice_TRT", "CustomGeluPluginDynamic"),
        )
    },
}
"""Name of each standard plugin that no operator of ONNX is called like."""

OF_PARSER = ("plugin_version", "plugin_namespace", "plugin_id")
"""Attributes that say which plugin is meant, and are no fields of it."""
