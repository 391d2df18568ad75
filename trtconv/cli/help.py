"""The help page of a command with many options: in groups, the ones of everyday first."""

from __future__ import annotations

from collections.abc import Sequence

import click

_MANY = 14
"""More options than these are grouped."""

GROUPS = {
    "Sizes": "--dim --input --profile --minShapes --optShapes --maxShapes --value --split --round --dynamic --static "
    "--random --gpu-memory",
    "Target and precision": "--target --precision --node-precision --requantize --cast-io --compute-capability --tf32 "
    "--sparsity --hardware-compatibility --version-compatible",
    "Quantising": "--data --preprocess --error-budget --tolerance --samples --held-out --method --percentile --float "
    "--no-cache",
    "Proof": "--prove --self-check --bisect --cosine --mismatches --against --inputs --generator --seed "
    "--require-engine --no-proof --no-check --thorough --no-rewrite",
    "Findings": "--fail-on --select --ignore",
    "Builder": "--workspace --optimization-level --timing-cache --strip-weights --max-aux-streams --refittable "
    "--weight-streaming --profiling-verbosity",
    "Output": "--output --report --page --sign --force --format --quiet --verbose",
    "Several models": "--config --jobs",
    "Other machines": "--on --keys --insecure --store --then",
    "Limits": "--budget --resources --follow-links --time-limit --trust --key --trials --timeout",
}
"""Title of a group to the options that are in it, in any command."""
_OTHERS = "Options"


def write_options(params: Sequence[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the options of a command, in groups where there are many.

    Args:
        params: Its parameters.
        ctx: The call.
        formatter: What takes the text.
    """
    records = [(param.opts[-1], record) for param in params if (record := param.get_help_record(ctx)) is not None]
    titles = {option: title for title, options in GROUPS.items() for option in options.split()}
    groups: dict[str, list[tuple[str, str]]] = {title: [] for title in (_OTHERS, *GROUPS)}
    for option, record in records:
        groups[titles.get(option, _OTHERS) if len(records) > _MANY else _OTHERS].append(record)
    # What has no group of its own comes last: --help.
    for title in (*GROUPS, _OTHERS):
        if groups[title]:
            with formatter.section(title):
                formatter.write_dl(groups[title])
