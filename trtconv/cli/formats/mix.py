"""What a person reads of the types that `--precision auto` found."""

from __future__ import annotations

import json

from trtconv.cli.formats.wording import count, table
from trtconv.core.documents.metric_result import MetricResult
from trtconv.core.documents.mix import Mix
from trtconv.core.text import clean, toml_string


def mix_text(mix: Mix) -> str:
    """Renders the `mix` of a build report: the parts of the network, and the settings that pin their types."""
    measured = f"{count(mix.samples, 'sample')} of {clean(str(mix.source))}"
    timed = f"timed on {mix.timed_on}" if mix.timed_on else "estimated by operations and bytes"
    head = [*_errors(mix, measured), _ran(mix), f"{mix.time:.2f} of the time in float32, {timed}"]
    rows = [("type", "time in float32", "error alone", "nodes")]
    for part in mix.parts:
        first, *others = part.nodes
        alone = "-" if part.error is None else f"{part.error:.2g}"
        nodes = clean(first) + (f" and {len(others)} more" if others else "")
        rows.append((part.type, f"{100 * part.time:.1f} %", alone, nodes))
    pinned = [f"precision = {json.dumps(mix.precision)}"]
    if mix.node_precisions:
        types = ", ".join(f"{_quoted(name)} = {json.dumps(kind)}" for name, kind in mix.node_precisions.items())
        pinned.append(f"node-precisions = {{{types}}}")
    return "\n".join(
        [
            "; ".join(head),
            *table(rows, "  "),
            "to build so without a search, in trtconv.toml:",
            *(f"  {p}" for p in pinned),
        ]
    )


def _errors(mix: Mix, measured: str) -> tuple[str, str]:
    """Says what was asked for, and what the types have."""
    if mix.metric is None:
        goal = f"types for an error (rms) of at most {mix.tolerance:g}"
        return goal, f"it is {mix.error:.2g} on {measured}, and {mix.error_of_all:.2g} with all in 16 bits"
    result = f"{judged_text(mix.metric)} on {measured}"
    goal = f"types for {clean(mix.metric.metric)} of {mix.metric.goal} (errors are by how much it is worse)"
    return goal, f"it is {result}, and {mix.error_of_all:.2g} worse with all in 16 bits"


def judged_text(metric: MetricResult) -> str:
    """Returns the value of a metric with its standard error, and that of the float network."""
    bar = "" if metric.standard_error is None else f" +- {metric.standard_error:.2g}"
    return f"{metric.value:.5g}{bar} (float {metric.of_float:.5g})"


def _ran(mix: Mix) -> str:
    """Says what an engine of the types computed."""
    if mix.engine_error is None:
        return f"no engine was run, so that TensorRT's own error is not known: {clean(mix.engine_missing)}"
    ran = f"an engine for the samples' sizes, run on the GPU, has {mix.engine_error:.2g}"
    if mix.engine_error <= mix.allowed:
        return ran
    return f"{ran}, which is more, with all in float32 that may be (--no-tf32 computes without TF32)"


def _quoted(name: str) -> str:
    """Returns a name as a key of TOML, in characters that every terminal shows."""
    return clean(toml_string(name))
