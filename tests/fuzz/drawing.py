"""A case of the fuzzer: a folder of hostile files, and the commands that are run in it. Its number makes it again."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import broken
import mutate
import onnx
import papers
import seeds
from harness import POISON
from meanings import MEANINGS
from mutate import TEXTS

FORMATS = ("text", "text", "json", "sarif", "junit", "github")
TARGETS = ("rtx", "rtx", "rtx", "tensorrt-8.6", "tensorrt-10.3", "tensorrt-11")
_BOUNDS = (
    "1",
    "3",
    "8",
    "16",
    "64",
    "2:4:8",
    "1:1:1",
    "4:8:16",
    "0",
    "8:4:2",
    "-1:1:2",
    "1:2",
    "x",
    "9" * 5000,
    "1:8:99999999999",
)
_OUTPUTS = ("e.engine", "e.engine.json", "r.onnx", "r.onnx.data", "p.onnx", "p.onnx.data", "out", "new.toml")
_OF_ONNX_RUNTIME = ".ses"
ENGINE = ("--dim", "batch=1", "--dim", "height=64", "--dim", "width=64")
CONFIG = """[trtconv]
fail-on = "error"
models = ["*.onnx"]
targets = ["rtx"]
dims = { h = "8:16:32", batch = 1 }
ignore = ["TC301"]
[[model]]
path = "m.onnx"
engine = "e.engine"
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """What is tried.

    Args:
        number: Its seed.
        folder: Its files.
        what: How they were made.
        commands: Command lines.
    """

    number: int
    folder: Path
    what: str
    commands: tuple[tuple[str, ...], ...]


def make(number: int, folder: Path, engine: Path | None = None) -> Case:
    """Makes a case.

    Args:
        number: Its seed.
        folder: Empty; its files go here.
        engine: A built engine with its report beside it, for the cases that spoil reports.
    """
    r = random.Random(number)
    kind = r.random()
    if kind < 0.05:
        return _config_case(r, number, folder)
    if kind < 0.09 and engine is not None:
        return _report_case(r, number, folder, engine)
    if kind < 0.14:
        return _broken_case(r, number, folder)
    if kind < 0.26 and engine is not None:
        what, commands = papers.make(r, folder, engine)
        return Case(number, folder, what, tuple(commands))
    return _model_case(r, number, folder)


def leftovers(case: Case, before: set[str]) -> list[str]:
    """Returns the files that commands left and were not asked to write."""
    made = (*_OUTPUTS, *papers.OUTPUTS, _OF_ONNX_RUNTIME)
    return sorted(name for name in set(files(case.folder)) - before if name.split("/")[0] not in made)


def files(folder: Path) -> Iterator[str]:
    """Yields the files in a folder, relative to it."""
    for path in folder.rglob("*"):
        if not path.is_dir():
            yield path.relative_to(folder).as_posix()


def _model_case(r: random.Random, number: int, folder: Path) -> Case:
    (name, data), (_, other) = r.choice(seeds.seeds()), r.choice(seeds.seeds())
    model = onnx.ModelProto.FromString(data)
    done = mutate.spoil(r, model, onnx.ModelProto.FromString(other), MEANINGS) if r.random() < 0.97 else []
    if r.random() < 0.05:
        folder.joinpath("w").mkdir()
        broken.external(r, model, folder.joinpath("w"))
        for path in list(folder.joinpath("w").iterdir()):
            path.rename(folder / path.name)
        done.append("external")
    spoiled = model.SerializeToString()
    if r.random() < 0.1:
        spoiled = broken.mutate_bytes(r, spoiled)
        done.append("bytes")
    path = folder / _file_name(r)
    path.write_bytes(spoiled)
    return Case(number, folder, " ".join([name, *done]), tuple(_commands(r, path.name, model)))


def _file_name(r: random.Random) -> str:
    if r.random() < 0.95:
        return "m.onnx"
    name = r.choice(TEXTS).replace("/", "_").replace("\x00", "")[:80]
    return f"{name}.onnx" if r.random() < 0.7 else "m\udcff.onnx"


def _broken_case(r: random.Random, number: int, folder: Path) -> Case:
    path, dims = broken.make(number, folder)
    what = (folder / "what.txt").read_text()
    bounds = tuple(part for dim in dims for part in ("--dim", dim))
    return Case(number, folder, f"broken {what}", tuple(_with_dims(r, path.name, bounds)))


def _commands(r: random.Random, name: str, model: onnx.ModelProto) -> Iterator[tuple[str, ...]]:
    dims = [d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param]
    if r.random() < 0.05:
        dims.append(r.choice(TEXTS))
    bounds = [f"{dim}={r.choice(_BOUNDS[:8] if r.random() < 0.95 else _BOUNDS)}" for dim in dict.fromkeys(dims)]
    given = tuple(part for bound in bounds if r.random() < 0.95 for part in ("--dim", bound.replace("\x00", "")))
    yield from _with_dims(r, name, given)


def _with_dims(r: random.Random, name: str, dims: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    target = ("--target", r.choice(TARGETS))
    extra = r.choice(
        [(), (), (), ("--no-rewrite",), ("--requantize",), ("--thorough",), ("--ignore", "TC3"), ("--verbose",)]
    )
    form = ("--format", r.choice(FORMATS))
    simple = ("--format", r.choice(["text", "json"]))
    at = ("--", name) if name.startswith("-") else (name,)
    yield ("check", *dims, *target, *form, *r.choice([(), ("-q",)]), *extra, *at)
    yield ("sizes", *dims, *simple, *at)
    if r.random() < 0.7:
        yield ("build", *dims, "--target", "rtx", "-o", "e.engine", *simple, "--force", "-q", *extra[:1], *at)
    if r.random() < 0.4:
        node = r.choice(["", "0", "1", "x", "up", r.choice(TEXTS)])
        yield ("explain", *simple, *target, *at, *([node] if node and not node.startswith("-") else []))
    if r.random() < 0.015:
        yield ("rewrite", "-o", "r.onnx", *target, *simple, "-q", *at)
    if r.random() < 0.005:
        yield ("inspect", *simple, *at)
    if r.random() < 0.003:
        yield ("share", "-o", "s.onnx", "--target", "rtx", "--trials", "2", "--timeout", "4", *simple, "-q", *at)
        yield ("reduce", "-o", "p.onnx", "--target", "rtx", "--trials", "2", "--timeout", "4", *simple, "-q", *at)
    if r.random() < 0.004:
        yield ("build", *dims, "--target", "rtx", "-o", "e.engine", "--precision", "fp16", "--force", "-q", *at)
    if r.random() < 0.05:
        yield tuple(_odd_arguments(r, name))


def _odd_arguments(r: random.Random, name: str) -> Iterator[str]:
    yield r.choice(["check", "build", "sizes", "explain", "rewrite", "inspect", "rule", "passes", "nope", "--help"])
    odd = [
        *(text.replace("\x00", "") for text in TEXTS),
        "--format",
        "json",
        "--dim",
        "--target",
        "rtx-" + "9" * 5000,
        "-o",
        name,
    ]
    yield from r.choices(odd, k=r.randint(0, 4))


def _config_case(r: random.Random, number: int, folder: Path) -> Case:
    name, data = r.choice(seeds.seeds()[:200])
    (folder / "m.onnx").write_bytes(data)
    text = _spoiled_config(r)
    (folder / "trtconv.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    (folder / ".git").mkdir()
    lines = [
        ("check", "--format", r.choice(FORMATS)),
        ("check", "m.onnx", "-q"),
        ("sizes", "m.onnx"),
        ("build", "--force"),
    ]
    return Case(number, folder, f"config {name}", tuple(lines))


def _spoiled_config(r: random.Random) -> str:
    values = [
        "[" * r.choice([3, 50000]),
        "9" * r.choice([20, 5000]),
        json.dumps(r.choice(TEXTS)),
        "true",
        "[]",
        "{}",
        "nan",
    ]
    values += [
        '"../../x.engine"',
        '"/tmp/x.engine"',
        "1979-05-27",
        "-1",
        ".".join("a" * r.choice([3, 20000])) + " = 1",
        '"a\\u0000b"',
    ]
    choice = r.randrange(4)
    if choice == 0:
        return re.sub(r"= .*", lambda m: f"= {r.choice(values)}" if r.random() < 0.3 else m[0], CONFIG)
    if choice == 1:
        return CONFIG + f"{json.dumps(r.choice(TEXTS))} = {r.choice(values)}\n"
    if choice == 2:
        return f"{r.choice(values)}\n{CONFIG}"
    return broken.mutate_bytes(r, CONFIG.encode()).decode("utf-8", "surrogateescape")


def _report_case(r: random.Random, number: int, folder: Path, engine: Path) -> Case:
    shutil.copy(engine, folder / "e.engine")
    shutil.copy(seeds.ROOT / "models" / "unet.onnx", folder / "m.onnx")
    text = engine.with_name("e.engine.json").read_text()
    for _ in range(r.choice([1, 1, 2, 4])):
        text = _spoiled_report(r, text)
    (folder / "e.engine.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    lines: list[tuple[str, ...]] = [("build", "m.onnx", *ENGINE, "--target", "rtx", "-o", "e.engine", "-q")]
    if r.random() < 0.3:
        lines.insert(0, ("inspect", "e.engine", "--format", r.choice(["text", "json"])))
    if r.random() < 0.2:
        lines.insert(0, ("verify", "e.engine", "m.onnx"))
    return Case(number, folder, "report", tuple(lines))


def _spoiled_report(r: random.Random, text: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    choice = r.random()
    if choice < 0.1:
        return "[" * r.choice([5, 100000])
    if choice < 0.2:
        return broken.mutate_bytes(r, text.encode()).decode(errors="replace")
    places = list(papers.every_place(document))
    holder, key = r.choice(places)
    odd: list[Any] = [
        None,
        0,
        -1,
        1 << 70,
        1.5,
        "",
        [],
        {},
        [5],
        {"a": 1},
        True,
        float("nan"),
        "zz",
        *TEXTS[:12],
        f"\n::{POISON}",
    ]
    if r.random() < 0.2:
        holder.pop(key)
    else:
        holder[key] = r.choice([*odd, r.choice(places)[0]]) if r.random() < 0.95 else odd
    try:
        return json.dumps(document)
    except (ValueError, RecursionError):
        return text
