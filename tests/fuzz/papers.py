"""Cases of the fuzzer about files that are no models: measured documents, jobs, results, samples, keys, engines."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import broken
import numpy as np
import seeds
from harness import POISON
from mutate import TEXTS

Lines = list[tuple[str, ...]]
SMALL = ("--dim", "batch=1", "--dim", "height=64", "--dim", "width=64")
OUTPUTS = ("page.html", "repository", "o.npz", "cache", "job", "out", "q.onnx", "q.onnx.data", "mine", "e.timing")
"""What these commands may write, beside what others do."""
_SHA = "0" * 64
_ODD: list[Any] = [
    *(
        None,
        0,
        -1,
        1 << 70,
        10**400,
        1.5,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "zz",
        True,
        [],
        {},
        [5],
        [[]],
        {"a": 1},
    ),
    *TEXTS[:16],
    f"\n::{POISON}",
]


def odd(r: random.Random, value: Any, times: int = 1) -> Any:
    """Returns a JSON value with some of its parts changed, dropped, doubled or exchanged."""
    value = json.loads(json.dumps(value))
    for _ in range(times):
        places = list(every_place(value))
        if not places:
            return copy.deepcopy(r.choice(_ODD))
        holder, key = r.choice(places)
        choice = r.random()
        if choice < 0.15:
            holder.pop(key)
        elif choice < 0.25 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif choice < 0.35:
            other, there = r.choice(places)
            if there in other if isinstance(other, dict) else there < len(other):
                holder[key] = copy.deepcopy(other[there])
        else:
            # A copy: what is in a list of the odd ones is changed in its turn.
            holder[key] = copy.deepcopy(r.choice(_ODD))
    return value


def every_place(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every list or table inside JSON values, with each of its indices or keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from every_place(value[key])


def _text(r: random.Random, value: Any) -> bytes:
    choice = r.random()
    if choice < 0.04:
        return b"[" * r.choice([5, 100_000])
    data = json.dumps(odd(r, value, r.choice([1, 1, 2, 4]))).encode()
    return broken.mutate_bytes(r, data) if choice < 0.12 else data


def _engine(r: random.Random, folder: Path, engine: Path, name: str = "e") -> dict[str, Any]:
    """Copies the engine with its report, without checksum so that edits of it pass; returns the report."""
    shutil.copy(engine, folder / f"{name}.engine")
    report: dict[str, Any] = json.loads(engine.with_name("e.engine.json").read_text())
    report.pop("body_sha256", None)
    if r.random() < 0.2:
        data = engine.read_bytes()
        data = r.choice([b"", data[: len(data) // 2], data + b"x", broken.mutate_bytes(r, data[:5000])])
        (folder / f"{name}.engine").write_bytes(data)
    kept = r.random() < 0.4
    (folder / f"{name}.engine.json").write_bytes(json.dumps(report).encode() if kept else _text(r, report))
    return report


def _verify(sha: str) -> dict[str, Any]:
    output = {"name": "y", "shape": [1, 3, 64, 64], "dtype": "float32", "max_abs": 1e-6, "max_rel": 1e-6}
    output |= {"cosine": 1.0, "psnr": 120.0, "mismatches": 0.0, "passed": True, "why": None}
    case = {"profile": 0, "size": "min", "shapes": {"x": [1, 3, 64, 64]}, "seed": 0, "outputs": [output]}
    case |= {"passed": True, "skipped": None}
    worst = {"max_rel": 1e-6, "output": "y", "profile": 0, "size": "min"}
    head = {"schema": 1, "model": {"path": "m.onnx", "sha256": _SHA}, "engine": {"path": "e.engine", "sha256": sha}}
    return {
        **head,
        **{"ran": "engine", "why_not_run": None, "runtime": {"family": "rtx", "version": "1", "gpu": "G"}},
        **{
            "precision": "float32",
            "tolerance": {"relative": 1e-4, "cosine": 0.9},
            "verified": True,
            "incomplete": None,
        },
        **{"worst": worst, "cases": [case], "proof": None, "bisect": None, "seconds": {"load": 1.0}, "exit_code": 0},
    }


def _bench(sha: str) -> dict[str, Any]:
    row = {"engine": 0, "profile": 0, "size": "opt", "shapes": {"x": [1, 3, 64, 64]}, "graph": True, "copies": False}
    row |= {"median_us": 10.0, "mean_us": 10.0, "p90_us": 11.0, "p95_us": 11.0, "p99_us": 12.0, "count": 10}
    row |= {"throughput_per_s": 1e5, "why": None}
    engine = {"path": "e.engine", "sha256": sha, "bytes": 10, "layers": 3}
    engine |= {"weight_memory_bytes": 5, "activation_memory_bytes": 6}
    runtime = {"family": "rtx", "version": "1", "gpu": "G", "driver": "5"}
    rest = {"ratios": [], "seconds": {}, "incomplete": None, "exit_code": 0}
    return {"schema": 1, "engines": [engine], "runtime": runtime, "rows": [row, {**row, "graph": False}], **rest}


def _inspect(sha: str) -> dict[str, Any]:
    tensor = {"name": "y", "dtype": "float32", "shape": [1, 3], "format": "linear"}
    layer = {"name": "l", "type": "Conv", "precision": "fp16", "inputs": [tensor], "outputs": [tensor], "time_us": 1.0}
    layer |= {"tactic": "t", "onnx": ["n"]}
    document = {"schema": 1, "kind": "engine", "file": {"path": "e.engine", "sha256": sha, "bytes": 10}, "loaded": True}
    return {**document, "layers": [layer], "details": "full", "summary": {}, "time": None, "exit_code": 0}


def _measured(r: random.Random, folder: Path, engine: Path) -> Lines:
    """Reports, and what verify, bench and inspect found, in the hands of those who show them."""
    lines: Lines = []
    for name in ("e", "f"):
        report = _engine(r, folder, engine, name)
        sha = report["engine"]["sha256"]
        for kind, make in (("verify", _verify), ("bench", _bench), ("inspect", _inspect)):
            if r.random() < 0.7:
                found = _text(r, make(sha)) if r.random() < 0.6 else json.dumps(make(sha)).encode()
                (folder / f"{name}.engine.{kind}.json").write_bytes(found)
    form = ("--format", r.choice(["text", "json"]))
    lines.append(("report", r.choice(["e.engine", "e.engine.json", "."]), "-o", "page.html", *form))
    lines.append(("diff", "e.engine.json", "f.engine.json", *form))
    lines.append(("inspect", "e.engine.json", *form))
    if r.random() < 0.5:
        lines.append(("triton", "e.engine", "f.engine", "repository", "--force", *form))
    if r.random() < 0.2:
        lines.append((r.choice(["bench", "run", "warm", "inspect"]), "e.engine", *r.choice([(), ("--trust",)])))
    if r.random() < 0.3:
        lines.append(("report", "e.engine.json", "--with", "e.engine.bench.json", "-o", "page.html"))
    return lines


def _job(r: random.Random, folder: Path, engine: Path) -> Lines:
    """Jobs and results, in the hands of run-job and collect."""
    from trtconv.core.requests.build import BuildRequest
    from trtconv.core.target import Target
    from trtconv.engine.farm.job import BuildJob
    from trtconv.engine.farm.planning import prepare

    _, data = r.choice(seeds.seeds()[:20])
    (folder / "m.onnx").write_bytes(data)
    (folder / "trtconv.toml").write_text('targets = ["rtx"]\nprove = "none"\n[[models]]\npath = "m.onnx"\n')
    (folder / ".git").mkdir()
    job: dict[str, Any] = {"schema": 1, "model": {"sha256": _SHA, "bytes": 1}, "data": {}, "build": {}, "then": []}
    job |= {"version": None, "trtconv": "0.1.0", "source": "x"}
    key = _SHA
    # A model of dynamic sizes, for one, makes none; then the job is one made by hand.
    with contextlib.suppress(Exception):
        waiting, _ = prepare(BuildRequest(folder / "m.onnx", target=Target("rtx"), prove="none"), None)
        job, key = waiting.job.to_json(), waiting.job.name
    report = json.loads(engine.with_name("e.engine.json").read_text())
    result = {"schema": 1, "job": key, "report": report, "error": None, "then": {}, "log": "", "worker": "w"}
    error = {"type": "BuildFailed", "message": "m", "hint": "h", "exit_code": 1}
    jobs, out = folder / "job", folder / "out"
    for place in (jobs, out):
        (place / "sha256" / "00").mkdir(parents=True)
    shown = odd(r, job, r.choice([0, 1, 1, 2]))
    text = json.dumps(shown).encode() if r.random() < 0.8 else _text(r, job)
    named = key
    # A job that is none has any name.
    with contextlib.suppress(Exception):
        fields = {k: v for k, v in shown.items() if k not in ("schema", "then")}
        named = BuildJob(**fields, then=tuple(shown["then"])).name
    (jobs / f"{named}.json").write_bytes(text)
    (out / f"{key}.result.json").write_bytes(_text(r, r.choice([result, {**result, "report": None, "error": error}])))
    sha = job["model"]["sha256"] if isinstance(job["model"], dict) else _SHA
    (jobs / "sha256" / str(sha)[:2]).mkdir(exist_ok=True)
    (jobs / "sha256" / str(sha)[:2] / str(sha)).write_bytes(data if r.random() < 0.7 else b"x")
    form = ("--format", r.choice(["text", "json"]))
    lines: Lines = [("collect", "out", *form), ("plan", *form)]
    if r.random() < 0.3:
        (out / f"{named}.result.json").write_bytes(_text(r, {**result, "job": named}))
    lines.append(("run-job", f"job/{named}.json", "out", *form))
    return lines


def _samples(r: random.Random, folder: Path, engine: Path) -> Lines:
    """Arrays and images as inputs."""
    (folder / "m.onnx").write_bytes(seeds.TINY)
    data = _archive(r)
    name = r.choice(["in.npz", "in.npz", "in.npy", "in.png", "in.tif", "in.gif"])
    if not name.startswith("in.np"):
        data = _picture(r, name)
    place = folder / "s"
    place.mkdir()
    (place / name).write_bytes(data)
    if r.random() < 0.3:
        (place / f"2{name}").write_bytes(data)
    given = r.choice(["s", f"s/{name}"])
    quiet = ("-q", "--format", r.choice(["text", "json"]))
    preprocess = r.choice(
        [
            (),
            ("--preprocess", "size=4x4"),
            ("--preprocess", r.choice(["scale=1e400", "scale=1/0", "mean=nan,std=inf", "size=0x1", "color=gray,crop"])),
            ("--preprocess", f"size={r.choice(TEXTS)}".replace("\x00", "")),
        ]
    )
    lines: Lines = [("quantize", "m.onnx", "--data", given, "-o", "q.onnx", *preprocess, "--target", "rtx", *quiet)]
    lines.append(("verify", "m.onnx", "--inputs", f"s/{name}", *quiet))
    if r.random() < 0.2:
        lines.append(("build", "m.onnx", "--precision", "int8", "--data", given, *preprocess, "-o", "e.engine", *quiet))
    return lines[: r.choice([1, 2, 3])]


def _archive(r: random.Random) -> bytes:
    made = io.BytesIO()
    shape = r.choice([(4, 1, 1, 4, 4), (2, 1, 4, 4), (1, 1, 4, 4), (), (0,), (3,), (1,) * 33])
    dtype = r.choice(["f4", "f4", "f8", "f2", "i1", "U5", "S3", "c8", "M8[s]", "?", ">f4", "V4"])
    array = np.zeros(shape, "i4") if len(shape) > 32 else np.zeros(shape, np.dtype(dtype))
    if r.random() < 0.2 and array.dtype.kind == "f" and array.size:
        array.reshape(-1)[0] = r.choice([np.nan, np.inf, -np.inf, 1e38])
    name = r.choice(["x", "x", "x", "y", "", "../x", *TEXTS]).replace("\x00", "")
    plain = io.BytesIO()
    np.lib.format.write_array(plain, array, allow_pickle=False)
    entry = plain.getvalue()
    choice = r.random()
    if choice < 0.15:
        entry = entry.replace(
            b"'shape': (", r.choice([b"'shape': ((((", b"'shape': (9999999,999999,", b"'shape': (-1,"])
        )
    elif choice < 0.3:
        entry = broken.mutate_bytes(r, entry)
    elif choice < 0.35:
        return entry
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w", r.choice([0, 8, 12, 14])) as archive:
        # Of names that occur twice.
        warnings.simplefilter("ignore")
        for _ in range(r.choice([1, 1, 2])):
            archive.writestr(f"{name}.npy" if r.random() < 0.9 else name or "x", entry)
    return broken.mutate_bytes(r, made.getvalue()) if r.random() < 0.4 else made.getvalue()


def _picture(r: random.Random, name: str) -> bytes:
    from PIL import Image

    made = io.BytesIO()
    image = Image.new(r.choice(["RGB", "L", "P", "1"]), (r.choice([1, 4, 9]), 4))
    image.save(made, {"png": "PNG", "tif": "TIFF", "gif": "GIF"}[name[3:]])
    return broken.mutate_bytes(r, made.getvalue()) if r.random() < 0.8 else made.getvalue()


def _keys(r: random.Random, folder: Path, engine: Path) -> Lines:
    """Signatures, and flags of other machines."""
    _engine(r, folder, engine)
    (folder / "m.onnx").write_bytes(seeds.TINY)
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key: Any = r.choice([ed25519.Ed25519PrivateKey.generate, lambda: ec.generate_private_key(ec.SECP256R1())])()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for name, data in (("k.pem", private), ("p.pem", public)):
        (folder / name).write_bytes(broken.mutate_bytes(r, data) if r.random() < 0.5 else data)
    lines: Lines = [("inspect", "e.engine.json", "--key", r.choice(["p.pem", "k.pem", "."]))]
    lines.append(("build", "m.onnx", "--target", "rtx", "-q", "-o", "e.engine", "--sign", r.choice(["k.pem", "p.pem"])))
    lines.append(("verify", "m.onnx", "e.engine", "--key", "p.pem", "-q"))
    lines.append(
        (
            "plan",
            "--on",
            r.choice([*TEXTS, "tls://x", "tcp://127.0.0.1:1", "tls://127.0.0.1:99999"]).replace("\x00", ""),
        )
    )
    return [each for each in lines if r.random() < 0.6]


def _flags(r: random.Random, folder: Path, engine: Path) -> Lines:
    """Flags with odd values and in odd company."""
    _, data = r.choice(seeds.seeds()[:200])
    (folder / "m.onnx").write_bytes(data)
    (folder / "e.timing").write_bytes(b"nothing")
    texts = [text.replace("\x00", "") for text in TEXTS]
    numbers = ["0", "-1", "1e9", "nan", "inf", "1e400", "9" * 5000, "x", ""]
    values: dict[str, list[str]] = {
        "--budget": [*numbers, "elements=1", "seconds=0.01", "megabytes=1", "nodes=1e99,bytes=1", "elements=nan"],
        "--gpu-memory": [*numbers, "24G", "1K", "-5G", "9" * 400 + "G"],
        "--input": ["x=1x3x64x64", "x=", "=1", "x=0x0", "y=1:2:3x4", "x=1x-1x?", "x=9999999999999x1", "x=1x2:4:8x_x8"],
        "--value": ["x=1:2:3", "x=", "s=64x64:128x128:256x256", "x=9999999999999999999"],
        "--minShapes": ["x:1x3x64x64", "x", "x:", ":1", "x:1x-1"],
        "--maxShapes": ["x:1x3x64x64", "y:99999999999999999999x1"],
        "--profile": ["height=64:128:256", "h=8,w=8", "x:2=4", "=1", "h=", "batch=1,height=64,width=64"],
        "--split": ["2", "auto", "0", "9999", "-1", "99999"],
        "--prove": ["none", "full", "quick", "x"],
        "--timing-cache": ["e.timing", "none", "auto", ".", "m.onnx"],
        "--select": ["TC1", "", "x", *texts[:20]],
        "--ignore": ["TC", "TC201=why", *texts[:20]],
        "--target": ["rtx@h100", "rtx@cc8.9", "tensorrt-8.6@", "@", "rtx-1.7", "tensorrt-99", "auto", *texts[:20]],
        "--compute-capability": ["8.6", "x", "999", "8.6+PTX", "current"],
        "--workspace": [*numbers, "1G"],
        "--page": ["page.html", "m.onnx", "e.engine", "."],
        "--dim": ["batch=1", "x:0=1", "x:99=1", "x:-1=2", "h=1:2", "height=8:16:32"],
        "--precision": ["fp16", "bf16", "int8", "auto"],
        "--only": ["make-deconv-explicit", "x"],
        "--then": ["verify", "verify,verify", "x"],
    }
    form = ("--format", r.choice(["text", "json"]))
    lines: Lines = []
    for _ in range(2):
        chosen = r.sample(sorted(values), r.choice([1, 2, 3]))
        given = [part for flag in chosen for part in (flag, r.choice(values[flag]))]
        command = r.choice(
            ["check", "check", "build", "sizes", "reduce", "rewrite", "verify", "quantize", "plan", "explain"]
        )
        more = {"reduce": ["-o", "p.onnx", "--trials", "1", "--timeout", "4"], "rewrite": ["-o", "r.onnx"]}
        more |= {"quantize": ["-o", "q.onnx"], "build": ["-o", "e.engine", "--force"]}
        at = [] if command == "plan" else ["m.onnx"]
        lines.append((command, *at, *given, *more.get(command, []), *form))
    return lines


_CASES: tuple[tuple[Callable[[random.Random, Path, Path], Lines], int], ...] = (
    *((_measured, 5), (_job, 3), (_samples, 3), (_keys, 2), (_flags, 5)),
)


def make(r: random.Random, folder: Path, engine: Path) -> tuple[str, Lines]:
    """Makes a case.

    Args:
        r: Where chance comes from.
        folder: Empty; its files go here.
        engine: A built engine with its report beside it.

    Returns:
        What it is about, and its commands.
    """
    ((case, _),) = r.choices(_CASES, [weight for _, weight in _CASES])
    return case.__name__.strip("_"), case(r, folder, engine)
