"""What verify and bench found; no numbers are made here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class VerifyReport(
    Document,
    keys="schema model against engine ran why_not_run runtime precision tolerance verified "
    "incomplete? worst cases proof self_check bisect seconds exit_code",
):
    """What `trtconv verify` found.

    Args:
        model: Path and SHA-256.
        against: Those of the model that it was compared with instead of its own; None where it was its own.
        engine: Path and SHA-256; None where there is none.
        ran: What was compared with the model: "engine"; "network", what TensorRT's parser made, run without a GPU;
            "rewritten model" where that could not be run either.
        why_not_run: Why the engine was not run; None where it was.
        runtime: Family, version and GPU that ran it; None where none did.
        precision: Whose tolerances hold.
        tolerance: The limits, as `Tolerance.to_json` writes them.
        cases: One a size: `profile`, `size`, `shapes`, `seed`, `outputs`, `passed`, `skipped`.
        bisect: The first tensor that diverges; None where it was not looked for.
        seconds: Wall time by stage.
        layers: How many layers of the network were run, where it was.
        unproven: Those that were not, as {layer, kind, reason}.
        self_check: Where the engine does not agree with itself, as {check, output, why}; None where that was not asked.
        incomplete: Why not all that should be was compared; empty where it was.
    """

    model: dict[str, Any]
    engine: dict[str, Any] | None
    ran: str
    why_not_run: str | None
    runtime: dict[str, Any] | None
    precision: str
    tolerance: dict[str, float]
    against: dict[str, Any] | None = None
    cases: tuple[dict[str, Any], ...] = ()
    bisect: dict[str, Any] | None = None
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    incomplete: str = ""
    layers: int = 0
    unproven: tuple[dict[str, str], ...] = ()
    self_check: tuple[dict[str, str], ...] | None = None

    @property
    def proof(self) -> dict[str, Any]:
        """What was proven, as `build` and `check` tell it."""
        told = {"engine": "engine", "network": "network"}
        compared = [case for case in self.cases if case["passed"] is not None]
        worst = self.worst
        return {
            "of": told.get(self.ran, "rewritten"),
            "sizes": len(compared),
            "layers": self.layers,
            "unproven": list(self.unproven),
            "max_relative_error": None if worst is None else worst["max_rel"],
            "worst": None if worst is None else {"output": worst["output"], "size": worst["size"]},
            "agrees": all(case["passed"] for case in compared) if compared else None,
        }

    @property
    def verified(self) -> bool:
        """Whether every size that had to be was compared, and is within the tolerance."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """1 where an output is beyond the tolerance, 4 where not all could be compared, else 0."""
        if any(case["passed"] is False for case in self.cases) or self.self_check:
            return 1
        return 4 if self.incomplete or not self.cases else 0

    @property
    def worst(self) -> dict[str, Any] | None:
        """The output that is furthest off, and where: `max_rel`, `output`, `profile`, `size`."""
        found = [
            {"max_rel": output["max_rel"], "output": output["name"], "profile": case["profile"], "size": case["size"]}
            for case in self.cases
            for output in case["outputs"]
            if isinstance(output["max_rel"], float) and output["max_rel"] == output["max_rel"]
        ]
        return max(found, key=lambda each: float(each["max_rel"]), default=None)


@frozen
class BenchReport(
    Document,
    keys="schema engines runtime rows ratios incomplete? seconds exit_code",
):
    """What `trtconv bench` measured.

    Args:
        engines: One or two: path, SHA-256, bytes, layers, memory.
        runtime: Family, version, GPU and driver.
        rows: One a size, an engine, and a way to run it; docs/reports.md has the keys.
        ratios: With two engines, for each size and way to run the first's time over the other's.
        seconds: Wall time by stage.
        incomplete: Why not all was timed; empty where it was.
    """

    engines: tuple[dict[str, Any], ...]
    runtime: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    ratios: tuple[dict[str, Any], ...] = ()
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    incomplete: str = ""

    @property
    def exit_code(self) -> int:
        """4 where not all was timed, else 0."""
        return 4 if self.incomplete or not self.rows else 0
