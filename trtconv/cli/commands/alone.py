"""The work of `build` and `check` on one model: what a child does, which has read no arguments and knows no click."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from trtconv.cli.commands.many import CI_FORMATS, ManyFlags, ci_format, outcome_of_build, verdict_of
from trtconv.cli.process.outcome import FailedWithResult, Outcome
from trtconv.cli.process.working import at_work, build_early, load_onnx, start_early
from trtconv.core.errors import TrtconvError
from trtconv.core.files import atomic_write, openable
from trtconv.core.outputs import Output, check_all
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.files import files_read
from trtconv.runtimes.proof import SERVE

if TYPE_CHECKING:
    from trtconv.core.documents.build import BuildReport
    from trtconv.core.documents.check import CheckReport


def build_alone(flags: ManyFlags, request: BuildRequest, page: str | None) -> Outcome:
    """Builds one engine on this machine, and tells all of it."""
    is_new = request.force or not request.engine_path.exists()
    # Before onnx is loaded, which that has no use for.
    with build_early(request) if is_new else contextlib.nullcontext():
        return _build_whole(flags, request, page, is_new)


def _build_whole(flags: ManyFlags, request: BuildRequest, page: str | None, is_new: bool) -> Outcome:
    load_onnx()
    from trtconv.pipeline.building import build

    # A quick proof has often nothing to run, and says so early enough.
    if is_new and request.prove not in ("none", "quick"):
        start_early(SERVE)
    pages = [] if page is None else [openable(Path(page))]
    check_all([*request.outputs, *map(page_output, pages)], files_read(request))
    outputs = (request.engine_path, request.report_path, *pages)
    with at_work(flags.quiet, *outputs, before=request.report_path) as progress:
        report = build(request, progress)
    for path in pages:
        write_page(path, request, report)
    return outcome_of_build(report, flags)


def page_output(page: Path) -> Output:
    """Returns the page as something that is written."""
    return Output(page, "the page", hint="Write --page FILE.html.")


def write_page(page: Path, request: BuildRequest, report: BuildReport) -> None:
    """Writes the page about an engine that was built."""
    from trtconv.cli.formats.page import engine_page
    from trtconv.cli.formats.page.gather import with_measured

    atomic_write(page, engine_page(with_measured(request.report_path, report)), through_links=True)


def check_alone(flags: ManyFlags, request: CheckRequest) -> Outcome:
    """Checks one model, and tells all of it."""
    from trtconv.runtimes.tensorrt import is_installed, open_libraries

    # As in build: a quick proof has often nothing to run.
    runs = request.prove not in ("none", "quick") and is_installed(request.target)
    load_onnx()
    from trtconv.pipeline.checking import check

    if not runs and request.model.is_file():
        # While the model is read. Earlier, onnx would wait: the system opens one library at a time. Beside a thread
        # nothing is forked.
        open_libraries(request.target)
    if runs:
        start_early(SERVE)
    try:
        with at_work(flags.quiet) as progress:
            report = check(request, progress)
    except TrtconvError as error:
        if flags.output_format not in CI_FORMATS:
            raise
        from trtconv.pipeline.batch import failed_run

        # What reads these wants a document also of a model that could not be checked.
        document = ci_format(flags.output_format, [failed_run(request, error)])
        raise FailedWithResult(document, error, flags.output_format == "github") from error
    return Outcome(_render(report, flags), report.exit_code, flags.output_format == "github", verdict_of([report]))


def _render(report: CheckReport, flags: ManyFlags) -> str:
    if flags.output_format == "text":
        from trtconv.cli.formats.text import check_text

        return check_text(report, flags.verbose)
    if flags.output_format == "json":
        from trtconv.cli.formats.json import render

        return render(report.to_json())
    return ci_format(flags.output_format, [report])
