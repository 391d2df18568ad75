"""What `build --as` takes of another build's report: the tactic of each layer, and the forms of its nodes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from trtconv.core.documents.before import BuiltBefore
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.saved import load_report
from trtconv.core.documents.tactics import tactics_digest
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.runtimes.tensorrt import RuntimeInfo


def built_before(path: Path) -> BuiltBefore:
    """Reads what a build takes of the report of an engine.

    Raises:
        InputError: The file is not the report of a build that tells of tactics.
    """
    saved = load_report(path).report
    if saved.engine is None or not saved.engine.tactics:
        raise InputError(f"{path} does not tell which tactics its layers got", "Build that engine with --keep-tactics.")
    return BuiltBefore(saved.runtime.family, saved.runtime.version, saved.engine.tactics, saved.forms)


def with_tactics(draft: BuildReport, request: BuildRequest, info: RuntimeInfo) -> BuildReport:
    """Returns the report that a build begins with, with the tactics and the forms that it is to take.

    Raises:
        InputError: The file is not the report of a build that has tactics of this TensorRT.
        EnvironmentMissing: This TensorRT takes none.
    """
    if info.family == "rtx":
        raise EnvironmentMissing(
            "--as has no effect on TensorRT-RTX, which chooses kernels where the engine runs",
            "Leave out --as; trtconv warm keeps the kernels that were compiled on one machine.",
        )
    path = request.tactics_of
    before = request.before if path is None else built_before(path)
    assert before is not None
    if (before.family, before.version) != (info.family, info.version):
        raise InputError(
            f"the tactics of {path or 'the job'} are those of {before.family} {before.version}, and {info.family} "
            f"{info.version} builds",
            "Build with the same version of TensorRT: what a number means is its own affair.",
        )
    plan = dataclasses.replace(draft.plan, tactics=before.tactics, tactics_sha256=tactics_digest(before.tactics))
    return dataclasses.replace(draft, plan=plan, respelled=before.forms)
