"""`trtconv quantize`."""

from __future__ import annotations

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.cli.timing_folder import cache_folder
from trtconv.core.requests.quantize import QuantizeRequest


@click.command(
    "quantize",
    cls=Command,
    epilog="""\b
Examples:
  With a folder of .npz files, each with one array for each input:
    trtconv quantize unet.onnx --data samples/ -o unet.int8.onnx
  With images, as the network was trained:
    trtconv quantize seg.onnx --data images/ -o seg.int8.onnx \\
      --preprocess size=256x256,scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225
  With a function, at three sizes of a dynamic network:
    trtconv quantize unet.onnx --data data.py:make -o unet.int8.onnx \\
      --dim batch=1 --dim height=64:256:512 --dim width=64:256:512
  At most 2 % off, whatever has to stay in float for that:
    trtconv quantize unet.onnx --data samples/ -o unet.int8.onnx --budget 0.02 --tolerance 0.02
  With the scales that TensorRT 8 found (trtexec --calib), which only --data measures:
    trtconv quantize unet.onnx --cache calib.cache --data samples/ -o unet.int8.onnx
  With weights of matrix products in int4, the rest in float:
    trtconv quantize vit.onnx --data samples/ -o vit.int4.onnx --kind int4-weights
  And then:
    trtconv build unet.int8.onnx --precision int8 --dim ...
    trtconv verify unet.int8.onnx --against unet.onnx

\b
Exit status: 0 written; 1 the error is above --tolerance, or --budget leaves no layer; 2 a bad call, an
unreadable model, or samples that do not fit it; 4 something is not installed.
""",
)
@options.model_argument
@options.links_option
@options.resources_option("--resources")
@click.option("-o", "--output", required=True, metavar="OUT.onnx", help="Where the quantised model goes.")
@options.asking(QuantizeRequest)
@click.option("--no-cache", is_flag=True, help="Calibrate again even where model and samples have not changed.")
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[QuantizeRequest], model: str, output: str, no_cache: bool, output_format: str, quiet: bool
) -> Outcome:
    """Quantise a float model in int8, and measure what that costs.

    MODEL is an .onnx file in float32, with its external data beside it; it is never written. Batch normalisation is
    folded and the model rewritten as build does it; then Conv, ConvTranspose, and MatMul and Gemm with constant weights
    get symmetric int8 weights with a scale for each output channel, and quantisers where TensorRT fuses them; or what
    --kind says; with --attention products without weights too. The result is compared with MODEL on samples that
    calibration did not see, as a whole and layer by layer. Told are the share of multiply-adds that is quantised, and
    what stays in float and why.
    """
    from trtconv.cli.formats.quantize import quantize_text
    from trtconv.pipeline.quantizing import quantize

    request = arguments.request(model=model, output=output, cache=None if no_cache else cache_folder("calibration"))
    with show_progress(quiet) as progress:
        report = quantize(request, progress)
    return Outcome.of(report, output_format, quantize_text)
