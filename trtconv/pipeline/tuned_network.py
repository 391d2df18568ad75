"""Whether the forms that `--tune` found the fastest of layers alone are so in the whole network, and hold there.

A layer alone has neighbours of no weight: what it costs to bring its tensors into another layout, or what another
kernel leaves in the cache, shows in the network only. So both networks are built, and their engines run. What alone is
right may fail there too, in the builder or the proof: a network that is built without `--tune` is built with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.tuned import TunedNetwork
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.findings import Severity
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.pipeline.racing import network_times
from trtconv.pipeline.respelling import RefusedNetwork
from trtconv.runtimes.tensorrt import EngineBlob, Runtime

Built = tuple[BuildReport, EngineBlob]
Made = tuple[BuildReport, EngineBlob | RefusedNetwork | None]
"""A report, and what has come of the network: nothing where the findings say why."""


def better(tuned: Made, build_usual: Callable[[], Made], engine: Runtime, clock: Stopwatch) -> Made:
    """Returns the network in the forms of `--tune`, or in the usual ones: where it fails in the former, or is slower.

    Args:
        tuned: The network in the forms of `--tune`.
        build_usual: Builds it in the usual ones.
        engine: The TensorRT that builds and runs them.
        clock: Times the race.
    """
    report, outcome = tuned
    if isinstance(outcome, EngineBlob):
        return _faster((report, outcome), build_usual, engine, clock)
    findings = outcome.findings if outcome is not None else report.findings
    usual, outcome = build_usual()
    if not isinstance(outcome, EngineBlob):
        return usual, outcome
    why = "".join(f" ({finding.code}: {finding.message})" for finding in findings if finding.severity is Severity.ERROR)
    note = f"the network fails in the forms of --tune{why}: built in the usual ones"
    return dataclasses.replace(usual, notes=(*usual.notes, note)), outcome


def _faster(tuned: Built, build_usual: Callable[[], Made], engine: Runtime, clock: Stopwatch) -> Built:
    """Returns the network of the faster engine: that of the tuned forms, or that of the usual ones."""
    try:
        loader = engine.engines()
    except EnvironmentMissing:
        # Another machine with the same GPU has measured the layers; nothing is run on this one.
        return tuned
    report, blob = build_usual()
    if not isinstance(blob, EngineBlob):
        return tuned
    with clock.stage(Stage.RACE):
        race = TunedNetwork(*network_times((tuned[1], blob), report.plan, loader))
    winner = tuned if race.is_faster else (report, blob)
    noted = dataclasses.replace(winner[0], tuned_network=race, notes=(*winner[0].notes, str(race)))
    return noted, winner[1]
