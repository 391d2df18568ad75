"""A farm on this machine: a real scheduler and real workers, each a process of its own, with TLS."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from support.onnx_models import parse
from support.paths import ROOT

TINY = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n,4] x) => (float[n,4] y) { h = Mul(x, w) y = Add(h, w) }
"""
SOON = "from trtconv.engine.farm import dispatch\ndispatch.BACK_SECONDS = 1.0"
"""A scheduler that gives up soon who is lost."""
START_SECONDS = 300.0
"""How long a process may take to start where the machine is busy."""


class LocalFarm:
    """Processes of a farm, which end with it.

    Args:
        folder: Where keys, logs and caches lie.
        code: What the scheduler runs before it starts.
    """

    def __init__(self, folder: Path, code: str = SOON) -> None:
        from trtconv.engine.farm.keys import make_keys

        self.folder, self._code = folder, code
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
        self._launch("scheduler", ["farm", "scheduler", self.address, "--keys", str(self.keys)], self._code)
        self.address = self.wait_for("scheduler").removeprefix("scheduler at ")

    def worker(self, name: str, *flags: str, code: str = "") -> None:
        """Starts a worker; `code` runs before it does."""
        self.begin(name, *flags, code=code)
        self.wait_for(name)

    def begin(self, name: str, *flags: str, code: str = "", address: str = "") -> None:
        """Starts a worker, and does not wait for it."""
        where = address or self.address
        self._launch(name, ["worker", where, "--keys", str(self.keys), "--name", name, *flags], code)

    def client(self, project: Path, *flags: str, address: str = "", code: str = "") -> subprocess.Popen[bytes]:
        """Starts `trtconv build` in a process of its own, which writes JSON."""
        where = ("--on", address, *self.flags[2:]) if address else self.flags
        command = _command(["build", *where, "-q", "--format", "json", *flags], code)
        return subprocess.Popen(
            command, cwd=project, env=_environment(self.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

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
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                _command(arguments, code), stdout=log, stderr=log, env=_environment(self.folder), cwd=self.folder
            )


def _command(arguments: Sequence[str], code: str) -> list[str]:
    main = f"{code}\nimport sys\nfrom trtconv.cli import main\nsys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", main, *arguments]


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache")}


class Line:
    """A line to a farm that can be cut: what comes in at `address` goes on to the farm.

    Args:
        farm: Its address.
        rate: Bytes a second that come back from the farm; 0: as many as there are.
        most: Bytes that a connection carries one way, until it breaks; 0: any number.
    """

    def __init__(self, farm: str, rate: int = 0, most: int = 0) -> None:
        self._port, self._rate, self._most = int(farm.rpartition(":")[2]), rate, most
        self.carried: list[int] = []
        self._open: list[socket.socket] = []
        self._is_cut = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tls://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        """Ends all connections; who comes now is refused."""
        self._is_cut = True
        for end in self._open:
            _shut(end)
        self._open.clear()

    def mend(self) -> None:
        """Lets connections through again."""
        self._is_cut = False

    def close(self) -> None:
        """Ends it."""
        self.cut()
        _shut(self._listening)

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            if self._is_cut:
                _shut(near)
                _shut(far)
                continue
            self._open += [near, far]
            for source, sink, rate in ((near, far, 0), (far, near, self._rate)):
                threading.Thread(target=self._pump, args=(source, sink, rate), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, rate: int) -> None:
        carried = 0
        with contextlib.suppress(OSError):
            while (not self._most or carried < self._most) and (data := source.recv(4096 if rate else 1 << 16)):
                sink.sendall(data)
                carried += len(data)
                time.sleep(len(data) / rate if rate else 0)
        self.carried.append(carried)
        _shut(source)
        _shut(sink)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def write_project(folder: Path, names: Sequence[str], config: str) -> Path:
    """Writes a folder with tiny models and a trtconv.toml that lists them; "b" has its weights beside it."""
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        proto = parse(TINY)
        weight = np.arange(4, dtype=np.float32) + number
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
        onnx.save(proto, folder / f"{name}.onnx", save_as_external_data=name == "b", location="b.bin", size_threshold=0)
    tables = "".join(f'[[models]]\npath = "{name}.onnx"\n' for name in names)
    (folder / "trtconv.toml").write_text(config + tables)
    return folder
