"""`make mutants ROOM=graph`: whether the tests of a room notice changes of its code.

A copy of the repository runs the tests that concern the room once, under coverage. Then each mutant of a sample is run
with tests that reach the changed line, the quick ones first: one that fails has killed it. What survives is a test that
is missing, or is equivalent and stands, with its reason, in equivalent.toml.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import coverage
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]
from sample import Mutant, mutants  # noqa: E402

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

ROOMS = {
    "graph": [
        "unit/graph",
        "unit/rules",
        "unit/passes",
        "unit/passes/test_passes_node_suite.py",
        "unit/precision/test_[ceqr]*.py",
        "unit/explainer",
        "unit/engine/test_engine_bisect.py",
        "unit/core/test_outputs.py",
        "unit/shapes/test_[lpt]*.py",
        "unit/pipeline/test_[cpt]*.py",
        "unit/runtimes/test_[dl]*.py",
    ],
    "passes": [
        "unit/passes",
        "unit/passes/test_passes_node_suite.py",
        "unit/passes/test_passes_quant_exact.py",
        "unit/pipeline/test_rule_equality.py",
        "unit/pipeline/test_tuning.py",
        "unit/shapes/test_traced.py",
    ],
    "rules": ["unit/rules", "unit/passes/test_pass*.py"],
    "shapes": [
        "unit/shapes",
        "unit/shapes/test_lattice_backend.py",
        "unit/shapes/test_lattice_long.py",
        "unit/shapes/test_lattice_torch.py",
        "unit/rules/test_rules_sizes.py",
        "unit/graph/test_constants.py",
        "unit/passes/test_passes_match_skip.py",
        "unit/core/test_named_sizes.py",
        "unit/runtimes/test_layer_table.py",
        "unit/pipeline/test_extensions.py",
        "cli/test_plan_profiles_command.py",
        "cli/test_sizes_command.py",
    ],
    "runtimes/proof": [
        "unit/runtimes",
        "unit/plugins/test_plugins_in_builds.py",
        "runtime/test_io_build.py",
        "runtime/test_misreadings.py",
        "runtime/test_mutants.py",
        "runtime/test_proof_pieces.py",
        "runtime/test_proof_terms.py",
        "runtime/test_quantized_build.py",
        "runtime/test_spelling_proof.py",
        "runtime/test_verify_proof.py",
    ],
    "runtimes/compare": ["unit/runtimes/test_compare.py"],
    "precision/quantize": ["unit/precision", "unit/graph/test_images.py", "unit/pipeline/test_quantizing.py"],
    "pipeline": [
        "unit/pipeline",
        "unit/engine/test_pipelines.py",
        "unit/graph/test_images.py",
        "unit/graph/test_resolved.py",
        "unit/precision/test_mixing.py",
        "unit/shapes/test_pro*.py",
        "cli/test_partition.py",
    ],
    "engine": [
        "unit/engine",
        "unit/pipeline/test_freed.py",
        "cli/test_partition.py",
    ],
    "core": ["unit/core", "unit/pipeline/test_cutting.py", "unit/shapes/test_profiles.py"],
    "cli/process": ["unit/cli", "cli/test_boundary.py", "cli/test_terminal.py", "cli/test_suggestions.py"],
}
"""Rooms of trtconv/ to what concerns each in tests/: of folders what is not slow, and the files that are named."""
UNSAFE = (
    "cli/process/watching.py",
    "core/background.py",
    "core/files.py",
    "core/forking.py",
    "core/leftovers.py",
    "core/process.py",
    "core/scratch.py",
    "engine/farm/pruning.py",
    "engine/farm/slurm.py",
    "pipeline/part_files.py",
)
"""Files of trtconv/ that remove files or end processes: changed, they may remove or end what is not theirs."""
_SECONDS = 40.0
"""How long the tests of one mutant compute together, as they were measured: at most."""
_PATIENCE = 8.0
"""How many times as long they may take before the mutant counts as one that never ends."""


def main() -> None:
    """Prints what survives, and the room's score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--number", type=int, default=40, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", help="where the copy and the results go")
    asked = parser.parse_args()
    folder = asked.folder / asked.room.replace("/", "-")
    copy = _copied(folder / "copy")
    os.chdir(copy)
    reaching = Reaching(folder, asked.room)
    drawn = mutants(_files(asked.room), asked.number, asked.seed)
    results = [_tried(mutant, reaching) for mutant in drawn]
    (folder / f"seed-{asked.seed}.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    _print_score(asked.room, results)


class Reaching:
    """Which tests reach a line, and how long each takes.

    Args:
        folder: Where the measurement goes.
        room: The room.
    """

    def __init__(self, folder: Path, room: str) -> None:
        tests = sorted({str(path) for place in ROOMS[room] for path in _tests(place)})
        data, times = folder / "coverage", folder / "times.json"
        how = [
            "-m",
            "pytest",
            "-q",
            "-p",
            "contexts",
            "-p",
            "no:cacheprovider",
            *tests,
        ]
        source = f"--source=trtconv/{room}" if Path("trtconv", room).is_dir() else "--include=trtconv/" + room + ".py"
        command = [sys.executable, "-m", "coverage", "run", f"--data-file={data}", source, *how]
        state, code = folder / "measured", _digest()
        if not state.is_file() or state.read_text("utf-8") != code:
            told = {"TEST_TIMES": str(times.resolve()), "TEST_ROOM": f"trtconv.{room.replace('/', '.')}"}
            subprocess.run(command, check=True, env={**_environment(), **told})
            state.write_text(code, "utf-8")
        self._data = coverage.CoverageData(str(data))
        self._data.read()
        self._seconds: dict[str, float] = json.loads(times.read_text("utf-8"))

    def tests(self, mutant: Mutant) -> list[str]:
        """Returns the tests for a mutant: the quick ones first, and further cases of a function behind other ones."""
        lines = self._data.contexts_by_lineno(str(mutant.path.resolve()))
        reaching = {test for test in lines.get(mutant.line, ()) if test and not _runs_on_import(mutant)}
        # What runs on import, or in another process, is reached by whatever tests reach the file, or else by any.
        reaching = reaching or {test for tests in lines.values() for test in tests if test} or set(self._seconds)
        number: Counter[str] = Counter()
        ranked = []
        for test in sorted(reaching, key=lambda test: (self._time(test), test)):
            function = test.partition("[")[0]
            number[function] += 1
            # Cases that take no time are all tried, however many: the one that tells may be any.
            ranked.append((number[function] * self._time(test), number[function], self._time(test), test))
        chosen: list[str] = []
        seconds = 0.0
        for _, _, took, test in sorted(ranked):
            if chosen and seconds + took > _SECONDS:
                # Quicker ones may follow: the later cases of a function.
                continue
            chosen.append(test)
            seconds += took
        return chosen

    def seconds(self, tests: list[str]) -> float:
        """Returns how long some tests took together."""
        return sum(map(self._time, tests))

    def _time(self, test: str) -> float:
        return self._seconds.get(test, 1.0)


def _runs_on_import(mutant: Mutant) -> bool:
    """Whether a line stands in no function: it concerns others than the test that happened to import it first."""
    functions = (node for node in ast.walk(ast.parse(mutant.code)) if isinstance(node, ast.FunctionDef))
    return not any(node.body[0].lineno <= mutant.line <= (node.end_lineno or 0) for node in functions)


def _tried(mutant: Mutant, reaching: Reaching) -> dict[str, object]:
    tests = reaching.tests(mutant)
    began, original = time.monotonic(), mutant.path.read_text("utf-8")
    mutant.path.write_text(mutant.code, "utf-8")
    os.environ.update(_environment())
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *tests]
    try:
        outcome, output = run_tests(shlex.join(command), 60 + _PATIENCE * reaching.seconds(tests))
    finally:
        mutant.path.write_text(original, "utf-8")
    killed = outcome == TestOutcome.KILLED
    why = None if killed else equivalent(mutant)
    found = {
        "place": f"{mutant.path}:{mutant.line}",
        "operator": mutant.operator,
        "before": mutant.before,
        "after": mutant.after,
        "outcome": "killed" if killed else "equivalent" if why else "survived",
        "by": next((line for line in output.splitlines() if line.startswith("FAILED")), "")[:200],
        "tests": len(tests),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(f"{found['outcome']:10} {found['place']} {mutant.operator} ({len(tests)} tests, {found['seconds']} s)")
    if not killed:
        print(f"    - {mutant.before}\n    + {mutant.after}" + (f"\n    {why}" if why else ""), flush=True)
    return found


def equivalent(mutant: Mutant) -> str | None:
    """Returns why a mutant does what the code does; None where nobody has said that it does."""
    listed = tomllib.loads((ROOT / "tests/mutation/equivalent.toml").read_text("utf-8")).get("mutant", [])
    said = (str(mutant.path), mutant.before, mutant.after)
    entries = ((each["file"], each["before"], each.get("after", mutant.after), each["why"]) for each in listed)
    return next((why for *change, why in entries if tuple(change) == said), None)


def _print_score(room: str, results: list[dict[str, object]]) -> None:
    outcomes = [result["outcome"] for result in results]
    telling = len(outcomes) - outcomes.count("equivalent")
    killed = outcomes.count("killed")
    score = f"{100 * killed / telling:.0f} %" if telling else "-"
    print(f"{room}: {killed} of {telling} killed ({score}), {outcomes.count('equivalent')} equivalent")


def _tests(place: str) -> list[Path]:
    """Returns the files of tests at a place; of a folder not the slow ones, which tests/conftest.py lists."""
    from conftest import SLOW

    tests = Path("tests")
    if not (tests / place).is_dir():
        return sorted(tests.glob(place))
    slow = tuple(str(tests / each) for each in SLOW)
    return [path for path in sorted((tests / place).rglob("test_*.py")) if not str(path).startswith(slow)]


def _files(room: str) -> list[Path]:
    place = Path("trtconv", room)
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return [path for path in files if path.relative_to("trtconv").as_posix() not in UNSAFE]


def _copied(copy: Path) -> Path:
    """Copies what git has or would have: the working tree is never changed, whatever ends this."""
    shutil.rmtree(copy, ignore_errors=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def _digest() -> str:
    """Returns a hash of the code and the tests in the working directory: another seed needs no other measurement."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in ("trtconv", "tests") for path in Path(folder).rglob("*.py")):
        digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _environment() -> dict[str, str]:
    places = os.pathsep.join([str(Path.cwd()), str(Path("tests/mutation").resolve())])
    # A mutant that removes what others left in the folder for temporary files has one of its own.
    temporary = Path.cwd().parent / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(temporary)}


if __name__ == "__main__":
    main()
