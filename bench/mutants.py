"""The proof tested by mutation: does it see that one attribute or weight of one parsed layer is another?

    python bench/mutants.py [--networks NAME,NAME] [--limit 25] [--seed 0] [--prove quick] [--resume ROWS.jsonl]
    python bench/mutants.py --holes

Between TensorRT's parser and the proof one layer of the `INetworkDefinition` is changed through TensorRT's own API, and
`trtconv.check` judges the network with its default proof. Another judge (`mutant_oracle.py`) says whether the change
does anything at all. Writes bench/results/mutants.json, and prints a table by kind of layer. A run that was cut off
goes on where it stopped when it is given the same file of rows.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from holes import Hole, holes, rogue  # noqa: E402
from in_process import in_process  # noqa: E402
from mutant_networks import Network as Case  # noqa: E402
from mutant_networks import all_networks  # noqa: E402
from mutant_oracle import Verdict, feeds, judge, judge_models  # noqa: E402
from mutant_twins import twin  # noqa: E402
from mutating import Change, apply, changes  # noqa: E402

import trtconv  # noqa: E402
from trtconv.core.dims import Range  # noqa: E402
from trtconv.core.findings import Severity  # noqa: E402
from trtconv.graph.model import OnnxModel  # noqa: E402
from trtconv.runtimes.tensorrt.adapter import Installed  # noqa: E402
from trtconv.runtimes.tensorrt.base import EngineBlob  # noqa: E402
from trtconv.runtimes.tensorrt.network import Network  # noqa: E402
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "mutants.json"
LEFT = ("survived", "not shown", "crashed")
UNCHANGED = "unchanged"
"""Kind of the row of a network that nothing was changed in."""
COLUMNS = ("made", "caught", "not shown", "survived", "crashed", "equivalent", "not known")

Mutate = Callable[[Any, Any], Change | None]
"""Changes an `INetworkDefinition` of a TensorRT module; returns what it did, None where it could not."""


class Parsed:
    """What a check had parsed, and read back."""

    def __init__(self) -> None:
        self.model = b""
        self.before: ReadNetwork | None = None
        self.after: ReadNetwork | None = None
        self.change: Change | None = None


@contextlib.contextmanager
def changed(mutate: Mutate) -> Iterator[Parsed]:
    """Has every network that is read back meanwhile changed first; no engine is built of it."""
    parsed = Parsed()
    read_back, parse = Network.read_back, Installed.parse

    def read_changed(network: Network) -> ReadNetwork:
        parsed.before = read_back(network)
        parsed.change = mutate(network._trt, network._handles.network)
        parsed.after = read_back(network)
        return parsed.after

    def remember(runtime: Installed, model: bytes, path: Path) -> Any:
        parsed.model = model
        return parse(runtime, model, path)

    with (
        mock.patch.object(Network, "read_back", read_changed),
        mock.patch.object(Installed, "parse", remember),
        mock.patch.object(Network, "faults", lambda network, plan: ()),
        mock.patch.object(Network, "build", lambda network, plan, monitor=None: EngineBlob(memoryview(b""), (), ())),
        in_process(),
    ):
        yield parsed


def outcome(report: Any) -> tuple[str, str]:
    """Returns what a report says of a network: "caught", "not shown" or "passed", and why."""
    for finding in report.findings:
        if finding.code == "TC402":
            return "caught", finding.message
    # That TensorRT-RTX has no kernel for it, which a rule knows, says nothing of a mutant.
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR and finding.code != "TC204"]
    if errors:
        return "caught", errors[0].message
    proof = report.proof
    if proof is None or proof.agrees is not True or proof.missing:
        return "not shown", "" if proof is None else proof.why or str(proof.missing[:2])
    return "passed", ""


class Bench:
    """Makes and judges mutants of one network.

    Args:
        case: The network.
        folder: Where its file is written.
        prove: The proof's level.
    """

    def __init__(self, case: Case, folder: Path, prove: str) -> None:
        self.case = case
        self.path = folder / f"{case.name}.onnx"
        proto = case.make()
        onnx.save_model(proto, self.path)
        self._inputs = OnnxModel(proto, self.path).inputs
        self._request = trtconv.CheckRequest(self.path, prove=prove)
        self._tried = list(feeds(self._inputs, case.sizes, zlib.crc32(case.name.encode())))

    def check(self, mutate: Mutate) -> tuple[Parsed, str, str]:
        """Checks the network with a change."""
        with changed(mutate) as parsed:
            try:
                return parsed, *outcome(trtconv.check(self._request))
            except Exception as error:  # A bug, which is told and counts as one.
                return parsed, "crashed", repr(error)

    def count(self, seed: int) -> list[tuple[str, str]]:
        """Returns kind and attribute of each change that there is."""
        found: list[tuple[str, str]] = []

        def look(trt: Any, network: Any) -> None:
            found.extend((c.kind, c.attribute) for c in changes(trt, network, np.random.default_rng(seed), []))

        self.check(look)
        return found

    def row(self, number: int, seed: int) -> dict[str, Any] | None:
        """Judges the change of that number; None where TensorRT does not take it."""
        kept: list[Any] = []

        def mutate(trt: Any, network: Any) -> Change | None:
            change = changes(trt, network, np.random.default_rng(seed), kept)[number]
            try:
                apply(trt, network, change)
            except Exception:  # pybind11 raises what it likes.
                return None
            return change

        parsed, told, why = self.check(mutate)
        before, after, change = parsed.before, parsed.after, parsed.change
        if before is None or after is None or change is None or _same(before, after):
            return None
        verdict = self._judged(parsed, before, after, change)
        return {
            "network": self.case.name,
            "number": number,
            "seed": seed,
            "kind": change.kind,
            "layer": before.layers[change.index].name,
            "attribute": change.attribute,
            "how": change.how,
            "told": told,
            "why": why[:300],
            "oracle": verdict.says,
            "by": verdict.by,
            "where": verdict.where,
        }

    def _judged(self, parsed: Parsed, before: ReadNetwork, after: ReadNetwork, change: Change) -> Verdict:
        model = twin(parsed.model, before, after, change.index)
        by_model = None if model is None else judge_models(parsed.model, model, self.path, self._tried)
        return by_model or judge(before, after, self._tried)


def _same(before: ReadNetwork, after: ReadNetwork) -> bool:
    return all(
        a.inputs == b.inputs
        and a.values.keys() == b.values.keys()
        and all(map(_equal, a.values.values(), b.values.values()))
        for a, b in zip(before.layers, after.layers, strict=True)
    )


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and (bool(a == b) or not isinstance(a, (int, float, str, tuple, type(None))))


def chosen(found: list[tuple[str, str]], limit: int, random: np.random.Generator) -> list[int]:
    """Chooses changes, every kind and attribute as often as another as far as there are any."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, key in enumerate(found):
        groups.setdefault(key, []).append(number)
    for numbers in groups.values():
        random.shuffle(numbers)
    order = list(groups)
    random.shuffle(order)
    taken: list[int] = []
    while len(taken) < min(limit, len(found)):
        for key in order:
            if groups[key] and len(taken) < limit:
                taken.append(groups[key].pop())
    return taken


def column(row: dict[str, Any]) -> str:
    """Returns which column of the table a mutant counts in."""
    if row["told"] == "crashed":
        return "crashed"
    if row["oracle"] != "different":
        return str(row["oracle"])
    return "survived" if row["told"] == "passed" else str(row["told"])


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the table by kind."""
    kinds = collections.Counter(row["kind"] for row in rows)
    lines = ["| kind | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for kind, made in [*kinds.most_common(), ("all", len(rows))]:
        counts = collections.Counter(column(row) for row in rows if kind in ("all", row["kind"]))
        cells = [made, *(counts[name] or "" for name in COLUMNS[1:])]
        lines.append(f"| {kind} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the counts."""
    alarms = [row["network"] for row in rows if row["kind"] == UNCHANGED and row["told"] == "caught"]
    rows = [row for row in rows if row["kind"] != UNCHANGED]
    counts = collections.Counter(column(row) for row in rows)
    decidable = sum(counts[name] for name in ("caught", "not shown", "survived", "crashed"))
    return {
        "networks": len({row["network"] for row in rows}),
        "mutants": len(rows),
        **counts,
        "decidable": decidable,
        "caught_share": round(counts["caught"] / decidable, 4) if decidable else None,
        "judged_by_onnx_runtime": sum(row["by"] != "interpreter" for row in rows),
        "false_alarms": alarms,
    }


def run(names: list[str], limit: int, seed: int, prove: str, done: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yields what became of each mutant, and at last of each network as it is (kind "unchanged")."""
    with tempfile.TemporaryDirectory() as folder:
        for case in all_networks():
            if (names and case.name not in names) or case.name in done:
                continue
            bench = Bench(case, Path(folder), prove)
            _, told, why = bench.check(lambda trt, network: None)
            unchanged = {"network": case.name, "kind": UNCHANGED, "told": told, "why": why}
            found = bench.count(seed)
            # Some are not taken by TensorRT: others stand in.
            random, made = np.random.default_rng([seed, zlib.crc32(case.name.encode())]), 0
            for number in chosen(found, 2 * limit, random):
                row = bench.row(number, seed)
                made += row is not None
                if row is not None:
                    yield row
                if made == limit:
                    break
            yield unchanged


def read_rows(path: Path | None) -> list[dict[str, Any]]:
    """Reads the rows of an earlier run, of those networks that it finished."""
    if path is None or not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    finished = {row["network"] for row in rows if row["kind"] == UNCHANGED}
    return [row for row in rows if row["network"] in finished]


def judge_holes(prove: str) -> Iterator[dict[str, Any]]:
    """Yields what the proof says of each change on purpose."""
    with tempfile.TemporaryDirectory() as folder:
        for hole in holes():
            path = Path(folder) / f"{hole.network.name}.onnx"
            onnx.save_model(hole.network.make(), path)
            told, why = judge_hole(hole, path, prove)
            yield {"hole": hole.name, "what": hole.what, "told": told, "why": why[:200]}


def judge_hole(hole: Hole, path: Path, prove: str) -> tuple[str, str]:
    """Returns what the proof says of one, and why."""
    kept: list[Any] = []
    dims = {name: Range(*bounds) for name, bounds in hole.dims.items()}
    with changed(lambda trt, network: hole.edit(trt, network, kept)), rogue(hole.rogue):
        return outcome(trtconv.check(trtconv.CheckRequest(path, dims=dims, prove=prove)))


def main() -> None:
    """Makes and judges the mutants, or the holes."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--networks", default="", help="names, joined by commas; default: all")
    arguments.add_argument("--limit", type=int, default=25, help="mutants of each network")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--prove", default=trtconv.CheckRequest(Path()).prove)
    arguments.add_argument("--holes", action="store_true", help="the changes made on purpose")
    arguments.add_argument("--output", type=Path, default=RESULTS)
    arguments.add_argument("--resume", type=Path, help="rows, one a line: of an earlier run, and where they are added")
    options = arguments.parse_args()
    if options.holes:
        for row in judge_holes(options.prove):
            print(json.dumps(row), flush=True)
        return
    started, rows = time.perf_counter(), read_rows(options.resume)
    done = {row["network"] for row in rows}
    if options.resume is not None:
        options.resume.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    names = [each for each in options.networks.split(",") if each]
    for row in run(names, options.limit, options.seed, options.prove, done):
        rows.append(row)
        if options.resume is not None:
            with options.resume.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if row["told"] != "passed" if row["kind"] == UNCHANGED else column(row) in LEFT:
            print(json.dumps(row), flush=True)
    report(rows, round(time.perf_counter() - started), options.prove, options.output)


def report(rows: list[dict[str, Any]], seconds: int, prove: str, path: Path) -> None:
    """Prints the table and the counts, and writes them with the mutants that are left."""
    mutants = [row for row in rows if row["kind"] != UNCHANGED]
    print(table(mutants))
    told = {**summary(rows), "seconds": seconds, "prove": prove}
    print(json.dumps(told, indent=1))
    left = [row for row in mutants if column(row) in LEFT]
    by_kind = {
        kind: dict(collections.Counter(column(row) for row in mutants if row["kind"] == kind))
        for kind in sorted({row["kind"] for row in mutants})
    }
    path.write_text(json.dumps({**told, "kinds": by_kind, "rows": left}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
