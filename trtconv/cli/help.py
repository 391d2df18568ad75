"""The help pages of a command with many options: one screen with those of most calls, and all of them in groups."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

MANY = 14
"""More options than these are grouped, and have two pages."""
HELP_ALL = "--help-all"

EVERYDAY = {
    "build": "--dim --input --target --precision --prove --output --data --partition --force --format",
    "check": "--dim --input --target --prove --thorough --fail-on --ignore --config --format",
    "export": "--output --input --dynamic --dim --arg --weights --build --target --format",
    "verify": "--dim --inputs --generator --random --tolerance --against --bisect --require-engine --format",
    "run": "--inputs --output --preprocess --engines --format",
    "refit": "--output --report --prove --sign --key --trust --format",
    "upgrade": "--from --to --output --dim --prove --tolerance --slower --config --format",
    "bench": "--dim --shapes --vs --duration --contexts --arrivals --beside --plot --format",
    "inspect": "--report --no-times --weights --trust --format",
    "quantize": "--output --data --preprocess --error-budget --tolerance --dim --samples --target --format",
    "reduce": "--output --dim --input --no-rewrite --target --trials --timeout",
    "plan": "--on --keys --write --then --config --agree --format",
    "share": "--output --dim --input --no-rewrite --target --trials --timeout",
}
"""The options of most calls, ten at most, of each command that has many."""
_LONG = 120
"""Sentences of more characters than these are cut on the short page."""
_EXAMPLES = 3
"""How many examples are on the short page."""

GROUPS = {
    "Environments": "--from --to",
    "Export": "--arg --output-name --exporter --accept-branch --split-branches --translate --build",
    "Sizes": "--dim --input --profile --minShapes --optShapes --maxShapes --value --split --round --dynamic --static "
    "--random --gpu-memory --shapes",
    "Target and precision": "--target --precision --node-precision --requantize --compute-capability --tf32 "
    "--sparsity --hardware-compatibility --version-compatible",
    "Inputs and outputs": "--images --postprocess --io --inputIOFormats --outputIOFormats --cast-io",
    "Quantising": "--data --preprocess --cache --error-budget --tolerance --samples --held-out --method --percentile "
    "--float --attention --no-cache --metric --kind",
    "Proof": "--prove --prove-time --self-check --bisect --cosine --mismatches --against --inputs --generator --seed "
    "--require-engine --no-proof --no-check --thorough --no-rewrite",
    "Findings": "--fail-on --select --ignore",
    "Rules, passes and plugins": "--rewrite-rules --extend --substitute --plugin --staticPlugins --dynamicPlugins "
    "--setPluginsToSerialize --reference --agree",
    "Builder": "--workspace --optimization-level --timing-cache --strip-weights --max-aux-streams --refittable "
    "--share-profiles --weight-streaming --profiling-verbosity --direct-io --no-mend --keep-tactics "
    "--error-on-timing-cache-miss --exclude-lean-runtime --debug-tensor --tune --best-of --as",
    "Weights and runtime": "--weights --lean-runtime --runtime-cache",
    "Times": "--warmup --duration --contexts --arrivals --beside --vs --slower --no-copies --no-times --nvtx --trace "
    "--plot",
    "Output": "--output --save-tensors --tensor --report --page --sign --force --format --quiet --verbose",
    "Models in parts": "--partition --leave --engines",
    "Several models": "--config --jobs",
    "Other machines": "--on --keys --insecure --store --reconnect --then --retries --job-timeout --sbatch --write",
    "Limits": "--budget --resources --follow-links --time-limit --trust --key --trials --timeout",
}
"""Title of a group to the options that are in it, in any command."""
_OTHERS = "Options"


def write_options(params: Sequence[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes the options of a command, in groups where there are many.

    Args:
        params: Its parameters.
        formatter: What takes the text.
    """
    records = [(param.opts[-1], record) for param in params if (record := param.get_help_record(ctx)) is not None]
    titles = {option: title for title, options in GROUPS.items() for option in options.split()}
    groups: dict[str, list[tuple[str, str]]] = {title: [] for title in (_OTHERS, *GROUPS)}
    for option, record in records:
        groups[titles.get(option, _OTHERS) if len(records) > MANY else _OTHERS].append(record)
    # What has no group of its own comes last: --help.
    for title in (*GROUPS, _OTHERS):
        if groups[title]:
            with formatter.section(title):
                formatter.write_dl(groups[title])


def has_two_pages(params: Sequence[click.Parameter]) -> bool:
    """Whether a command has more options than a screen shows."""
    return len(params) > MANY


def write_short(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Writes what a command does, the options of most calls and the first examples, on one screen.

    Args:
        command: A command of `EVERYDAY`.
        formatter: What takes the text.
    """
    command.format_usage(ctx, formatter)
    summary, _, rest = (command.help or "").partition("\n\n")
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(f"{summary} {_first_sentence(rest)}")
    records = {param.opts[-1]: param.get_help_record(ctx) for param in command.get_params(ctx)}
    with formatter.section("Options of most calls"):
        rows = [record for name in EVERYDAY[command.name or ""].split() if (record := records.get(name)) is not None]
        formatter.write_dl([(name, _first_sentence(text)) for name, text in rows])
    examples, ending = _parts(command.epilog or "")
    formatter.write_paragraph()
    formatter.write("\n".join(f"  {line}".rstrip() for line in ("Examples:", *examples)) + "\n")
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(ending)
        formatter.write_text(f"All {len(records) - 1} options and more examples: {ctx.command_path} {HELP_ALL}")


def _first_sentence(text: str) -> str:
    """Returns the first sentence of a help text on one line; where that is long, its first part."""
    words = " ".join(re.sub(r"\s*\[(default|x[<>]).*\]$", "", text, flags=re.DOTALL).split())
    sentence = _until(words, ".")
    short = sentence if len(sentence) <= _LONG else _until(sentence, ";:")
    return f"{short.rstrip('.')}."


def _until(text: str, signs: str) -> str:
    """Returns what stands before the first of some signs that ends a word outside of parentheses."""
    for match in re.finditer(rf"[{signs}](?=\s|$)", text):
        if text.count("(", 0, match.start()) == text.count(")", 0, match.start()):
            return text[: match.start()]
    return text


def _parts(epilog: str) -> tuple[list[str], str]:
    """Returns the lines of the first examples of an epilog, and the paragraphs behind all of them."""
    head, *others = [part.strip("\n") for part in epilog.split("\b\n") if part.strip()]
    lines = head.splitlines()[1:]
    starts = [number for number, line in enumerate(lines) if re.match(r"  \S", line)]
    end = starts[_EXAMPLES] if len(starts) > _EXAMPLES else len(lines)
    return lines[:end], " ".join(" ".join(others).split())
