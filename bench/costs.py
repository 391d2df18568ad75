"""What `make bench` compares, each a function of its own that yields comparisons: whole processes, on the processor."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import networks
import onnx
from measuring import PYTHON, ROOT, TRTCONV, Comparison, in_turns, median, process_megabytes, process_seconds

from trtconv.cli.process.boundary import COLLECT_EVERY
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, run_passes
from trtconv.rules import run_rules

BARE = [PYTHON, str(ROOT / "bench" / "bare.py")]
MODEL = "models/unet.onnx"
SIZES = ["--dim", "batch=1:1:4", "--dim", "height=64:256:512", "--dim", "width=64:256:512"]
SHAPES = {"min": "[1,3,64,64]", "opt": "[1,3,256,256]", "max": "[4,3,512,512]"}
CHAINS = (
    ("10,000 nodes, 1 deconvolution", 1, 9_998, 1.5),
    ("10,000 nodes, 100 deconvolutions", 100, 98, 1.4),
    # Every other node is rewritten: that is work which the script does not do.
    ("10,000 nodes, 5,000 deconvolutions", 5_000, 0, 4.0),
)
"""What it is, deconvolutions, other nodes behind each, and the ratio that is good."""
EXPORTS, LEAST_EXPORTS = ROOT / "out" / "exports", 30
"""Where exports of public packages are kept from one run to the next, and how many there must be."""
ALLOWED_SECONDS = 0.25
"""What a build may take besides a multiple of what the script takes."""
LARGE_BYTES = 20_000_000
MODELS = 20
CONFIG = 'path = "{}"\ndims = {{ batch = "1:1:4", height = "64:128:512", width = "64:128:512" }}\nthorough = true'


def startup(rounds: int = 31) -> Iterator[Comparison]:
    """`trtconv --help` and `--version` against `import click` alone."""
    commands = {"click": [PYTHON, "-c", "import click"]}
    commands |= {flag: [TRTCONV, flag] for flag in ("--help", "--version")}
    costs = in_turns({name: process_seconds(command) for name, command in commands.items()}, rounds)
    for flag in ("--help", "--version"):
        name = f"trtconv {flag} / python -c 'import click'"
        yield Comparison(name, median(costs[flag]), median(costs["click"]), "s", 1.5, f"median of {rounds}")


def whole_build(rounds: int = 9) -> Iterator[Comparison]:
    """`trtconv build` against `polygraphy convert`: the same network, profile and runtime.

    Polygraphy proves nothing, so it is compared with `--prove none`; what the quick proof costs is a line of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        ours = [TRTCONV, "build", MODEL, *SIZES, "--target", "rtx", "--force", "-o", f"{folder}/ours.engine"]
        polygraphy = str(Path(sysconfig.get_path("scripts")) / "polygraphy")
        theirs = [polygraphy, "convert", MODEL, "--convert-to", "trt", "-o", f"{folder}/theirs.engine"]
        for bound, shape in SHAPES.items():
            theirs += [f"--trt-{bound}-shapes", f"x:{shape}"]
        tasks = {
            "trtconv": process_seconds([*ours, "--prove", "none"]),
            "proved": process_seconds(ours),
            "polygraphy": process_seconds(theirs, {"POLYGRAPHY_USE_TENSORRT_RTX": "1"}),
        }
        costs = {name: median(each) for name, each in in_turns(tasks, rounds).items()}
    name, method = f"trtconv build / polygraphy convert, {MODEL}", f"median of {rounds}"
    yield Comparison(name, costs["trtconv"], costs["polygraphy"], "s", 1.0, method)
    name = f"trtconv build with the quick proof / without, {MODEL}"
    yield Comparison(name, costs["proved"], costs["trtconv"], "s", 2.0, method)


def scaling(rounds: int = 5) -> Iterator[Comparison]:
    """Many nodes: passes and rules on ten times as many, and `trtconv check` against a script that only parses."""
    # As the command does.
    gc.set_threshold(COLLECT_EVERY)
    costs = in_turns({str(n): passes_and_rules(networks.chain(n)) for n in (1_000, 10_000)}, rounds)
    name = "passes and rules, 10,000 / 1,000 ConvTranspose"
    yield Comparison(name, min(costs["10000"]), min(costs["1000"]), "s", 12, f"minimum of {rounds}")
    for name, deconvolutions, between, limit in CHAINS:
        yield from _check(name, networks.chain(deconvolutions, between), limit, rounds)


def passes_and_rules(proto: onnx.ModelProto) -> Callable[[], float]:
    """Returns a task: seconds for rules, passes, and rules again, as check and build do it."""
    target = Target("rtx", (1, 7))

    def task() -> float:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        started = time.perf_counter()
        model = OnnxModel(copy, Path("chain.onnx"))
        run_rules(model, target)
        done = run_passes(model, PASSES, target)
        run_rules(model, target)
        seconds = time.perf_counter() - started
        assert len(done.edits) == sum(node.op_type == "ConvTranspose" for node in proto.graph.node)
        return seconds

    return task


def _check(name: str, proto: onnx.ModelProto, limit: float, rounds: int) -> Iterator[Comparison]:
    # The script proves nothing, so it is compared with `--prove none`; what the quick proof costs is a line of its own.
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/chain.onnx"
        onnx.save_model(proto, model)
        proved = [TRTCONV, "check", model, "--target", "rtx", "--fail-on", "never"]
        commands = {"trtconv": [*proved, "--prove", "none"], "proved": proved, "bare": [*BARE, "parse", model]}
        tasks = {way: process_seconds(command) for way, command in commands.items()}
        costs = {way: median(each) for way, each in in_turns(tasks, rounds).items()}
    method, title = f"median of {rounds}", f"trtconv check / onnx.load and parse, {name}"
    yield Comparison(title, costs["trtconv"], costs["bare"], "s", limit, method)
    # ONNX Runtime alone takes longer to load 10,000 nodes than TensorRT's parser.
    title = f"trtconv check with the quick proof / without, {name}"
    yield Comparison(title, costs["proved"], costs["trtconv"], "s", 2.0, method)


def memory(rounds: int = 2) -> Iterator[Comparison]:
    """Peak memory of `trtconv build` on 1.5 GB of external data against a script that only parses and builds."""
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/heavy.onnx"
        # In a process of its own: a child's peak cannot be below what its parent held when it started.
        subprocess.run([PYTHON, str(ROOT / "bench" / "networks.py"), "1500", model], check=True)
        ours = [TRTCONV, "build", model, "--target", "rtx", "--force", "-o", f"{folder}/ours.engine"]
        bare = [*BARE, "build", model, f"{folder}/bare.engine"]
        costs = in_turns({"trtconv": process_megabytes(ours), "bare": process_megabytes(bare)}, rounds)
    name = "peak memory, trtconv build / parse and build, 1.5 GB external data"
    yield Comparison(name, max(costs["trtconv"]), max(costs["bare"]), "MB", 1.2, f"maximum of {rounds}")


def many(rounds: int = 3) -> Iterator[Comparison]:
    """Models of a configuration: two processes against one, without the proof, which takes two by itself."""
    with tempfile.TemporaryDirectory() as name:
        lines = ['prove = "none"', 'targets = ["rtx"]']
        for number in range(MODELS):
            shutil.copy(ROOT / MODEL, Path(name, f"m{number}.onnx"))
            lines += ["[[models]]", CONFIG.format(f"m{number}.onnx")]
        config = Path(name, "trtconv.toml")
        config.write_text("\n".join(lines) + "\n")
        command = [TRTCONV, "check", "--config", str(config), "-q", "--jobs"]
        costs = in_turns({jobs: process_seconds([*command, jobs]) for jobs in ("2", "1")}, rounds)
    title = f"trtconv check --thorough of {MODELS} U-Nets, --jobs 2 / --jobs 1"
    yield Comparison(title, median(costs["2"]), median(costs["1"]), "s", 1 / 1.7, f"median of {rounds}")


def exports(rounds: int = 5) -> Iterator[Comparison]:
    """`trtconv build` with its proof against a script that only parses and builds, on exports of public packages.

    A build may take `ALLOWED_SECONDS` more: these are left out of what it took. So is, of files below `LARGE_BYTES`,
    the memory of a Python that has loaded NumPy and onnx, for which the script has no use.
    """
    seconds: dict[str, tuple[float, float]] = {}
    megabytes: dict[str, tuple[float, float]] = {}
    names: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for model in real_exports():
            names |= {model.stem} if model.stat().st_size >= LARGE_BYTES else set()
            ours = [TRTCONV, "build", str(model), "--target", "rtx", "--force", "-q", "-o", f"{folder}/ours.engine"]
            bare = [*BARE, "build", str(model), f"{folder}/bare.engine"]
            costs = in_turns({"ours": process_seconds(ours), "bare": process_seconds(bare)}, rounds)
            # The least: whatever else the machine does only adds to it, and the worst of many is told.
            seconds[model.stem] = max(min(costs["ours"]) - ALLOWED_SECONDS, 0.0), min(costs["bare"])
            # One look at each: what is held varies by a few percent.
            megabytes[model.stem] = process_megabytes(ours)(), process_megabytes(bare)()
    what = f"trtconv build less {ALLOWED_SECONDS} s / parse and build"
    yield from of_many(what, seconds, "s", 1.2, f"minimum of {rounds}")
    interpreter = process_megabytes([PYTHON, "-c", "import numpy, onnx"])()
    large = {name: each for name, each in megabytes.items() if name in names}
    small = {name: (ours - interpreter, bare) for name, (ours, bare) in megabytes.items() if name not in names}
    yield from of_many(
        f"peak memory, trtconv build / parse and build, from {LARGE_BYTES / 1e6:.0f} MB on", large, "MB", 1.3, "one run"
    )
    what = f"peak memory, trtconv build less {interpreter:.0f} MB of NumPy and onnx / parse and build, smaller files"
    yield from of_many(what, small, "MB", 1.3, "one run")


def of_many(
    what: str, costs: Mapping[str, tuple[float, float]], unit: str, limit: float, method: str
) -> Iterator[Comparison]:
    """Yields the median and the worst of many comparisons of one kind, by their ratios."""
    ordered = sorted(costs, key=lambda name: costs[name][0] / costs[name][1])
    for which, name in (("median", ordered[len(ordered) // 2]), ("worst", ordered[-1])):
        yield Comparison(f"{what}, {which} of {len(costs)} exports: {name}", *costs[name], unit, limit, method)


def real_exports() -> list[Path]:
    """Returns the files of `bench/real_exports.py`, made where they are not there yet; EXPORT_PYTHON may name a Python
    that has the packages."""
    EXPORTS.mkdir(parents=True, exist_ok=True)
    python = os.environ.get("EXPORT_PYTHON", PYTHON)
    subprocess.run([python, str(ROOT / "bench" / "real_exports.py"), str(EXPORTS)], check=True)
    files = sorted(EXPORTS.glob("*.onnx"))
    if len(files) < LEAST_EXPORTS:
        raise SystemExit(
            f"{len(files)} exports, of {LEAST_EXPORTS}: make .venv/architectures.stamp installs the packages"
        )
    return files


BENCHMARKS: dict[str, Callable[..., Iterator[Comparison]]] = {
    each.__name__: each for each in (startup, whole_build, exports, scaling, memory, many)
}
