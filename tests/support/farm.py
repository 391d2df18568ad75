"""A farm on this machine: a real scheduler and real workers, each a process of its own, with TLS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from support.paths import ROOT

START_SECONDS = 300.0
"""How long a process may take to start where the machine is busy."""


class LocalFarm:
    """Processes of a farm, which end with it.

    Args:
        folder: Where keys, logs and caches lie.
    """

    def __init__(self, folder: Path) -> None:
        from trtconv.engine.farm.keys import make_keys

        self.folder = folder
        self.keys = folder / "keys"
        make_keys(self.keys)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.address = "tls://127.0.0.1:0"
        self.scheduler()

    def __enter__(self) -> LocalFarm:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    @property
    def flags(self) -> tuple[str, ...]:
        """What a command needs to find it."""
        return "--on", self.address, "--keys", str(self.keys)

    def scheduler(self) -> None:
        """Starts the scheduler, again where it was before."""
        # Who is lost is given up quickly.
        code = "from trtconv.engine.farm import dispatch\ndispatch.BACK_SECONDS = 1.0"
        self._launch("scheduler", ["farm", "scheduler", self.address, "--keys", str(self.keys)], code)
        self.address = self.wait_for("scheduler").removeprefix("scheduler at ")

    def worker(self, name: str, *flags: str, code: str = "") -> None:
        """Starts a worker; `code` runs before it does."""
        self.begin(name, *flags, code=code)
        self.wait_for(name)

    def begin(self, name: str, *flags: str, code: str = "") -> None:
        """Starts a worker, and does not wait for it."""
        self._launch(name, ["worker", self.address, "--keys", str(self.keys), "--name", name, *flags], code)

    def wait_for(self, name: str) -> str:
        """Returns the line that a process says when it is ready."""
        log, process = self.folder / f"{name}.log", self.processes[name]
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in log.read_text().splitlines()]
            said = [line for line in lines if line.startswith((f"{name} offers", "scheduler at"))]
            if said:
                return said[0]
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        raise AssertionError(f"{name} does not start: {log.read_text()}")

    def kill(self, name: str) -> None:
        """Ends a process as an accident would."""
        process = self.processes[name]
        process.kill()
        process.wait()

    def _launch(self, name: str, arguments: list[str], code: str) -> None:
        main = f"{code}\nimport sys\nfrom trtconv.cli import main\nsys.exit(main(sys.argv[1:]))"
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(self.folder / "cache")}
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-c", main, *arguments]
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)
