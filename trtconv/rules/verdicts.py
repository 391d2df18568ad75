"""Pages of the codes that come from TensorRT itself rather than from a rule over the model."""

from __future__ import annotations

from trtconv.core import codes
from trtconv.rules.base import Page


class GpuMemoryShort(Page):
    """At the max of a profile the network takes more memory than --gpu-memory says.

    What it checks:
        The model's own bytes (its weights), and the most bytes of activations that are alive at once, by the shapes of
        the network and the types of the model.
    Why TensorRT cares:
        An engine that needs more memory than the GPU has does not load, or fails when it runs.
    Versions:
        All.
    Fix:
        Use one of the sizes that the message offers, or split the range (--split): each profile is then allocated for
        its own max.
    Source:
        docs/sizes.md. An estimate: TensorRT fuses layers and needs scratch memory, and a lower precision takes less.
    """

    code, name = codes.GPU_MEMORY_SHORT


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

    code, name = codes.PARSER_REFUSED


class NetworkDiffers(Page):
    """TensorRT's network would not compute what the ONNX model says.

    What it checks:
        The audit compares every deconvolution in the parsed network - kernel, stride, dilation, group, pads, bias,
        output size - with the meaning of its ONNX node. The proof reads every layer back, runs the network without a
        GPU, and compares it with the model on ONNX Runtime. Either fails on a difference.
    Why TensorRT cares:
        It does not: such a network builds, runs and returns wrong numbers without a message.
    Versions:
        All.
    Fix:
        Build without --no-rewrite. If the passes were on, please report the model; --prove none builds it.
    Source:
        docs/deconvolution.md, docs/architecture.md.
    """

    code, name = codes.NETWORK_DIFFERS


class BuilderRefused(Page):
    """TensorRT's builder refuses a network that the parser accepted.

    What it checks:
        The result of the build; the message is the builder's own.
    Why TensorRT cares:
        No kernel for a layer, too little memory, or a limit of the runtime.
    Versions:
        The installed one.
    Fix:
        See the message; narrower profiles or another precision often help. `build` tries convolutions that fail alone
        in other forms, takes the first that builds and is proven (--no-mend leaves that); where the ranges are to
        blame, it tries narrower ones for a minute at most, and names those that build.
    Source:
        The builder's log.
    """

    code, name = codes.BUILDER_REFUSED


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

    code, name = codes.PROFILE_INCONSISTENT


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

    code, name = codes.SHAPE_TENSOR_INPUT


class OptionMissing(Page):
    """A builder option was asked for that the installed TensorRT does not have.

    What it checks:
        Every option of `trtconv build` that the builder of the installed version lacks, or takes no notice of.
    Why TensorRT cares:
        It would build without a word as if the option had not been given, or fail after minutes.
    Versions:
        The message names those that have the option.
    Fix:
        Leave the option out, or build with a version that has it.
    Source:
        The Python interfaces of TensorRT 8.6, 10.16, 11.4 and TensorRT-RTX 1.7; warnings of the TensorRT-RTX builder.
    """

    code, name = codes.OPTION_MISSING


class GpuLimit(Page):
    """A GPU that was asked for cannot compute what the model asks for.

    What it checks:
        The types of the network's tensors against the GPUs of `--compute-capability`.
    Why TensorRT cares:
        TensorRT-RTX builds ahead of time, without the GPU; what that GPU lacks shows when the engine is loaded there.
    Versions:
        TensorRT-RTX: 7.5 (Turing) has neither TF32, bfloat16, float8 nor int4; 8.0 and 8.6 have no float8.
    Fix:
        Use another precision, or leave that GPU out. Build for 7.5 apart from the others, which it would slow down.
    Source:
        Support matrix of TensorRT-RTX 1.5.
    """

    code, name = codes.GPU_LIMIT


class TimingCacheUnused(Page):
    """The timing cache that was asked for was not used, or could not be written.

    What it checks:
        Whether the installed TensorRT has a timing cache, and whether the file could be replaced after the build.
    Why TensorRT cares:
        The engine is none the worse for it; the next build measures its kernels again.
    Versions:
        TensorRT-RTX has none: it chooses kernels on the machine that runs the engine.
    Fix:
        Leave out --timing-cache, or name a file that can be written.
    Source:
        TensorRT-RTX documentation; the message of the operating system.
    """

    code, name = codes.TIMING_CACHE_UNUSED


class TacticOther(Page):
    """A layer has another tactic than the report that `build --as` was given.

    What it checks:
        After a build with `--as ENGINE.json`, the tactic of each layer as TensorRT reports it against the report's:
        number, implementation and formats on TensorRT 8; the entry of the timing cache from 10 on.
    Why TensorRT cares:
        Kernels that are alike add in another order: the layer's numbers may differ in the last bits, and so may its
        time.
    Versions:
        TensorRT-RTX chooses kernels where the engine runs, and refuses `--as` (exit status 4). From 10 on, layers are
        named by their keys in the timing cache.
    Fix:
        Build from the same model with the same options, version of TensorRT and kind of GPU.
    Source:
        TensorRT's IAlgorithmSelector and ITimingCache.
    """

    code, name = codes.TACTIC_OTHER


class PluginOffered(Page):
    """A part of the model computes what a plugin of TensorRT's own does.

    What it checks:
        For the full TensorRT, `check` looks for the end of a detector (NonMaxSuppression with all that becomes of its
        indices) and for deformable attention (a GridSample for each level), however they are written: it runs the
        part, and the plugin's reference, at random boxes, scores and places, and looks what the outputs consist of.
    Why TensorRT cares:
        The plugin is one kernel in the place of dozens of layers, and EfficientNMS_TRT does without the sizes that
        only values tell, for which TensorRT waits.
    Versions:
        TensorRT 8.6 and newer; TensorRT-RTX takes no plugins.
    Fix:
        `--substitute efficient-nms` or `--substitute deformable-attention` puts it there; the proof runs it by its
        reference, and with a GPU beside it. Detections are equal where no two scores are; see docs/plugins.md.
    Source:
        The plugins' sources in NVIDIA/TensorRT, and their references in trtconv.
    """

    code, name = codes.PLUGIN_OFFERED


class OverBudget(Page):
    """The model asks for more than a model may cost.

    What it checks:
        Before anything is made as large as a file says, its size is held against a budget: all that the file lists,
        nodes after functions are inlined, elements of constants that are computed, kernels that passes widen, sizes
        looked at together, bytes of the files. What nobody can tell beforehand is measured: seconds and megabytes of a
        stage.
    Why TensorRT cares:
        It does not always: a file of a hundred bytes can make it, and trtconv, take all memory.
    Versions:
        All.
    Fix:
        Where the model is meant so, raise the limit that the message names: --budget elements=1e9, or --budget 4 for
        four times of all. The flag is --resources for quantize, whose --budget is an error.
    Source:
        docs/security.md.
    """

    code = "TC408"
    name = "budget-exceeded"


class OutputMisdeclared(Page):
    """The file declares a shape for an output that the network does not compute.

    What it checks:
        The static dimensions of the model's outputs against those of the network that TensorRT parsed.
    Why TensorRT cares:
        It does not: the engine returns what the network computes. Who reads the shape in the file, to make room for the
        result, makes too much or too little.
    Versions:
        All.
    Fix:
        Where the proof says that TensorRT reads the model rightly: export it again, or correct the shape in the file.
    Source:
        ONNX IR specification, graph outputs.
    """

    code, name = codes.OUTPUT_MISDECLARED


class ProofIncomplete(Page):
    """Not all of the parsed network was shown to compute what the model means.

    What it checks:
        What the proof could not run or compare, and why: a kind of layer that it does not know, a piece that runs on
        no inputs, sizes, time, a reference that fails. Nothing speaks against the network there; nothing for it either.
    Why TensorRT cares:
        It does not: a network that was misread builds and runs without a message.
    Versions:
        All.
    Fix:
        Where time was up, allow more with --prove-time; give bounds for dynamic dimensions; or compare the engine with
        trtconv verify. With --prove required this is an error.
    Source:
        docs/proof.md.
    """

    code, name = codes.PROOF_INCOMPLETE


class UpgradeRegression(Page):
    """Another version of TensorRT makes less of the model.

    What it checks:
        trtconv upgrade has both versions parse, build and prove the model. One that had an engine and has none now, or
        whose proof finds a larger error, is told with the reason; with --slower a build that takes longer too.
    Why TensorRT cares:
        Each version reads some nodes in another way than the one before.
    Versions:
        Those that are compared.
    Fix:
        Do what the reason says, or stay with the version that is right.
    Source:
        docs/upgrading.md.
    """

    code, name = codes.UPGRADE_REGRESSION


class ParsedOtherwise(Page):
    """Another version of TensorRT makes other layers of a node.

    What it checks:
        trtconv upgrade compares the parsed networks of both versions layer by layer: kinds, attributes, weights, types
        and sizes.
    Why TensorRT cares:
        It does not. Where the proof agrees on both sides the other layers compute the same, perhaps at another speed.
    Versions:
        Those that are compared.
    Fix:
        None is needed; time the engine, trtconv bench.
    Source:
        docs/upgrading.md.
    """

    code, name = codes.PARSED_OTHERWISE


class CastNotVerified(Page):
    """A cast to float16 or bfloat16 was not compared with the model, or there was nothing to cast.

    What it checks:
        Whether ONNX Runtime ran the model and its cast on the same random inputs, at the optimal sizes.
    Why TensorRT cares:
        It does not: it computes what the graph says, in the precision that the graph says.
    Versions:
        Those that take the precision from the graph: TensorRT 10 and newer, TensorRT-RTX.
    Fix:
        Compare the engine's results with the model's. A graph in which nothing could be cast needs a newer opset.
    Source:
        docs/building.md.
    """

    code, name = codes.CAST_NOT_VERIFIED


class CastNotFinite(Page):
    """After a cast an output is not finite, or has another shape.

    What it checks:
        The model's outputs on ONNX Runtime, in float32 and with the rounding of the precision behind every node.
    Why TensorRT cares:
        It does not: values beyond 65504 become infinite in float16, and NaN after that, without a message.
    Versions:
        Those that take the precision from the graph: TensorRT 10 and newer, TensorRT-RTX.
    Fix:
        Build as-is, or with --precision bf16, which holds larger values.
    Source:
        docs/building.md.
    """

    code, name = codes.CAST_NOT_FINITE


class CastInaccurate(Page):
    """After a cast an output is further off than is usual for the precision.

    What it checks:
        The largest difference of each output on ONNX Runtime, as a share of its largest value: 2 percent for float16
        and int8, 10 percent for bfloat16. Of integers, the share that differs.
    Why TensorRT cares:
        It does not. The inputs are random: real ones may do better, or worse.
    Versions:
        Those that take the precision from the graph: TensorRT 10 and newer, TensorRT-RTX.
    Fix:
        Compare it on real data; build as-is where it matters.
    Source:
        docs/building.md.
    """

    code, name = codes.CAST_INACCURATE
