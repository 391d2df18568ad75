"""`trtconv export`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.outcome import Command, Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.frozen import frozen


@frozen
class ExportFlags:
    """The command's flags."""

    spec: str
    output: str
    input_decls: tuple[str, ...]
    dynamic: tuple[str, ...]
    dim: tuple[str, ...]
    static: bool
    arguments: tuple[str, ...]
    weights: str | None
    output_names: tuple[str, ...]
    exporter: str
    no_proof: bool
    no_check: bool
    target: str
    output_format: str
    fail_on: str
    quiet: bool


@click.command(
    "export",
    cls=Command,
    short_help="Export a PyTorch module to an ONNX file that is right and dynamic.",
    epilog="""\b
Examples:
  Static first:
    trtconv export models/unet.py:build -o unet.onnx --input x=1x3x128x128
  Dynamic height and width; tells which sizes are valid, and which line says so:
    trtconv export models/unet.py:build -o unet.onnx --input x=1x3x128x128 \\
      --dynamic x=batch,_,height,width --dim height=64:512 --dim width=64:512
  A class of an installed package, with arguments and weights:
    trtconv export mypackage.nets:UNet --arg channels=3 --weights unet.safetensors \\
      --input x=1x3x256x256 -o unet.onnx
  A saved program, for an old TensorRT:
    trtconv export unet.pt2 -o unet.onnx --target tensorrt-8.6

\b
Exit status: 0 exported, proved and checked; 1 the module cannot be exported as asked, differs from
PyTorch, or fails the check; 2 a bad call; 4 torch is not installed.
""",
)
@click.argument("spec", metavar="SPEC")
@click.option("-o", "--output", required=True, metavar="MODEL.onnx", help="Where the ONNX file goes.")
@click.option(
    "--input",
    "input_decls",
    multiple=True,
    metavar="NAME=1x3x64x64[:DTYPE]",
    help="One input: its name (forward's parameter), the example's shape, its type (default float32). Repeatable.",
)
@click.option(
    "--dynamic",
    multiple=True,
    metavar="NAME=batch,_,height,width",
    help="Name the dynamic axes of an input; _ is a static one. Repeatable.",
)
@click.option(
    "--dim",
    multiple=True,
    metavar="NAME=MIN:MAX",
    help="Bound a dynamic dimension; MIN:OPT:MAX as in build is taken too. Repeatable.",
)
@click.option("--static", is_flag=True, help="Leave every dimension static, whatever --dynamic and --dim say.")
@click.option(
    "--arg", "arguments", multiple=True, metavar="KEY=VALUE", help="Keyword argument of the factory. Repeatable."
)
@click.option("--weights", metavar="FILE", help="State dict to load, .pt or .safetensors; nothing is unpickled.")
@click.option("--output-name", "output_names", multiple=True, metavar="NAME", help="Name of an output. Repeatable.")
@click.option(
    "--exporter",
    type=click.Choice(["auto", "torch.export", "torchscript"]),
    default="auto",
    show_default=True,
    help="auto: torch.export's; the tracing one where the first cannot, or loses quantisation.",
)
@click.option("--no-proof", is_flag=True, help="Do not compare PyTorch with ONNX Runtime.")
@click.option("--no-check", is_flag=True, help="Do not run check on the file.")
@options.target_option
@options.format_option("text", "json")
@options.fail_on_option
@options.quiet_option
@options.packed(ExportFlags)
def command(flags: ExportFlags) -> Outcome:
    """Export a PyTorch module to an ONNX file that is right and dynamic.

    SPEC is path/to/file.py:factory, package.module:Class, a .pt2 file (a saved ExportedProgram) or a TorchScript file.
    Exporting runs the code that SPEC names.

    The module is tried at many sizes, without computing anything, to learn which are valid; exported; compared with
    PyTorch on ONNX Runtime at the example's size and three others; and checked for TensorRT. The file appears whole or
    not at all.
    """
    from trtconv.cli.formats import json
    from trtconv.cli.formats.export import export_text
    from trtconv.core.dim_flags import parse_dims
    from trtconv.exporter import ExportOptions, ExportRequest, export_spec
    from trtconv.exporter.request import parse_argument, parse_dynamic, parse_input

    request = ExportRequest(
        spec=flags.spec,
        output=Path(flags.output),
        inputs=tuple(parse_input(text) for text in flags.input_decls),
        dynamic=dict(parse_dynamic(text) for text in flags.dynamic),
        dims=parse_dims(flags.dim),
        arguments=dict(parse_argument(text) for text in flags.arguments),
        weights=None if flags.weights is None else Path(flags.weights),
        options=ExportOptions(
            outputs=flags.output_names,
            target=options.parse_target(flags.target),
            static=flags.static,
            proof=not flags.no_proof,
            check=not flags.no_check,
            fail_on=options.severity(flags.fail_on),
            exporter=flags.exporter,
        ),
    )
    with show_progress(flags.quiet) as progress:
        report = export_spec(request, progress)
    render = json.render(report.to_json()) if flags.output_format == "json" else export_text(report)
    return Outcome(render, report.exit_code)
