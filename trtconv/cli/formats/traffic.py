"""What a person reads of `trtconv plan-profiles`."""

from __future__ import annotations

from trtconv.cli.formats.wording import byte_size, count, table
from trtconv.core.dims import sizes_text
from trtconv.core.documents.traffic import TrafficPlan
from trtconv.core.text import clean
from trtconv.shapes.planning.writing import build_command

_MOST_RUNS = 20


def plan_text(plan: TrafficPlan) -> str:
    """Renders a plan: profiles, sizes that are padded, what it costs beside others, and the command to build with."""
    cost = plan.cost
    rows = [("profile", "dimensions", "requests", "cost", "activations")]
    for index, profile in enumerate(plan.profiles):
        dims = ", ".join(f"{name}={bound.short}" for name, bound in profile.dims.items())
        share = f"{profile.requests / plan.requests:.1%}"
        rows.append((str(index), dims, share, f"{profile.cost:.3f}", byte_size(profile.activation_bytes)))
    padded = [(sizes_text(run.sizes), run) for run in plan.runs if run.padded]
    lines = [f"padded to {sizes}: {run.padded:g} of {plan.requests:g} requests" for sizes, run in padded[:_MOST_RUNS]]
    lines += [f"and to {count(len(padded) - _MOST_RUNS, 'other size')}"] if len(padded) > _MOST_RUNS else []
    how = "as bench measured" if cost.unit == "us" else "estimated from the graph"
    mean = f", {cost.per_request:.1f} us a request" if cost.unit == "us" else ""
    blocks = [
        "\n".join(table(rows, "")),
        "\n".join(map(clean, lines)),
        f"cost ({how}): {cost.planned:.3f} of one profile's{mean}; --split auto: {cost.auto:.3f} with "
        f"{count(cost.auto_profiles, 'profile')}",
        f"memory: about {byte_size(plan.memory_bytes)} of the model and a context of each profile",
        "\n".join(clean(f"wrote {path}") for path in plan.written),
        clean(build_command(plan)),
    ]
    return "\n\n".join(block for block in blocks if block)
