"""Fuzzes every command: broken models, functions and subgraphs, reports beside engines, trtconv.toml, arguments.

python tests/fuzz/fuzz.py [--minutes 10] [--seed N] [--jobs 2]      until the time is up
python tests/fuzz/fuzz.py --case 1234 [--keep FOLDER]               one case again
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import queue
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import broken
import drawing
import seeds
from harness import Fault, Worker, commands, judge

STRIDE = 1_000_000_000
_TOLD_SECONDS = 60.0
_LISTED = 5
"""So many faults of one kind are listed; all are counted."""


def run_case(number: int, worker: Worker, keep: Path | None = None) -> list[Fault]:
    """Runs the four commands of a case of `broken`."""
    with tempfile.TemporaryDirectory() as folder:
        path, dims = broken.make(number, keep or Path(folder))
        what = (path.parent / "what.txt").read_text()
        name = f"case {number} ({what})"
        told = ((command, worker.answer(command, path.parent)) for command in commands(path, dims))
        return [fault for command, answer in told if answer for fault in judge(name, command, answer)]


def fuzz_case(number: int, worker: Worker, folder: Path, engine: Path | None, counts: Counter[str]) -> Iterator[Fault]:
    """Makes a case, runs its commands, and yields what is wrong."""
    case = drawing.make(number, folder, engine)
    counts["models"] += 1
    before = set(drawing.files(folder))
    name = f"case {number} ({case.what})"
    for command in case.commands:
        answer = worker.answer(command, folder)
        counts["commands"] += 1
        if answer is None:
            yield Fault(name, command, "the worker itself died", "")
            continue
        counts[f"{command[0] if command else ''} {answer['code']}"] += 1
        counts["run again, isolated"] += bool(answer.get("whole"))
        yield from judge(name, command, answer)
        left = [each for each in drawing.leftovers(case, before) if not each.startswith("trtconv-crash")]
        if left:
            yield Fault(name, command, f"left behind: {left[:3]}", answer["stderr"])
            before.update(left)


def serve(numbers: Iterable[int], deadline: float, engine: Path | None, found: Any) -> None:
    """Is one process of the fuzzer: tells faults, and counts every second or so."""
    counts: Counter[str] = Counter()
    told = time.monotonic()
    with Worker() as worker, tempfile.TemporaryDirectory() as root:
        for number in numbers:
            if time.monotonic() > deadline:
                break
            folder = Path(root) / "case"
            folder.mkdir()
            for fault in fuzz_case(number, worker, folder, engine, counts):
                found.put(fault)
            _remove(folder)
            if time.monotonic() - told > 1:
                found.put(counts)
                counts, told = Counter(), time.monotonic()
    found.put(counts)
    found.put(None)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def fuzz(first: int, minutes: float, jobs: int, cases: int | None = None) -> Iterator[Fault | Counter[str]]:
    """Runs cases in several processes; yields faults and counts as they come.

    Args:
        first: Number of the first case.
        minutes: After so long no further case is begun.
        jobs: Number of processes.
        cases: How many cases; None: as many as there is time for.
    """
    seeds.seeds()
    context = multiprocessing.get_context("fork")
    found: Any = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        engine = _engine(Path(folder))
        deadline = time.monotonic() + minutes * 60
        last = sys.maxsize if cases is None else first + cases
        processes = [
            context.Process(target=serve, args=(range(first + job, last, jobs), deadline, engine, found))
            for job in range(jobs)
        ]
        for process in processes:
            process.start()
        left = jobs
        while left:
            with contextlib.suppress(queue.Empty):
                each = found.get(timeout=1)
                left -= each is None
                if each is not None:
                    yield each
            left = 0 if not any(process.is_alive() for process in processes) and found.empty() else left
        for process in processes:
            process.join()
            if process.exitcode:
                raise RuntimeError(f"a process of the fuzzer ended with {process.exitcode}")


def _engine(folder: Path) -> Path | None:
    """Builds an engine, for the cases that spoil its report."""
    engine = folder / "e.engine"
    model = str(seeds.ROOT / "models" / "unet.onnx")
    with Worker() as worker:
        worker.answer(("build", model, *drawing.ENGINE, "--target", "rtx", "-o", str(engine), "-q"), folder)
    return engine if engine.is_file() else None


def main() -> int:
    """Returns 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="default: by the clock")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", type=int)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    if arguments.case is not None:
        return _one_case(arguments.case, arguments.keep)
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    return _many(fuzz(seed * STRIDE, arguments.minutes, arguments.jobs), seed)


def _one_case(number: int, keep: Path | None) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, Worker() as worker:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        path = keep or Path(folder) / "case"
        path.mkdir(exist_ok=True)
        (Path(folder) / "engine").mkdir()
        for fault in fuzz_case(number, worker, path, _engine(Path(folder) / "engine"), Counter()):
            wrong += 1
            sys.stdout.write(f"{fault}\n\n")
    sys.stdout.write(f"{wrong} faults\n")
    return 1 if wrong else 0


def _many(found: Iterable[Fault | Counter[str]], seed: int) -> int:
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    started = told = time.monotonic()
    for each in found:
        if isinstance(each, Fault):
            kind = each.what.partition(":")[0]
            kinds[kind] += 1
            if kinds[kind] <= _LISTED:
                sys.stdout.write(f"{each}\n\n")
        else:
            counts += each
        if time.monotonic() - told > _TOLD_SECONDS:
            told = time.monotonic()
            sys.stdout.write(f"{(told - started) / 60:.0f} min: {_summary(counts, kinds)}\n")
        sys.stdout.flush()
    statuses = ", ".join(f"{key}: {number}" for key, number in sorted(counts.items()) if key[-1:].isdigit())
    sys.stdout.write(f"exit statuses: {statuses}\nseed {seed}: {_summary(counts, kinds)}\n")
    return 1 if kinds else 0


def _summary(counts: Counter[str], kinds: Counter[str]) -> str:
    def number(*begins: str) -> int:
        return sum(times for kind, times in kinds.items() if kind.startswith(begins))

    faults = (
        f"{number('exit code', 'crash', 'traceback')} internal errors, {number('hang')} hangs, "
        f"{number('a forged', 'a workflow', 'a logging', 'raw')} forged lines, {number('left')} left-over files"
    )
    other = ", ".join(
        f"{times} {kind}" for kind, times in kinds.items() if kind.startswith(("no ", "stdout", "the ")) or "MB" in kind
    )
    return f"{counts['models']} models, {counts['commands']} commands: {faults}" + (f", {other}" if other else "")


if __name__ == "__main__":
    sys.exit(main())
