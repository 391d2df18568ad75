"""`trtconv completion`."""

from __future__ import annotations

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command, Word
from trtconv.cli.process.outcome import Outcome

SHELLS = ("bash", "zsh", "fish")


_WITHOUT_OPTIONS = {
    "compopt -o default": """if [[ -z $value ]]; then
                mapfile -t COMPREPLY < <(compgen -f -X '-*'); compopt -o filenames
            else
                compopt -o default
            fi""",
    "_path_files -f": "_path_files -f -F '(-*)'",
    "__fish_complete_path $metadata[2]": "__fish_complete_path $metadata[2] | string match --invert -- '-*'",
}
"""How shells list files, and how they do without those whose names are options (a file --extend=x.py) to trtconv."""


@click.command(
    "completion",
    cls=Command,
    epilog="""\b
Examples:
  bash, in ~/.bashrc:
    eval "$(trtconv completion bash)"
  zsh, in ~/.zshrc, behind compinit:
    eval "$(trtconv completion zsh)"
  fish:
    trtconv completion fish > ~/.config/fish/completions/trtconv.fish
""",
)
@click.argument("shell", type=Word(SHELLS))
@options.quiet_anyway
def command(shell: str) -> Outcome:
    """Print what completes trtconv's words in a shell.

    Commands, options and their choices are completed, file names, rules, passes, targets, and of the MODEL that stands
    before them its dimensions and deconvolutions.
    """
    from click.shell_completion import get_completion_class

    from trtconv.cli.group import cli

    script = get_completion_class(shell)
    assert script is not None
    text = script(cli, {}, "trtconv", "_TRTCONV_COMPLETE").source().rstrip("\n")
    # Without quotation marks bash would expand it; behind "height=" its bounds follow, and no blank.
    added = 'COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace'
    text = text.replace("COMPREPLY+=($value)", added)
    for files, without in _WITHOUT_OPTIONS.items():
        text = text.replace(files, without)
    return Outcome(text)
