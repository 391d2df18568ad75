"""The `trtconv` group: a table of commands, each imported only when it is called.

Help for `trtconv` alone is written from the table, so that it costs little more than importing click. A test holds the
table to each command's own help.
"""

from __future__ import annotations

import click

from trtconv.cli.process.command import PageWriter
from trtconv.core.version import __version__

COMMANDS = (
    ("build", "trtconv.cli.commands.build", "Convert an ONNX model into a TensorRT engine."),
    ("check", "trtconv.cli.commands.check", "Tell what TensorRT will not take, or will get wrong, in a model."),
    ("export", "trtconv.cli.commands.export", "Export a PyTorch module to an ONNX file that is right and dynamic."),
    ("verify", "trtconv.cli.commands.verify", "Prove that an engine computes what its model means."),
    ("bench", "trtconv.cli.commands.bench", "Time an engine at its sizes, or two in turns."),
    ("inspect", "trtconv.cli.commands.inspect", "Show what is in an engine, its report, or an ONNX file."),
    ("run", "trtconv.cli.commands.run", "Run an engine once, from arrays to arrays."),
    ("refit", "trtconv.cli.commands.refit", "Put the weights of a retrained model into an engine."),
    ("report", "trtconv.cli.commands.report", "Write a page about an engine, or about a folder of engines."),
    ("diff", "trtconv.cli.commands.diff", "Compare two engines, and fail on a regression."),
    ("upgrade", "trtconv.cli.commands.upgrade", "Tell what another TensorRT makes of models, before you change to it."),
    ("rewrite", "trtconv.cli.commands.rewrite", "Write the model that build would hand to TensorRT."),
    ("quantize", "trtconv.cli.commands.quantize", "Quantise a float model in int8, and measure what that costs."),
    ("reduce", "trtconv.cli.commands.reduce", "Find the smallest part of a model that still fails."),
    ("share", "trtconv.cli.commands.share", "Make a part of a failing model that may be shown to others."),
    ("explain", "trtconv.cli.commands.explain", "Explain one ConvTranspose in words and a drawing, or list them."),
    ("sizes", "trtconv.cli.commands.sizes", "List the sizes that a model accepts, and the nodes that say so."),
    (
        "plan-profiles",
        "trtconv.cli.commands.plan_profiles",
        "Divide the sizes of requests into the profiles that cost least.",
    ),
    ("plan", "trtconv.cli.commands.plan", "List which engines of trtconv.toml are to be built, and who can."),
    ("worker", "trtconv.cli.commands.worker", "Build on this machine what a farm is asked for."),
    ("farm", "trtconv.cli.commands.farm", "Make keys, run a farm's scheduler, see what a farm does, tidy its store."),
    ("run-job", "trtconv.cli.commands.run_job", "Build one job that plan --write made."),
    ("collect", "trtconv.cli.commands.collect", "Take in the engines that run-job built."),
    ("triton", "trtconv.cli.commands.triton", "Put engines into a model repository for Triton."),
    ("warm", "trtconv.cli.commands.warm", "Fill the runtime cache of a TensorRT-RTX engine."),
    ("init", "trtconv.cli.commands.init", "Write a trtconv.toml for the models that are here."),
    (
        "extension",
        "trtconv.cli.commands.extension",
        "Test passes and rules of your own, or list those that packages offer.",
    ),
    ("completion", "trtconv.cli.commands.completion", "Print what completes trtconv's words in a shell."),
    ("doctor", "trtconv.cli.commands.doctor", "Show what is installed and which TensorRT works here."),
    ("passes", "trtconv.cli.commands.passes", "List the rewrites that build and rewrite apply, or explain one."),
    ("rule", "trtconv.cli.commands.rule", "Explain a rule of check, or list them all."),
)
"""Name, module and first line of help of every command, in the order of the help page. The module has `command`."""


class LazyGroup(PageWriter, click.Group):
    """A group whose commands come from `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the table's order."""
        return [name for name, _, _ in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one command; None where there is no such command."""
        for name, module, _ in COMMANDS:
            if name == cmd_name:
                import importlib

                command: click.Command = importlib.import_module(module).command
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that the arguments ask for; suggests near names where there is none."""
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            import difflib

            from trtconv.cli.process.suggestions import command_hint

            near = difflib.get_close_matches(name, self.list_commands(ctx))
            suggestion = f" Did you mean {' or '.join(near)}?" if near else command_hint(name)
            ctx.fail(f"No such command {name!r}.{suggestion}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, _, short_help in COMMANDS])


@click.command(
    cls=LazyGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Exit status:
  0    fine
  1    the model failed: a finding, a refused build, a verification out of tolerance
  2    a bad call or an unreadable input
  3    a bug in trtconv; the traceback is saved to a file
  4    this machine cannot: a runtime, GPU or capability is missing
  130  interrupted; 143 terminated

\b
Results go to stdout, progress and diagnostics to stderr. With --format json stdout
is one JSON document, also on failure. 'trtconv COMMAND --help' explains a command.
""",
)
@click.version_option(__version__, prog_name="trtconv", message="%(prog)s %(version)s")
def cli() -> None:
    """Convert ONNX models into TensorRT engines, and say why where it cannot be done.

    \b
    Examples:
      trtconv doctor
      trtconv check unet.onnx
      trtconv build unet.onnx --dim batch=1 --dim height=64:256:512 --dim width=64:256:512
    """
