"""The second grammar of the fuzzer: sequences of commands over a stranger's folder, which others disturb meanwhile.

python tests/fuzz/sequences.py [--minutes 10] [--seed N]        until the time is up
python tests/fuzz/sequences.py --case 1234 [--keep FOLDER]      one case again

After each command: nothing outside what it writes has changed, no code ran, the exit status is in the table, nothing
hangs, and the verdict is that of the same command over the same models in a folder without anything else.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import folders
from folders import CACHE, OUTSIDE, PROJECT, TEMPORARY, Case
from harness import Fault, Worker, judge

from trtconv.core.errors import InputError
from trtconv.core.toml import read_toml

STRIDE = 1_000_000_000
_TOLD_SECONDS = 60.0
_KEPT_VERDICTS = 5000
_WRITTEN = ("jobs", "out", "store", "new.toml", "r.onnx", "p.html", "x.engine", "trtconv-crash", "plot.png", "m.json")
"""What commands are asked to write, besides engines and what lies beside them."""
_FOLDER = f"kind {stat.S_IFDIR:o}"
_SUFFIXES = (
    ".engine",
    ".engine.json",
    ".engine.json.json",
    ".verify.json",
    ".bench.json",
    ".onnx.data",
    ".plan",
    ".part",
)


def make_command(r: random.Random, case: Case) -> tuple[str, ...]:
    """Returns a command line."""
    model = r.choice(case.models)
    model = f"./{model}" if model.startswith("-") else model
    engine = r.choice(["a.engine", "r.engine", f"{Path(model).with_suffix('.engine')}", "x.engine"])
    return r.choice(
        [
            *[("build", "-q")] * 4,
            *[("check", "-q", "--format", r.choice(["text", "json", "sarif", "github", "junit"]))] * 3,
            ("build", "-q", "--force"),
            ("build", "-q", "--format", "json"),
            ("build", model, "-q", "--target", "rtx"),
            ("build", model, "-q", "--target", "rtx", "--dim", "n=2", "-o", "x.engine"),
            ("build", model, "-q", "--target", "rtx", "--dim", "n=2", "-o", r.choice([model, "jobs", "l.engine"])),
            ("check", model, "-q", "--format", "json"),
            ("check", model, "--target", "tensorrt-8.6", "-q"),
            ("rewrite", model, "-o", "r.onnx", "-q"),
            ("init",),
            ("init", ".", "--force"),
            ("plan",),
            ("plan", "--write", "jobs"),
            ("plan", "--format", "json"),
            ("run-job", _job(r, case), "out"),
            ("run-job", _job(r, case), "out", "--format", "json"),
            ("collect", "out"),
            ("collect", "out", "store", "--format", "json"),
            ("report", ".", "-o", "p.html"),
            ("report", engine, "-o", "p.html"),
            ("inspect", engine),
            ("verify", model, engine),
            ("diff", engine, "r.engine"),
            ("sizes", model, "--format", "json"),
            ("explain", model, "--node", "0"),
            ("triton", engine, "out"),
            ("rewrite", model, "-o", "gone/../r.onnx", "-q"),
            ("warm", engine),
            ("build", "-q", "--config", r.choice(["trtconv.toml", "fifo", "sub", "new.toml", "../outside/victim.sh"])),
            ("quantize", model, "-o", "r.onnx", "--random", "--samples", "2", "--dim", "n=2", "-q"),
            ("quantize", model, "-o", "r.onnx", "--data", r.choice(["s.npz", "samples", "fifo", "."])),
        ]
    )


def _job(r: random.Random, case: Case) -> str:
    folder = case.project / "jobs"
    found = sorted(path.name for path in folder.iterdir() if path.suffix == ".json") if folder.is_dir() else []
    return f"jobs/{r.choice(found)}" if found else "jobs/none.json"


class Verdicts:
    """What commands end with in a folder that has the inputs of a case and nothing else.

    Args:
        worker: Runs them.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._known: dict[str, dict[str, Any] | None] = {}

    def of(self, command: tuple[str, ...], inputs: dict[str, bytes]) -> dict[str, Any] | None:
        """Returns how a command ends; None where it does not."""
        said = [command, sorted((name, hashlib.sha256(data).hexdigest()) for name, data in inputs.items())]
        key = json.dumps(said)
        if key not in self._known:
            if len(self._known) > _KEPT_VERDICTS:
                self._known.clear()
            with tempfile.TemporaryDirectory() as name:
                root = Path(name)
                for folder in ("project", TEMPORARY, CACHE):
                    (root / folder).mkdir()
                for path, data in inputs.items():
                    (root / "project" / path).parent.mkdir(parents=True, exist_ok=True)
                    (root / "project" / path).write_bytes(data)
                self._known[key] = answered(self._worker, command, root)
        return self._known[key]


def answered(worker: Worker, command: tuple[str, ...], root: Path) -> dict[str, Any] | None:
    """Runs a command in the project of a case."""
    cache = {"XDG_CACHE_HOME": str(root / CACHE)}
    return worker.answer(command, root / "project", temporary=f"../{TEMPORARY}", environment=cache)


def inputs_of(case: Case) -> dict[str, bytes]:
    """Returns the files that a verdict is about: models, their data, the configuration."""
    found = {}
    for path in case.project.rglob("*"):
        is_input = path.suffix in (".onnx", ".bin", ".toml") and path.is_file() and not path.is_symlink()
        if is_input and path.stat().st_size < 1 << 26:
            found[path.relative_to(case.project).as_posix()] = path.read_bytes()
    return found


def protected(case: Case) -> dict[str, str]:
    """Returns what no command may change."""
    found = {f"{OUTSIDE}/{name}": told for name, told in folders.picture(case.root / OUTSIDE).items()}
    for name, told in folders.picture(case.project).items():
        is_output = name.split("/")[0].startswith(_WRITTEN) or name.endswith(_SUFFIXES) or told == _FOLDER
        is_output = is_output and told != hashlib.sha256(folders.FOREIGN).hexdigest()
        # Where a link leads may be written, unless that is outside; the link stays.
        if not is_output or told.startswith("link"):
            found[f"{PROJECT}/{name}"] = told
    return found


def run_case(case: Case, r: random.Random, worker: Worker, verdicts: Verdicts, counts: Counter[str]) -> Iterator[Fault]:
    """Runs the commands of a case; yields what is wrong."""
    done: list[str] = []
    for _ in range(r.randint(2, 6)):
        if done and r.random() < 0.4:
            done.append(folders.disturb(r, case))
            counts["disturbances"] += 1
        command = make_command(r, case)
        before, typed, inputs = protected(case), outputs_named(command, case), inputs_of(case)
        answer = answered(worker, command, case.root)
        name = f"case {case.number} ({'; '.join(done)})"
        done.append(" ".join(command))
        counts["commands"] += 1
        if answer is None:
            yield Fault(name, command, "the worker itself died", "")
            continue
        counts[f"{command[0]} {answer['code']}"] += 1
        wrong = [fault.what for fault in judge(name, command, answer)]
        wrong += [f"code ran: {case.ran()}"] if case.ran() else []
        wrong += _changes(before, protected(case), typed)
        wrong += _claims(case, command, answer)
        wrong += _other_verdict(command, answer, inputs, verdicts, counts)
        yield from (Fault(name, command, what, f"{answer['stdout'][-1000:]}\n{answer['stderr']}") for what in wrong)
        if wrong:
            return


def outputs_named(command: tuple[str, ...], case: Case) -> list[str]:
    """Returns where the outputs lead, from the case's folder, that the user typed, or that are new and configured."""
    after = [command[i + 1] for i, flag in enumerate(command[:-1]) if flag in ("-o", "--write")]
    after += command[2:3] if command[0] == "run-job" else []
    after += ["trtconv.toml"] if command[0] == "init" and not (case.project / "trtconv.toml").is_symlink() else []
    after += _new_engines(case)
    leads = [os.path.relpath(os.path.realpath(case.project / name), os.path.realpath(case.root)) for name in after]
    # With --force a link is not followed: the configuration takes its place.
    return leads + ([f"{PROJECT}/trtconv.toml"] if command[0] == "init" and "--force" in command else [])


def _new_engines(case: Case) -> list[str]:
    """Returns files that the configuration names, in its folder, which are not there; and the reports beside them."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError, InputError):
        models = read_toml(case.project / "trtconv.toml")["models"]
        names = {each["engine"] for each in models if "engine" in each}
        inside = {name for name in names if (case.project / name).resolve().parent == case.project.resolve()}
        named = [
            f"{name}{end}" for name in sorted(inside) for end in ("", ".json") if not Path(name).name.startswith(".")
        ]
        return [name for name in named if not os.path.lexists(case.project / name)]
    return []


def _changes(before: dict[str, str], after: dict[str, str], typed: list[str]) -> list[str]:
    """Returns what changed that no command may change, or that the user did not name."""
    names = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    different = sorted(name for name in names if not f"{name}/".startswith(tuple(f"{each}/" for each in typed)))
    return [f"changed outside the outputs: {different[:4]}"] if different else []


def _claims(case: Case, command: tuple[str, ...], answer: dict[str, Any]) -> list[str]:
    """Returns what a build says that it wrote, and did not; each engine is a file of its own."""
    if command[0] != "build" or "json" not in command or answer["code"] not in (0, 1):
        return []
    document = json.loads(answer["stdout"])
    runs = [run for run in document.get("runs", [document]) if run.get("exit_code") == 0 and run.get("engine")]
    wrong = []
    for run in runs:
        path = case.project / run["engine"]["path"]
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != run["engine"]["sha256"]:
            wrong.append(f"the engine is not what was told: {run['engine']['path']}")
    files = [(case.project / run["engine"]["path"]).stat().st_ino for run in runs] if not wrong else []
    return wrong + (["two engines in one file"] if len(set(files)) != len(files) else [])


def _other_verdict(
    command: tuple[str, ...],
    answer: dict[str, Any],
    inputs: dict[str, bytes],
    verdicts: Verdicts,
    counts: Counter[str],
) -> list[str]:
    """Returns what a folder made a command say of a model that it does not say elsewhere.

    Outputs that cannot be written, and inputs that are not files, may be refused; nothing becomes right by them.
    """
    if command[0] not in ("check", "build", "sizes", "rewrite") or answer["code"] not in (0, 1):
        return []
    clean = verdicts.of(command, inputs)
    counts["verdicts compared"] += 1
    if clean is None or clean["code"] == answer["code"] or clean.get("hung"):
        return []
    return [f"a verdict that a clean folder does not give: {answer['code']}, there {clean['code']}"]


def fuzz(first: int, minutes: float, cases: int | None = None) -> Iterator[Fault | Counter[str]]:
    """Runs cases; yields faults and counts as they come.

    Args:
        first: Number of the first case.
        minutes: After so long no further case is begun.
        cases: How many cases; None: as many as there is time for.
    """
    deadline = time.monotonic() + minutes * 60
    with Worker() as worker, tempfile.TemporaryDirectory() as root:
        verdicts = Verdicts(worker)
        number = first
        while time.monotonic() < deadline and (cases is None or number < first + cases):
            counts: Counter[str] = Counter(cases=1)
            yield from one(number, Path(root) / "case", worker, verdicts, counts)
            yield counts
            number += 1


def one(number: int, root: Path, worker: Worker, verdicts: Verdicts, counts: Counter[str]) -> Iterator[Fault]:
    """Makes a case, runs it, and removes it."""
    r = random.Random(number)
    root.mkdir(parents=True)
    try:
        yield from run_case(folders.make(number, root, r), r, worker, verdicts, counts)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def main() -> int:
    """Returns 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="default: by the clock")
    parser.add_argument("--case", type=int)
    parser.add_argument("--keep", type=Path, help="where the folder of the case is made, and stays")
    arguments = parser.parse_args()
    if arguments.case is not None:
        return _one_case(arguments.case, arguments.keep)
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    counts: Counter[str] = Counter()
    started = told = time.monotonic()
    for each in fuzz(seed * STRIDE, arguments.minutes):
        if isinstance(each, Fault):
            counts["faults"] += 1
            sys.stdout.write(f"{each}\n\n")
        else:
            counts += each
        if time.monotonic() - told > _TOLD_SECONDS:
            told = time.monotonic()
            sys.stdout.write(f"{(told - started) / 60:.0f} min: {_summary(counts)}\n")
        sys.stdout.flush()
    statuses = ", ".join(f"{key}: {number}" for key, number in sorted(counts.items()) if key[-1:].isdigit())
    sys.stdout.write(f"exit statuses: {statuses}\nseed {seed}: {_summary(counts)}\n")
    return 1 if counts["faults"] else 0


def _summary(counts: Counter[str]) -> str:
    told = ("cases", "commands", "disturbances", "verdicts compared", "faults")
    return ", ".join(f"{counts[name]} {name}" for name in told)


def _one_case(number: int, keep: Path | None) -> int:
    wrong = 0
    with Worker() as worker, tempfile.TemporaryDirectory() as folder:
        root = keep or Path(folder) / "case"
        root.mkdir(parents=True, exist_ok=True)
        r = random.Random(number)
        for fault in run_case(folders.make(number, root, r), r, worker, Verdicts(worker), Counter()):
            wrong += 1
            sys.stdout.write(f"{fault}\n\n")
    sys.stdout.write(f"{wrong} faults\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
