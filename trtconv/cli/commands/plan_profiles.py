"""`trtconv plan-profiles`."""

from __future__ import annotations

import click

from trtconv.cli import options
from trtconv.cli.process.isolated import IsolatedCommand
from trtconv.cli.process.outcome import Outcome
from trtconv.core.requests.traffic import PlanProfilesRequest


@click.command(
    "plan-profiles",
    cls=IsolatedCommand,
    epilog="""\b
Examples:
  At most three profiles for the requests of one day, with a dispatcher:
    trtconv plan-profiles monday.csv unet.onnx --profiles 3 -o plan
  With times of this GPU in place of an estimate:
    trtconv bench unet.engine --format json > bench.json
    trtconv plan-profiles monday.csv unet.onnx --measured bench.json

\b
Exit status: 0 planned; 2 a bad call, a bad table, or sizes that the network does not accept.
""",
)
@click.argument("traffic", metavar="TRAFFIC.csv")
@options.model_argument
@options.for_models
@options.asking(PlanProfilesRequest)
@options.format_option("text", "json")
@options.quiet_anyway
def command(arguments: options.Flags[PlanProfilesRequest], traffic: str, model: str, output_format: str) -> Outcome:
    """Divide the sizes of requests into the profiles that cost least.

    TRAFFIC.csv has a column `count`, and a column for every dynamic dimension by its name. A request runs at its own
    size in the profile whose opt suits it best, or padded, where that is cheaper or the network does not accept its
    size. The last line is the build that makes the profiles; -o writes it as trtconv.toml takes it, with code in
    Python and C++ that picks the profile of a request and pads it.
    """
    from trtconv.cli.formats.traffic import plan_text
    from trtconv.shapes.planning.writing import plan_profiles

    plan = plan_profiles(arguments.request(traffic=traffic, model=model))
    return Outcome.of(plan, output_format, plan_text)
