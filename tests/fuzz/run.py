"""Fuzzes check, rewrite and build.

python tests/fuzz/run.py [--minutes 10] [--first 0] [--jobs 2]     until the time is up
python tests/fuzz/run.py --case 1234 [--keep FOLDER]               one case again
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import broken
from harness import Fault, Worker, commands


def run_case(number: int, worker: Worker, keep: Path | None = None) -> list[Fault]:
    """Runs every command on one case."""
    with tempfile.TemporaryDirectory() as folder:
        path, dims = broken.make(number, keep or Path(folder))
        what = (path.parent / "what.txt").read_text()
        name = f"case {number} ({what})"
        return [fault for command in commands(path, dims) if (fault := worker.run(name, *command)) is not None]


def fuzz(numbers: Iterable[int], deadline: float, jobs: int) -> Iterator[Fault]:
    """Runs cases on several workers until a time of `time.monotonic`; yields what is wrong as it comes."""
    queue = iter(numbers)
    lock = threading.Lock()
    found: list[Fault] = []
    count = itertools.count()

    def serve() -> None:
        with Worker() as worker:
            while time.monotonic() < deadline:
                with lock:
                    number = next(queue, None)
                if number is None:
                    return
                found.extend(run_case(number, worker))
                next(count)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(serve) for _ in range(jobs)]
        while not all(future.done() for future in running):
            concurrent.futures.wait(running, timeout=1)
            while found:
                yield found.pop(0)
        for future in running:
            future.result()
    yield from found
    sys.stderr.write(f"{next(count)} cases\n")


def main() -> int:
    """Returns 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--first", type=int, default=None, help="number of the first case; default: by the clock")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", type=int)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    if arguments.case is not None:
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
        with Worker() as worker:
            faults: Iterable[Fault] = run_case(arguments.case, worker, arguments.keep)
    else:
        first = int(time.time()) * 1000 if arguments.first is None else arguments.first
        faults = fuzz(itertools.count(first), time.monotonic() + arguments.minutes * 60, arguments.jobs)
    number = 0
    for fault in faults:
        number += 1
        sys.stdout.write(f"{fault}\n\n")
        sys.stdout.flush()
    sys.stdout.write(f"{number} faults\n")
    return 1 if number else 0


if __name__ == "__main__":
    sys.exit(main())
