"""`trtconv export`."""

from __future__ import annotations

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.exporter.request import ExportRequest


@click.command(
    "export",
    cls=Command,
    epilog="""\b
Examples:
  Static first:
    trtconv export models/unet.py:build -o unet.onnx --input x=1x3x128x128
  Dynamic height and width; tells which sizes are valid, and which line says so:
    trtconv export models/unet.py:build -o unet.onnx --input x=1x3x128x128 \\
      --dynamic x=batch,_,height,width --dim height=64:512 --dim width=64:512
  The same, and the engine for it, with the bounds beside the axes:
    trtconv export models/unet.py:build -o unet.onnx --build \\
      --input x=batch=1:1:4,3,height=64:128:512:/8,width=64:128:512:/8
  A network of a library, by name:
    trtconv export 'smp:Unet?encoder_name=resnet18' -o unet.onnx --input batch,3,height=64:256:512,width=64:256:512
  A class of an installed package, with arguments and weights:
    trtconv export mypackage.nets:UNet --arg channels=3 --weights unet.safetensors \\
      --input x=1x3x256x256 -o unet.onnx
  A saved program, for an old TensorRT:
    trtconv export unet.pt2 -o unet.onnx --target tensorrt-8.6
  Several modules, with what flows between them; writes tts.pipeline.json too (docs/export.md):
    trtconv export speech.py:parts -o tts.onnx --dim batch=1:1:4 --dim length=8:20:100

\b
Exit status: 0 exported, proved and checked; 1 the module cannot be exported as asked, differs from
PyTorch, or fails the check; 2 a bad call; 4 torch is not installed.
""",
)
@click.argument("spec", metavar="SPEC")
@click.option("-o", "--output", required=True, metavar="MODEL.onnx", help="Where the ONNX file goes.")
@options.asking(ExportRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[ExportRequest], spec: str, output: str, output_format: str, quiet: bool
) -> Outcome:
    """Export a PyTorch module to an ONNX file that is right and dynamic.

    SPEC is path/to/file.py:factory, package.module:Class, a network of a library (timm:NAME, torchvision:NAME,
    smp:NAME?KEY=VALUE, transformers:FOLDER), a .pt2 file (a saved ExportedProgram) or a TorchScript file.
    Exporting runs the code that SPEC names. What gives a list of trtconv.ExportPart is exported part by part.

    The module is tried at many sizes, without computing anything, to learn which are valid; exported; compared with
    PyTorch on ONNX Runtime at the example's size and three others; and checked for TensorRT. The file appears whole or
    not at all.
    """
    from trtconv.cli.formats.export import convert_text, export_text
    from trtconv.exporter import convert_spec, export_spec

    request = arguments.request(spec=spec, output=output)
    with show_progress(quiet) as progress:
        if request.build:
            both = convert_spec(request, progress)
            return Outcome.of(both, output_format, convert_text)
        report = export_spec(request, progress)
    return Outcome.of(report, output_format, export_text)
