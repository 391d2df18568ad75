"""`trtconv doctor`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.versions import versions
from trtconv.core.errors import EnvironmentMissing

if TYPE_CHECKING:
    from trtconv.core.documents.commands import DoctorReport
    from trtconv.runtimes.tensorrt import RuntimeStatus


@click.command(
    "doctor",
    cls=Command,
    epilog="""\b
Examples:
  trtconv doctor
  trtconv doctor --format json | jq -r '.runtimes[] | select(.works) | .family'

\b
Exit status: 0 a TensorRT works here; 4 none does.
""",
)
@options.format_option("text", "json")
@options.quiet_anyway
def command(output_format: str) -> Outcome:
    """Show what is installed and which TensorRT works here.

    Lists versions, tries each TensorRT family, and says of one that does not work why, and what to do.
    """
    from trtconv.core.documents.commands import DoctorReport
    from trtconv.pipeline.extending.installed import installed
    from trtconv.runtimes.tensorrt import available
    from trtconv.runtimes.tensorrt.gpu import gpu_name

    statuses = available()
    exit_code = 0 if any(status.works for status in statuses) else EnvironmentMissing.exit_code
    system = (platform.python_version(), sys.executable, platform.platform())
    report = DoctorReport(*system, versions(), statuses, gpu_name(), installed(), exit_code)
    return Outcome.of(report, output_format, lambda own: _text(own, statuses))


def _text(report: DoctorReport, statuses: Sequence[RuntimeStatus]) -> str:
    from trtconv.cli.formats.wording import table
    from trtconv.core.text import clean

    rows = [("python", f"{report.python} on {report.platform}")]
    rows += [(package, version or "not installed") for package, version in report.packages.items()]
    rows.append(("GPU", clean(report.gpu or "none that CUDA offers")))
    lines = [*table(rows, ""), ""]
    for status in statuses:
        verdict = "works" if status.works else "does not work here" if status.installed else "not installed"
        version = f" {status.version}" if status.version else ""
        lines.append(f"runtime {status.family}{version}: {verdict}")
        if not status.works:
            lines += [f"  {clean(status.why)}"] if status.installed else []
            lines.append(f"  install: {status.install}")
            continue
        lines.append(f"  plugins: {len(status.plugins) or 'none'}")
        lines += [
            f"    {clean(plugin.name)} {plugin.version}: {clean(', '.join(plugin.fields))}" for plugin in status.plugins
        ]
    lines += [
        clean(f"extension {extension.name} of {extension.package}: off until --extend names it")
        for extension in report.extensions
    ]
    if not any(status.works for status in statuses):
        lines += ["", "No TensorRT works here: check and build need one."]
    return "\n".join(lines)
