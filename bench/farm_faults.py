"""What a farm does where something in it breaks: each row several times, with real processes over loopback with TLS.

    python bench/farm_faults.py [--times 10] [--only REGEX]

Writes bench/results/farm-faults.json, row by row; `--only` replaces the rows that it tries.

Each time a client builds the same few tiny models in a folder of its own, whose builds are held for as long as it takes
for something to break meanwhile. What the client says is held to what the row expects, engines to those that were built
here, and a second client, once all is well again, has to find or build whatever is missing: else something was lost.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "farm-faults.json"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.farm import Line, LocalFarm, write_project  # noqa: E402
from trtconv.core.files import source_checksum  # noqa: E402
from trtconv.engine.farm.store import Store  # noqa: E402

NAMES = ("a", "b", "c", "d")
CONFIG = 'prove = "none"\ntargets = ["rtx"]\ndims = { n = "1:2:4" }\n'
SECONDS = 240.0
HELD_SECONDS = 0.4
QUICK = "from trtconv.engine.farm import wire\nwire.PULSE_SECONDS = 0.3\n"
"""Members that notice within seconds that one is silent."""
SLOW = """
import pathlib, time
from trtconv.engine.farm.running import JobRunner
real, at = JobRunner.run, pathlib.Path("{name}.at")
def run(self, job, fetch, unwanted=None):
    at.touch()
    try:
        time.sleep({seconds})
        return real(self, job, fetch, unwanted)
    finally:
        at.unlink(missing_ok=True)
JobRunner.run = run
"""
"""A worker whose builds take a while, and that leaves a file where it is at one."""


@dataclasses.dataclass
class Ended:
    """What a client said.

    Args:
        code: Exit status.
        rows: How many rows there are of each exit code; up to date counts as "kept".
    """

    code: int
    rows: dict[str, int]
    said: str

    @classmethod
    def of(cls, client: subprocess.Popen[bytes]) -> Ended:
        out, errors = client.communicate(timeout=SECONDS)
        rows: dict[str, int] = collections.Counter()
        with contextlib.suppress(ValueError):
            for run in json.loads(out).get("runs", []):
                rows["kept" if run.get("up_to_date") else str(run["exit_code"])] += 1
        return cls(client.returncode, rows, (out + errors).decode(errors="replace"))

    @property
    def right(self) -> int:
        return self.rows.get("0", 0) + self.rows.get("kept", 0)


class Stand:
    """A farm with the workers one and two, and whatever a row does with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "farm").mkdir()
        self.farm = LocalFarm(folder / "farm", QUICK)
        self.line = Line(self.farm.address)
        self._begin: dict[str, Callable[[], None]] = {}
        self._projects = itertools.count()

    def worker(
        self, name: str, *flags: str, seconds: float = HELD_SECONDS, code: str = "", cuttable: bool = False
    ) -> None:
        """Has a worker be there, now and whenever all is to be well."""
        hold = QUICK + SLOW.format(name=name, seconds=seconds) + code
        where = self.line.address if cuttable else ""
        self._begin[name] = lambda: self.farm.begin(name, *flags, code=hold, address=where)

    def heal(self) -> None:
        """Has everybody be there and well."""
        self.line.mend()
        for name, begin in {"scheduler": self.farm.scheduler, **self._begin}.items():
            process = self.farm.processes.get(name)
            if process is None or process.poll() is not None:
                begin()
            else:
                process.send_signal(signal.SIGCONT)
        for name in self._begin:
            self.farm.wait_for(name)
            (self.farm.folder / f"{name}.at").unlink(missing_ok=True)

    def project(self, config: str = CONFIG) -> Path:
        return write_project(self.folder / f"project{next(self._projects)}", NAMES, config)

    def client(self, project: Path, *flags: str, cuttable: bool = False) -> subprocess.Popen[bytes]:
        return self.farm.client(project, *flags, code=QUICK, address=self.line.address if cuttable else "")

    def at_work(self, name: str) -> None:
        until(lambda: (self.farm.folder / f"{name}.at").exists())

    def child(self, name: str) -> int:
        """Returns the process that builds for a worker."""
        worker = self.farm.processes[name].pid
        until(lambda: children(worker))
        return children(worker)[-1]

    def close(self) -> None:
        self.line.close()
        for process in self.farm.processes.values():
            process.send_signal(signal.SIGCONT)
        self.farm.__exit__()


def until(there: Callable[[], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not there():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return sorted(found)


def engines(project: Path) -> dict[str, str]:
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in project.glob("*.engine")}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A row of the table.

    Args:
        what: What breaks.
        codes: Exit statuses that are right.
        rows: Other rows than right ones: how many of each exit code; None: any number of 4.
        strike: Breaks it, and returns what the client said.
        prepare: Puts up who is there.
    """

    what: str
    codes: tuple[int, ...]
    rows: dict[str, int] | None
    strike: Callable[[Stand, Path], Ended]
    prepare: Callable[[Stand], None]

    def fault(self, ended: Ended) -> str:
        """Returns what is not as it should be; empty where all is."""
        if ended.code not in self.codes:
            return f"exit status {ended.code}: {ended.said[-600:]}"
        bad = {code: number for code, number in ended.rows.items() if code not in ("0", "kept")}
        if ended.code >= 128:
            return ""
        if sum(ended.rows.values()) % len(NAMES):
            return f"rows are missing: {ended.rows}"
        good = bad.keys() <= {"4"} if self.rows is None else bad == self.rows
        return "" if good else f"rows {dict(ended.rows)}: {ended.said[-600:]}"


def two(stand: Stand) -> None:
    for name in ("one", "two"):
        stand.worker(name)


def two_of_which_one_can_be_cut(stand: Stand) -> None:
    stand.worker("one", "--reconnect", "20", cuttable=True)
    stand.worker("two")


def two_that_give_up(stand: Stand) -> None:
    for name in ("one", "two"):
        stand.worker(name, "--reconnect", "1")


def two_with_a_store(stand: Stand) -> None:
    for name in ("one", "two"):
        stand.worker(name, "--store", str(stand.folder / "store"))


def small_disk(stand: Stand) -> str:
    """Returns the code of a worker whose temporary files go to a disk that is full."""
    disk = stand.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    (disk / "full").write_bytes(bytes(60 << 10))
    return f"import os, tempfile\nos.environ['TMPDIR'] = tempfile.tempdir = {str(disk)!r}\n"


def one_with_a_full_disk(stand: Stand) -> None:
    stand.worker("one", seconds=0.0, code=small_disk(stand))
    stand.worker("two")


def none_but_one_with_a_full_disk(stand: Stand) -> None:
    stand.worker("one", seconds=0.0, code=small_disk(stand))


def one(stand: Stand) -> None:
    stand.worker("one")


def nothing_more(stand: Stand, project: Path) -> Ended:
    return Ended.of(stand.client(project))


def worker_killed(stand: Stand, project: Path, *flags: str) -> Ended:
    client = stand.client(project, *flags)
    stand.at_work("one")
    stand.farm.kill("one")
    return Ended.of(client)


def worker_killed_and_tried_again(stand: Stand, project: Path) -> Ended:
    return worker_killed(stand, project, "--retries", "1")


def scheduler_back(stand: Stand, project: Path) -> Ended:
    client = stand.client(project)
    stand.at_work("one")
    stand.farm.kill("scheduler")
    time.sleep(1)
    stand.farm.scheduler()
    return Ended.of(client)


def scheduler_gone(stand: Stand, project: Path) -> Ended:
    client = stand.client(project, "--reconnect", "1")
    stand.at_work("one")
    stand.farm.kill("scheduler")
    ended = Ended.of(client)
    for name in ("one", "two"):
        code = stand.farm.processes[name].wait(SECONDS)
        assert code == 4, f"the worker ended with {code}"
    return ended


def scheduler_ended(stand: Stand, project: Path) -> Ended:
    client = stand.client(project, "--reconnect", "1")
    stand.at_work("one")
    stand.farm.processes["scheduler"].send_signal(signal.SIGTERM)
    ended = Ended.of(client)
    for name in ("one", "two"):
        code = stand.farm.processes[name].wait(SECONDS)
        assert code == 0, f"the worker ended with {code}"
    return ended


def client_cut(stand: Stand, project: Path) -> Ended:
    client = stand.client(project, cuttable=True)
    stand.at_work("one")
    stand.line.cut()
    time.sleep(1)
    stand.line.mend()
    return Ended.of(client)


def client_cut_for_good(stand: Stand, project: Path) -> Ended:
    client = stand.client(project, "--reconnect", "1", cuttable=True)
    stand.at_work("one")
    stand.line.cut()
    return Ended.of(client)


def worker_cut(stand: Stand, project: Path) -> Ended:
    client = stand.client(project)
    stand.at_work("one")
    stand.line.cut()
    time.sleep(1)
    stand.line.mend()
    return Ended.of(client)


def stopped(name: str) -> Callable[[Stand, Path], Ended]:
    def strike(stand: Stand, project: Path) -> Ended:
        client = stand.client(project)
        stand.at_work("one")
        process = client if name == "client" else stand.farm.processes[name]
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        process.send_signal(signal.SIGCONT)
        return Ended.of(client)

    return strike


def worker_stopped_for_good(stand: Stand, project: Path) -> Ended:
    client = stand.client(project, "--retries", "1")
    stand.at_work("one")
    stand.farm.processes["one"].send_signal(signal.SIGSTOP)
    return Ended.of(client)


def build_breaks(stand: Stand, project: Path) -> Ended:
    stand.client(stand.project()).wait(SECONDS)
    # It is stopped, so that it cannot be done with a job before it breaks.
    child = stand.child("one")
    os.kill(child, signal.SIGSTOP)
    client = stand.client(project)
    stand.at_work("one")
    time.sleep(HELD_SECONDS + 0.3)
    os.kill(child, signal.SIGSEGV)
    os.kill(child, signal.SIGCONT)
    return Ended.of(client)


def build_hangs(stand: Stand, project: Path) -> Ended:
    stand.client(stand.project()).wait(SECONDS)
    os.kill(stand.child("one"), signal.SIGSTOP)
    return Ended.of(stand.client(project, "--job-timeout", "6"))


def little_memory(stand: Stand, project: Path) -> Ended:
    stand.client(stand.project()).wait(SECONDS)
    child = stand.child("one")
    size = int(Path(f"/proc/{child}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(child, resource.RLIMIT_AS, (size, size))
    return Ended.of(stand.client(project))


def built_and_flipped(stand: Stand, project: Path) -> Ended:
    store = stand.folder / "store"
    flags = ("--store", str(store))
    first = Ended.of(stand.client(project, *flags))
    assert first.code == 0, first.said
    made = engines(project)
    for name in NAMES:
        (project / f"{name}.engine").unlink()
        file = store / "sha256" / made[name][:2] / made[name]
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    ended = Ended.of(stand.client(project, *flags))
    assert all(map(Store(store).has, made.values())), "the store is not healed"
    return ended


def store_is_a_file(stand: Stand, project: Path) -> Ended:
    store = stand.folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    store.unlink(missing_ok=True)
    store.write_text("no folder")
    return Ended.of(stand.client(project, "--store", str(store)))


def store_deleted(stand: Stand, project: Path) -> Ended:
    store = stand.folder / "store"
    # What an earlier turn left there would not be built.
    shutil.rmtree(store, ignore_errors=True)
    client = stand.client(project, "--store", str(store))
    stand.at_work("one")
    shutil.rmtree(store, ignore_errors=True)
    return Ended.of(client)


def a_target_nobody_has(stand: Stand, project: Path) -> Ended:
    (project / "trtconv.toml").write_text(
        (project / "trtconv.toml").read_text().replace('["rtx"]', '["rtx", "rtx@h100"]')
    )
    ended = Ended.of(stand.client(project))
    for path in project.glob("*.rtx.*"):
        path.rename(project / path.name.replace(".rtx", ""))
    return ended


def late(stand: Stand, project: Path) -> Ended:
    for name in ("one", "two"):
        if stand.farm.processes[name].poll() is None:
            stand.farm.kill(name)
    client = stand.client(project)
    for begin in stand._begin.values():
        begin()
    return Ended.of(client)


def client_killed(stand: Stand, project: Path) -> Ended:
    client = stand.client(project)
    until(lambda: engines(project))
    client.kill()
    client.communicate()
    there = len(engines(project))
    ended = Ended.of(stand.client(project))
    assert ended.rows.get("kept") == there, f"{there} were there: {ended.rows}"
    return ended


def interrupted(number: signal.Signals) -> Callable[[Stand, Path], Ended]:
    def strike(stand: Stand, project: Path) -> Ended:
        client = stand.client(project)
        stand.at_work("one")
        client.send_signal(number)
        return Ended.of(client)

    return strike


def one_of_two_interrupted(stand: Stand, project: Path) -> Ended:
    clients = [stand.client(project), stand.client(stand.project())]
    stand.at_work("one")
    clients[1].send_signal(signal.SIGINT)
    clients[1].communicate()
    # 130 to a shell both: it may have been interrupted before the interpreter stood.
    assert clients[1].returncode in (130, -signal.SIGINT), f"who was interrupted ended with {clients[1].returncode}"
    return Ended.of(clients[0])


def slow_line(stand: Stand, project: Path) -> Ended:
    line = Line(stand.farm.address, 30_000)
    try:
        return Ended.of(stand.farm.client(project, code=QUICK, address=line.address))
    finally:
        line.close()


TABLE = (
    Fault("kill -9 a worker", (1,), {"1": 1}, worker_killed, two),
    Fault("kill -9 a worker, --retries 1", (0,), {}, worker_killed_and_tried_again, two),
    Fault("kill -9 the scheduler; back after a second", (0,), {}, scheduler_back, two),
    Fault("kill -9 the scheduler, --reconnect 1", (4,), None, scheduler_gone, two_that_give_up),
    Fault("SIGTERM to the scheduler, --reconnect 1", (4,), None, scheduler_ended, two_that_give_up),
    Fault("kill -9 the client, and start it again", (0,), {}, client_killed, two),
    Fault("Ctrl-C of the client", (130,), None, interrupted(signal.SIGINT), two),
    Fault("SIGTERM to the client", (143,), None, interrupted(signal.SIGTERM), two),
    Fault("Ctrl-C of one of two clients with the same jobs", (0,), {}, one_of_two_interrupted, two),
    Fault("the client's line is cut for a second", (0,), {}, client_cut, two),
    Fault("the client's line is cut, --reconnect 1", (4,), None, client_cut_for_good, two),
    Fault("a worker's line is cut for a second", (0,), {}, worker_cut, two_of_which_one_can_be_cut),
    Fault("a line of 30 kB a second", (0,), {}, slow_line, two),
    Fault("a worker is stopped, and goes on", (0,), {}, stopped("one"), two),
    Fault("the scheduler is stopped, and goes on", (0,), {}, stopped("scheduler"), two),
    Fault("the client is stopped, and goes on", (0,), {}, stopped("client"), two),
    Fault("a worker is stopped for good, --retries 1", (0,), {}, worker_stopped_for_good, two),
    Fault(
        "a worker's disk is full",
        (0,),
        {},
        nothing_more,
        one_with_a_full_disk,
    ),
    Fault("the only worker's disk is full", (4,), {"4": len(NAMES)}, nothing_more, none_but_one_with_a_full_disk),
    Fault("a worker has no memory left", (0,), {}, little_memory, two),
    Fault("SIGSEGV in the process that builds", (1,), {"1": 1}, build_breaks, two),
    Fault("a build hangs, --job-timeout 6", (1,), {"1": 1}, build_hangs, two),
    Fault("a byte of each engine in the store is flipped", (0,), {}, built_and_flipped, two_with_a_store),
    Fault("a file is where the store should be", (0,), {}, store_is_a_file, two_with_a_store),
    Fault("the store is deleted meanwhile", (0,), {}, store_deleted, two_with_a_store),
    Fault("a target that nobody has", (4,), {"4": len(NAMES)}, a_target_nobody_has, two),
    Fault("workers start together with the client", (0,), {}, late, two),
)


def tried(fault: Fault, times: int, right: dict[str, str]) -> dict[str, Any]:
    """Returns what a row does, several times over."""
    codes: dict[str, int] = collections.Counter()
    faults: list[str] = []
    lost = wrong = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trtconv-faults-") as name, standing(Path(name)) as stand:
        fault.prepare(stand)
        for turn in range(times):
            stand.heal()
            project = stand.project()
            try:
                ended = fault.strike(stand, project)
                codes[str(ended.code)] += 1
                why = fault.fault(ended)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            faults += [f"{turn}: {why}"] * bool(why)
            made = engines(project)
            if made != right:
                stand.heal()
                # A disk stays full.
                if fault.prepare is not none_but_one_with_a_full_disk:
                    last = Ended.of(stand.client(project))
                    faults += [f"{turn}: the rerun: {last.said[-600:]}"] * bool(last.code)
                    lost += len(right.keys() - engines(project).keys())
            wrong += sum(sha != right.get(each) for each, sha in engines(project).items())
    row = {
        "what": fault.what,
        "source": source_checksum(),
        "times": times,
        "exit": dict(codes),
        "lost": lost,
        "wrong": wrong,
        "bugs": codes["3"],
        "faults": faults,
        "seconds": round(time.monotonic() - began, 1),
        "load": round(os.getloadavg()[0], 1),
    }
    mark = "BAD" if faults or lost or wrong else "ok"
    print(f"{mark:4}{fault.what}: exit {dict(codes)}, {lost} lost, {wrong} wrong", flush=True)
    for line in faults:
        print(f"      {line}", flush=True)
    return row


@contextlib.contextmanager
def standing(folder: Path) -> Iterator[Stand]:
    stand = Stand(folder)
    try:
        yield stand
    finally:
        stand.close()
        if (folder / "disk").is_mount():
            subprocess.run(["umount", "-l", str(folder / "disk")], check=True)


def built_here() -> dict[str, str]:
    """Returns the SHA-256 of each engine as this machine builds it alone."""
    with tempfile.TemporaryDirectory() as name:
        project = write_project(Path(name, "project"), NAMES, CONFIG)
        subprocess.run(
            [sys.executable, "-m", "trtconv", "build", "-q"],
            cwd=project,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        return engines(project)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--together", type=int, default=3, help="rows that are tried at the same time")
    options = parser.parse_args()
    # A shell that starts this in the background has it ignored, by all who are started from here, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    right = built_here()
    chosen = [fault for fault in TABLE if re.search(options.only, fault.what)]
    with ThreadPoolExecutor(options.together) as pool:
        rows = [pool.submit(tried, fault, options.times, right) for fault in chosen]
        for done in as_completed(rows):
            keep(done.result())
    sys.exit(any(row.result()[what] for row in rows for what in ("faults", "lost", "wrong")))


def keep(row: dict[str, Any]) -> None:
    """Writes a row, in the place of what it was before."""
    rows = {each["what"]: each for each in json.loads(RESULTS.read_text())["rows"]} if RESULTS.exists() else {}
    rows[row["what"]] = row
    known = [rows[fault.what] for fault in TABLE if fault.what in rows]
    RESULTS.write_text(json.dumps({"rows": known}, indent=2) + "\n")


if __name__ == "__main__":
    main()
