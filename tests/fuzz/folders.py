"""Folders of strangers: a project with models, a configuration and everything hostile that can lie beside them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

PROJECT, OUTSIDE, TEMPORARY, CACHE, RAN = "project", "outside", "tmp", "cache", "ran"
"""Folders of a case; code that ran leaves a file in the last."""
_NAMES = ("a.onnx", "b.onnx", "sub/c.onnx", "g$(touch ..,ran,name).onnx", "-q.onnx", "d e;f.onnx", "m\u202e.onnx")
_MODULES = ("sitecustomize", "usercustomize", "venv", "onnx", "numpy", "tensorrt", "tensorrt_rtx", "json", "trtconv")
_ENGINES = (
    "a.engine",
    "r.engine",
    "sub/../a.engine",
    "./a.engine",
    "l.engine",
    "trtconv.toml",
    ".git/config",
)
_AWAY = ("../outside/new.engine", "../outside/victim.sh", "{root}/outside/victim.sh", "a.engine.json", "/dev/null")
_DATA = ("random", "/dev/stdin", "/", "fifo", "samples", "s.npz", "../outside", "link", "evil.py:load", "\\u0000")
_REMAINS = ("trtconv-proof-999998-x", "trtconv-job-999997-y", "trtconv-999996-z", "trtconv-crash-999995-w")
VICTIM = b"#!/bin/sh\necho mine\n"


class Canary:
    """What runs code where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@dataclasses.dataclass
class Case:
    """A case's folder.

    Args:
        number: What makes it again.
        root: Where its folders lie.
        models: The models of the project, by their path in it.
    """

    number: int
    root: Path
    models: list[str] = dataclasses.field(default_factory=list)

    @property
    def project(self) -> Path:
        """The stranger's folder, in which commands run."""
        return self.root / PROJECT

    def ran(self) -> list[str]:
        """Returns the marks of code that ran."""
        return sorted(path.name for path in (self.root / RAN).iterdir())


def make(number: int, root: Path, r: random.Random) -> Case:
    """Makes a case in an empty folder."""
    case = Case(number, root)
    for name in (PROJECT, OUTSIDE, TEMPORARY, CACHE, RAN):
        (root / name).mkdir()
    (root / OUTSIDE / "victim.sh").write_bytes(VICTIM)
    (root / OUTSIDE / "other.engine").write_bytes(b"an engine of somebody's")
    (root / OUTSIDE / "inner").mkdir()
    (root / OUTSIDE / "inner" / "key.pem").write_bytes(b"a key")
    for name in r.sample(_NAMES, r.randint(1, 4)):
        write_model(r, case.project / name)
        case.models.append(name)
    (case.project / "trtconv.toml").write_text(configuration(r, case), errors="surrogateescape")
    for plant in r.sample(_PLANTS, r.randint(0, 6)):
        try:
            plant(r, case)
        except OSError:
            # Something else lies there already.
            continue
    return case


def put(path: Path, data: bytes) -> None:
    """Writes a file in the place of whatever lies there, which may be a pipe that nobody reads.

    Raises:
        OSError: It is a folder.
    """
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def write_model(r: random.Random, path: Path) -> None:
    """Writes one of a few small models; some are refused, or are worth a finding."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.with_name(f"{path.stem}.bin").unlink(missing_ok=True)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4, 3, 3], [0.1 * (i % 7) for i in range(144)])
    kind = r.randrange(5)
    nodes = [
        [helper.make_node("Relu", ["x"], ["y"])],
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], output_padding=[1, 1])],
        [helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Cast", ["i"], ["y"], to=1)],
        [helper.make_node("NoSuchOperator", ["x"], ["y"])],
    ][kind]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 8, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight] if kind in (1, 2) else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.doc_string = str(r.randrange(4))
    outside = kind in (1, 2) and r.random() < 0.3
    onnx.save(model, path, save_as_external_data=outside, location=f"{path.stem}.bin", size_threshold=0)


def configuration(r: random.Random, case: Case) -> str:
    """Returns a trtconv.toml: mostly right, and with paths that lead everywhere."""
    lines = ['targets = ["rtx"]', "dims = { n = 1 }" if r.random() < 0.8 else 'dims = { n = "1:2:4" }']
    lines += ['prove = "none"'] if r.random() < 0.6 else []
    lines += [f"precision = {r.choice(['fp16', 'auto', 'x'])!r}"] if r.random() < 0.15 else []
    lines += [f"data = {json.dumps(r.choice(_DATA))}"] if r.random() < 0.15 else []
    for model in [*case.models, *r.sample(["none.onnx", "a.engine", "../outside/victim.sh"], r.random() < 0.1)]:
        lines += ["[[models]]", f"path = {json.dumps(model)}"]
        if r.random() < 0.4:
            names = (*_ENGINES, r.choice(case.models)) if r.random() < 0.6 else _AWAY
            engine = r.choice(names).replace("{root}", str(case.root))
            lines += [f"engine = {json.dumps(engine)}"]
        if r.random() < 0.1:
            lines += [f"profiles = [{', '.join(['{ n = 1 }'] * r.choice([1, 2, 40]))}]"]
    if r.random() < 0.15:
        address = r.choice(["tcp://127.0.0.1:9", "tls://127.0.0.1:9", "tcp://user@127.0.0.1:9", "http://x", ""])
        lines += [
            "[farm]",
            f"address = {json.dumps(address)}",
            f"store = {json.dumps(r.choice(['store', '../outside']))}",
        ]
    text = "\n".join(lines) + "\n"
    return text if r.random() < 0.95 else text[: r.randrange(len(text))]


def _code(case: Case, mark: str) -> str:
    return f"import pathlib\npathlib.Path({str(case.root / RAN / mark)!r}).touch()\n"


def _modules(r: random.Random, case: Case) -> None:
    for name in r.sample(_MODULES, 4):
        (case.project / f"{name}.py").write_text(_code(case, name))
    (case.project / "evil.py").write_text(_code(case, "evil") + "def load(*_):\n    return None\n")


def _packages(r: random.Random, case: Case) -> None:
    name = r.choice(_MODULES)
    (case.project / name).mkdir()
    (case.project / name / "__init__.py").write_text(_code(case, f"{name}-package"))


def _pickles(r: random.Random, case: Case) -> None:
    data = pickle.dumps(Canary(case.root / RAN / "pickle"))
    for name in ("s.npy", "s.npz", "samples/s.npz", "a.engine.json", "a.engine.verify.json", "calibration.cache"):
        path = case.project / name
        path.parent.mkdir(exist_ok=True)
        if r.random() < 0.6:
            put(path, data)


def _git(_: random.Random, case: Case) -> None:
    (case.project / ".git" / "hooks").mkdir(parents=True)
    (case.project / ".git" / "config").write_text("[core]\n")
    (case.project / ".git" / "hooks" / "pre-commit").write_text(f"#!/bin/sh\ntouch {case.root / RAN}/hook\n")


def _links(r: random.Random, case: Case) -> None:
    victim = case.root / OUTSIDE / "victim.sh"
    for name in r.sample(
        ["a.engine", "a.engine.json", "r.engine.json", "l.engine", "r.onnx", "p.html", "out", "jobs"], 3
    ):
        (case.project / name).symlink_to(
            r.choice([victim, victim.parent, victim.parent / "inner" / "key.pem", "/dev/zero", "a.onnx"])
        )


def _pipes(r: random.Random, case: Case) -> None:
    for name in r.sample(
        ["fifo", "a.engine", "a.engine.json", "s.npz", ".a.engine.999999.abc.part", "jobs", "x.json"], 3
    ):
        os.mkfifo(case.project / name)


def _remains(r: random.Random, case: Case) -> None:
    """What others left in a temporary folder that all share."""
    for name in r.sample(_REMAINS, 2):
        path = case.root / TEMPORARY / name
        r.choice([os.mkfifo, lambda p: p.symlink_to(case.root / OUTSIDE), lambda p: p.mkdir()])(path)


def _caches(r: random.Random, case: Case) -> None:
    folder = case.root / CACHE / "trtconv"
    for name in ("timing", "calibration", "tuned"):
        (folder / name).mkdir(parents=True)
        for index in range(2):
            (folder / name / f"{index}.json").write_bytes(pickle.dumps(Canary(case.root / RAN / "cache")))
    if r.random() < 0.3:
        (folder / "timing" / "link").symlink_to(case.root / OUTSIDE)


def _jobs(r: random.Random, case: Case) -> None:
    """Jobs and results of a stranger's making."""
    name = hashlib.sha256(str(case.number).encode()).hexdigest()
    for folder in ("jobs", "out", "store"):
        (case.project / folder / "sha256" / name[:2]).mkdir(parents=True)
        (case.project / folder / "sha256" / name[:2] / name).write_bytes(b"poison")
        told = r.choice(["{}", "[]", "{", '{"job": "' + name + '"}', "9" * 5000, '{"a": NaN}'])
        (case.project / folder / f"{name}.json").write_text(told)
        (case.project / folder / f"{name}.result.json").write_text(told)


FOREIGN = b"nothing that an engine is"
"""What lies where engines go, and trtconv did not write."""


def _reports(r: random.Random, case: Case) -> None:
    for name in ("a.engine", "r.engine", "x.engine"):
        put(case.project / name, FOREIGN)
        put(
            case.project / f"{name}.json",
            r.choice(["{}", "null", '{"engine": {"path": 5}}', "[" * 5000, "\0"]).encode(),
        )


_PLANTS: tuple[Callable[[random.Random, Case], None], ...] = (
    _modules,
    _packages,
    _pickles,
    _git,
    _links,
    _pipes,
    _remains,
    _caches,
    _jobs,
    _reports,
)


def disturb(r: random.Random, case: Case) -> str:
    """Does something to a file of the project or a cache, as others may between two commands; returns what."""
    found = [path for top in (case.project, case.root / CACHE) for path in sorted(top.rglob("*")) if not path.is_dir()]
    if not found:
        return "nothing"
    path = r.choice(found)
    what = r.choice(list(_DISTURBANCES))
    try:
        _DISTURBANCES[what](r, case, path)
    except OSError:
        return "nothing"
    return f"{what} {path.relative_to(case.root)}"


def _regular(path: Path) -> bytes:
    if not stat.S_ISREG(path.lstat().st_mode) or path.stat().st_size > 1 << 26:
        raise OSError("no file of a size to work with")
    return path.read_bytes()


def _flip(r: random.Random, _: Case, path: Path) -> None:
    data = bytearray(_regular(path))
    if data:
        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    put(path, bytes(data))


def _replace(r: random.Random, case: Case, path: Path) -> None:
    """Puts something else in the place of a file."""
    path.unlink()
    kind = r.randrange(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(case.root / OUTSIDE / "victim.sh")
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        path.mkdir()


def _copy(r: random.Random, case: Case, path: Path) -> None:
    others = [each for each in sorted(case.project.rglob("*")) if each.is_file() and not each.is_symlink()]
    if others and not path.is_symlink():
        put(path, _regular(r.choice(others)))


def _touch(r: random.Random, _: Case, path: Path) -> None:
    when = r.choice([0.0, 1e9, 4e9])
    os.utime(path, (when, when), follow_symlinks=False)


def _configure(r: random.Random, case: Case, _: Path) -> None:
    path = case.project / "trtconv.toml"
    path.unlink(missing_ok=True)
    path.write_text(configuration(r, case), errors="surrogateescape")


_DISTURBANCES: dict[str, Callable[[random.Random, Case, Path], None]] = {
    "a flipped bit in": _flip,
    "cut": lambda r, _, path: put(path, _regular(path)[: r.randrange(1 + path.stat().st_size)]),
    "another kind of file for": _replace,
    "a copy over": _copy,
    "another time of": _touch,
    "sparse": lambda _, __, path: os.truncate(path, 1 << 40) if _regular(path) is not None else None,
    "a new model for": lambda r, case, _: write_model(r, case.project / r.choice(case.models)),
    "a new configuration beside": _configure,
    "no more": lambda _, __, path: path.unlink(),
}


def picture(folder: Path) -> dict[str, str]:
    """Returns what lies in a folder: the path of each entry to its kind and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        name = path.relative_to(folder).as_posix()
        if stat.S_ISLNK(mode):
            found[name] = f"link to {path.readlink()}"
        elif stat.S_ISREG(mode):
            size = path.stat().st_size
            content = hashlib.sha256(path.read_bytes()).hexdigest() if size < 1 << 26 else f"{size} bytes"
            found[name] = content
        else:
            found[name] = f"kind {stat.S_IFMT(mode):o}"
    return found
