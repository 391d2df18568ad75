"""What `build --as` takes of another build's report: the tactic of each layer, and the forms of its nodes."""

from __future__ import annotations

import dataclasses

from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.saved import load_report
from trtconv.core.documents.tactics import tactics_digest
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.runtimes.tensorrt import RuntimeInfo


def with_tactics(asked: BuildReport, request: BuildRequest, info: RuntimeInfo) -> BuildReport:
    """Returns the report that a build begins with, with the tactics and the forms that `--as` names, if it does.

    Raises:
        InputError: The file is not the report of a build that has tactics of this TensorRT.
        EnvironmentMissing: This TensorRT takes none.
    """
    if request.tactics_of is None:
        return asked
    if not info.capabilities.takes_tactics:
        raise EnvironmentMissing(
            "--as has no effect on TensorRT-RTX, which chooses kernels where the engine runs",
            "Leave out --as; trtconv warm keeps the kernels that were compiled on one machine.",
        )
    path = request.tactics_of
    saved = load_report(path).report
    if saved.engine is None or not saved.engine.tactics:
        raise InputError(f"{path} does not tell which tactics its layers got", "Build that engine with --keep-tactics.")
    theirs = saved.runtime
    if (theirs.family, theirs.version) != (info.family, info.version):
        raise InputError(
            f"the tactics of {path} are those of {theirs}, and {info.family} {info.version} builds here",
            "Build with the same version of TensorRT: what a number means is its own affair.",
        )
    tactics = saved.engine.tactics
    plan = dataclasses.replace(asked.plan, tactics=tactics, tactics_sha256=tactics_digest(tactics))
    return dataclasses.replace(asked, plan=plan, respelled=saved.forms)
