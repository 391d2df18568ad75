"""What is read of each kind of layer, by name: the one place that touches TensorRT's layer interfaces.

Tests hold every name in it to the recorded surface of each TensorRT that has the kind of layer.
"""

from __future__ import annotations

from trtconv.core.frozen import frozen


@frozen
class Surface:
    """How a kind of layer is read.

    Args:
        interface: Class of TensorRT's Python API that has the attributes.
        attributes: Those that are there wherever the kind is.
        newer: Those that only some versions have; not among the values of a layer where they are missing.
    """

    interface: str
    attributes: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()


_WINDOW = ("stride_nd", "pre_padding", "post_padding", "padding_mode")
_KERNEL = ("kernel_size_nd", "dilation_nd", "num_groups", "num_output_maps", "kernel", "bias", *_WINDOW)

SURFACES = {
    "ACTIVATION": Surface("IActivationLayer", ("type", "alpha", "beta")),
    "ASSERTION": Surface("IAssertionLayer"),
    "ATTENTION_INPUT": Surface("IAttentionInputLayer", ("attention",)),
    "ATTENTION_OUTPUT": Surface("IAttentionOutputLayer", ("attention",)),
    "CAST": Surface("ICastLayer", ("to_type",)),
    "CONCATENATION": Surface("IConcatenationLayer", ("axis",)),
    "CONDITION": Surface("IConditionLayer", ("conditional",)),
    "CONDITIONAL_INPUT": Surface("IIfConditionalInputLayer", ("conditional",)),
    "CONDITIONAL_OUTPUT": Surface("IIfConditionalOutputLayer", ("conditional",)),
    "CONSTANT": Surface("IConstantLayer", ("weights", "shape")),
    "CONVOLUTION": Surface("IConvolutionLayer", _KERNEL),
    "CUMULATIVE": Surface("ICumulativeLayer", ("op", "exclusive", "reverse")),
    "DECONVOLUTION": Surface("IDeconvolutionLayer", _KERNEL),
    "DEQUANTIZE": Surface("IDequantizeLayer", ("axis",), ("block_shape",)),
    "EINSUM": Surface("IEinsumLayer", ("equation",)),
    "ELEMENTWISE": Surface("IElementWiseLayer", ("op",)),
    "FILL": Surface("IFillLayer", ("operation", "alpha", "beta", "shape")),
    "FULLY_CONNECTED": Surface("IFullyConnectedLayer", ("num_output_channels", "kernel", "bias")),
    "GATHER": Surface("IGatherLayer", ("axis", "mode", "num_elementwise_dims")),
    "GRID_SAMPLE": Surface("IGridSampleLayer", ("align_corners", "interpolation_mode", "sample_mode")),
    "IDENTITY": Surface("IIdentityLayer"),
    "ITERATOR": Surface("IIteratorLayer", ("loop", "axis", "reverse")),
    "KV_CACHE_UPDATE": Surface("IKVCacheUpdateLayer", ("cache_mode",), ("update_form", "update_lengths")),
    "LOOP_OUTPUT": Surface("ILoopOutputLayer", ("loop", "kind", "axis")),
    "LRN": Surface("ILRNLayer", ("window_size", "alpha", "beta", "k")),
    "MATRIX_MULTIPLY": Surface("IMatrixMultiplyLayer", ("op0", "op1")),
    "NMS": Surface("INMSLayer", ("bounding_box_format", "topk_box_limit")),
    "NON_ZERO": Surface("INonZeroLayer"),
    "NORMALIZATION": Surface("INormalizationLayer", ("axes", "epsilon", "num_groups"), ("is_v2",)),
    "ONE_HOT": Surface("IOneHotLayer", ("axis",)),
    "PADDING": Surface("IPaddingLayer", ("pre_padding_nd", "post_padding_nd")),
    "PARAMETRIC_RELU": Surface("IParametricReLULayer"),
    "PLUGIN_V2": Surface("IPluginV2Layer", ("plugin",)),
    "PLUGIN_V3": Surface("IPluginV3Layer", ("plugin",)),
    "POOLING": Surface(
        "IPoolingLayer", ("type", "window_size_nd", "blend_factor", "average_count_excludes_padding", *_WINDOW)
    ),
    "QUANTIZE": Surface("IQuantizeLayer", ("axis",), ("block_shape", "to_type")),
    "RECURRENCE": Surface("IRecurrenceLayer", ("loop",)),
    "REDUCE": Surface("IReduceLayer", ("op", "axes", "keep_dims")),
    "RESIZE": Surface(
        "IResizeLayer",
        (
            "resize_mode",
            "shape",
            "scales",
            "coordinate_transformation",
            "selector_for_single_pixel",
            "nearest_rounding",
            "cubic_coeff",
            "exclude_outside",
        ),
    ),
    "REVERSE_SEQUENCE": Surface("IReverseSequenceLayer", ("batch_axis", "sequence_axis")),
    "ROTARY_EMBEDDING": Surface("IRotaryEmbeddingLayer", ("interleaved", "rotary_embedding_dim")),
    "SCALE": Surface("IScaleLayer", ("mode", "shift", "scale", "power", "channel_axis")),
    "SCATTER": Surface("IScatterLayer", ("axis", "mode")),
    "SELECT": Surface("ISelectLayer"),
    "SHAPE": Surface("IShapeLayer"),
    "SHUFFLE": Surface("IShuffleLayer", ("first_transpose", "reshape_dims", "second_transpose", "zero_is_placeholder")),
    "SLICE": Surface("ISliceLayer", ("start", "shape", "stride", "mode"), ("axes",)),
    "SOFTMAX": Surface("ISoftMaxLayer", ("axes",)),
    "SQUEEZE": Surface("ISqueezeLayer"),
    "TOPK": Surface("ITopKLayer", ("op", "k", "axes")),
    "TRIP_LIMIT": Surface("ITripLimitLayer", ("loop", "kind")),
    "UNARY": Surface("IUnaryLayer", ("op",)),
    "UNSQUEEZE": Surface("IUnsqueezeLayer"),
}
"""Kinds of layer that are run. What is not here is named as not proven, and never guessed."""

ATTENTION = Surface(
    "IAttention",
    ("norm_op", "causal", "mask", "normalization_quantize_scale"),
    ("causal_kind", "key_value_lengths", "query_lengths", "query_form", "key_value_form"),
)
"""What joins the layers ATTENTION_INPUT and ATTENTION_OUTPUT."""

GROUPS = ("loop", "conditional")
"""Attributes that only say which layers belong together."""
