"""`trtconv export` on networks of public packages, by brute force against PyTorch and the plain exporter.

    python bench/export_architectures.py [--only TEXT] [--missing] [-o bench/results/export_architectures.json]

Every network has random weights and is small. Its rule is held against PyTorch at 20 sizes of a seeded choice within
the bounds, off the lattice as well as on it, and its file is run there on ONNX Runtime; so is the file of
torch.onnx.export(dynamo=True) with named dimensions. Ends with 1 where a file is wrong at a size that the rule takes,
where the rule takes a size that PyTorch refuses, or where the plain file is right at a size that the rule loses.
Processor time is without our proof, after one export of a small network, whose imports would burden whoever comes
first, and after a search for what the other left behind. "ratio" is against the plain exporter at the network's own
size, whatever its file takes; "ratio_alike" against a plain file that is right wherever ours is, traced at the
network's own size or at an uneven one beside it ("plain_beside_seconds"), and left out where neither is. What is in
the output file already is kept. Needs the packages of `make test-architectures`; those that are missing are left out
and said so.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import inspect
import json
import platform
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import trtconv
from trtconv.exporter.file import proof

sys.path.append(str(Path(__file__).resolve().parent))

from export_networks import PLANE, Case, cases

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "bench" / "results" / "export_architectures.json"
SIZES, SECONDS, RIGHT = 20, 400, 1e-3
AGAIN = 1.3
"""Where ours takes so many times as long, both are timed again: shared cores make processor time longer."""
CRASHES = ("spandrel SPAN",)
"""Networks on which torch.onnx.export ends with a segmentation fault (torch 2.13), so that there is nothing beside."""


def main() -> int:
    """Runs the cases and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="names that contain this text")
    parser.add_argument("--missing", action="store_true", help="only what is not in the output file")
    parser.add_argument("--rounds", type=int, default=3, help="how often slow ones are timed, at most")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    old = json.loads(arguments.output.read_text())["cases"] if arguments.output.exists() else {}
    results: dict[str, Any] = dict(old)
    torch.set_num_threads(1)
    _warm_up()
    for case in cases():
        if arguments.only in case.name and not (arguments.missing and case.name in results):
            results[case.name] = _limited(case, arguments.rounds)
            print(case.name, _line(results[case.name]), flush=True)
            _write(arguments.output, results)
    bad = [n for n, r in results.items() if r.get("wrong") or r.get("too_many") or r.get("lost")]
    _print_times("all", [r["ratio"] for r in results.values() if r.get("ratio")])
    _print_times(
        "beside a file that takes the same", [r["ratio_alike"] for r in results.values() if r.get("ratio_alike")]
    )
    print(f"bad: {bad or 'none'}")
    return 1 if bad else 0


def _print_times(which: str, ratios: list[float]) -> None:
    if ratios:
        print(f"processor time, {which}: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}")


def _warm_up() -> None:
    _plain(Case("warm-up", lambda: torch.nn.Conv2d(3, 3, 3), (1, 3, 8, 8), PLANE, (8, 16)))


def _write(path: Path, results: dict[str, Any]) -> None:
    about = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "onnxruntime": onnxruntime.__version__,
        "trtconv": trtconv.__version__,
        "sizes": SIZES,
    }
    path.write_text(json.dumps({**about, "cases": results}, indent=1) + "\n")


def _line(result: dict[str, Any]) -> str:
    keys = (
        "exported",
        "rules",
        "taken",
        "right",
        "wrong",
        "too_many",
        "lost",
        "plain_right",
        "ratio",
        "ratio_alike",
        "why",
    )
    return ", ".join(f"{key} {result[key]}" for key in keys if result.get(key) is not None)[:400]


class _Over(BaseException):
    """No Exception: exporters take those for a question that has no answer, and go on."""


def _limited(case: Case, rounds: int) -> dict[str, Any]:
    def over(*_: Any) -> None:
        raise _Over(f"more than {SECONDS} s of processor time")

    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return _measure(case, rounds)
    except (Exception, _Over) as error:
        return {"exported": False, "why": f"{type(error).__name__}: {error}"[:600]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _measure(case: Case, rounds: int) -> dict[str, Any]:
    alone = case.name in CRASHES
    plain, plain_seconds, plain_why = (None, None, "a segmentation fault") if alone else _plain(case)
    ours, seconds, report, why, module = _ours(case)
    for _ in range(1, rounds):
        if ours is None or plain_seconds is None or seconds < AGAIN * plain_seconds:
            break
        plain_seconds = min(plain_seconds, _plain(case)[1] or plain_seconds)
        seconds = min(seconds, _ours(case)[1])
    counts = _against_pytorch(case, module, ours, plain, report)
    rules = {} if report is None else {rule.name: rule.sentence().partition(":")[0] for rule in report.sizes}
    alike = ours is not None and plain is not None and counts["plain_right"] >= counts["right"]
    elsewhere = None
    if ours is not None and plain is not None and not alike:
        other, elsewhere, _ = _plain(case._replace(shape=_beside(case)))
        right = _against_pytorch(case, module, None, other, None)["plain_right"]
        elsewhere = elsewhere if right >= counts["right"] else None
    same = plain_seconds if alike else elsewhere
    return {
        "exported": ours is not None,
        "exporter": None if report is None else report.exporter,
        "why": why,
        "rules": rules or None,
        **counts,
        "seconds": round(seconds, 2),
        "plain_seconds": plain_seconds and round(plain_seconds, 2),
        "plain_beside_seconds": elsewhere and round(elsewhere, 2),
        "plain_why": plain_why,
        "ratio": round(seconds / plain_seconds, 2) if ours is not None and plain_seconds else None,
        "ratio_alike": round(seconds / same, 2) if same else None,
    }


def _beside(case: Case) -> tuple[int, ...]:
    """Returns an example of uneven sizes about a third larger: a network may run other code at its own size."""
    names = _names(case)
    moved = zip(case.shape, case.axes, strict=True)
    return tuple(n + (names.index(a) + 1) * -(-n // 3) if a in names else n for n, a in moved)


def _names(case: Case) -> list[str]:
    """Returns the dimensions that are bounded: all but the batch."""
    return [axis for axis in case.axes if axis is not None and axis != "batch"]


def _made(case: Case) -> torch.nn.Module:
    torch.manual_seed(0)
    return case.make().eval()


def _inputs(case: Case, module: Any, shape: Sequence[int]) -> dict[str, torch.Tensor]:
    """Returns random inputs by the names of forward's parameters."""
    names = list(inspect.signature(module.forward).parameters)
    inputs = {names[0]: torch.randn(tuple(shape))}
    if case.lengths:
        lengths = torch.randint(1, shape[1] + 1, (shape[0],))
        lengths[0] = shape[1]
        inputs[names[1]] = lengths
    return inputs


def _ours(case: Case) -> tuple[Any, float, Any, str | None, torch.nn.Module]:
    """Exports; returns the session, processor time without the proof, the report, why not, and the module."""
    module = _made(case)
    with tempfile.TemporaryDirectory() as folder:
        return *_timed(case, module, Path(folder) / "ours.onnx"), module


def _timed(case: Case, module: Any, path: Path) -> tuple[Any, float, Any, str | None]:
    spent = [0.0]
    prove = proof.prove

    def timed(*arguments: Any) -> Any:
        started = time.process_time()
        try:
            return prove(*arguments)
        finally:
            spent[0] += time.process_time() - started

    proof.prove = timed
    gc.collect()
    started = time.process_time()
    try:
        inputs = _inputs(case, module, case.shape)
        dynamic = dict(zip(inputs, (case.axes, case.axes[:1]), strict=False))
        bounds = dict.fromkeys(_names(case), case.span)
        report = trtconv.export(module, inputs, path, dynamic, bounds, trtconv.ExportOptions(check=False))
    except trtconv.TrtconvError as error:
        return None, time.process_time() - started - spent[0], None, error.message[:600]
    finally:
        proof.prove = prove
    seconds = time.process_time() - started - spent[0]
    if report.exit_code:
        return None, seconds, None, report.attempts[-1].outcome[:600]
    return _session(path), seconds, report, None


def _plain(case: Case) -> tuple[Any, float | None, str | None]:
    # A module for each: torch.export leaves tensors without values in modules that write into their weights.
    module = _made(case)
    batch = 2 if case.axes[0] == "batch" else case.shape[0]
    inputs = tuple(_inputs(case, module, (batch, *case.shape[1:])).values())
    auto = torch.export.Dim.AUTO
    dims = {axis: auto for axis, name in enumerate(case.axes) if name is not None}
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plain.onnx"
        started = time.process_time()
        try:
            shapes = (dims, {0: auto})[: len(inputs)]
            torch.onnx.export(module, inputs, path, dynamic_shapes=shapes, dynamo=True, verbose=False)
            return _session(path), time.process_time() - started, None
        except Exception as error:
            return None, None, f"{type(error).__name__}: {error}"[:200]


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _against_pytorch(case: Case, module: Any, ours: Any, plain: Any, report: Any) -> dict[str, Any]:
    generator = random.Random(19)
    counts = dict.fromkeys(("taken", "valid", "right", "wrong", "too_many", "lost", "plain_right"), 0)
    worst = 0.0
    for number in range(SIZES):
        sizes = {name: generator.randint(*case.span) for name in _names(case)}
        if number % 2:
            step = 8 if number % 4 == 1 else 32
            sizes = {name: max(size // step * step, case.span[0]) for name, size in sizes.items()}
        sizes["batch"] = 1 + number % 2
        shape = [sizes[name] if name is not None else n for name, n in zip(case.axes, case.shape, strict=True)]
        inputs = _inputs(case, module, shape)
        try:
            with torch.no_grad():
                wanted = list(_tensors(module(**{name: tensor.clone() for name, tensor in inputs.items()})))
        except Exception:
            wanted = None
        valid = report is not None and all(r.takes(sizes[r.name]) for r in report.sizes)
        error, theirs = (_error(session, inputs, wanted) for session in (ours, plain))
        plain_right = theirs is not None and theirs <= RIGHT
        counts["taken"] += wanted is not None
        counts["valid"] += valid
        counts["plain_right"] += plain_right
        counts["too_many"] += valid and wanted is None
        counts["lost"] += ours is not None and wanted is not None and not valid and plain_right
        right = valid and error is not None and error <= RIGHT
        counts["right"] += right
        counts["wrong"] += valid and wanted is not None and not right
        worst = max(worst, error or 0.0) if valid else worst
    return {**counts, "worst": float(f"{worst:.1e}")}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "values"):
        yield from (t for item in value.values() for t in _tensors(item))
    elif isinstance(value, tuple | list):
        yield from (t for item in value for t in _tensors(item))
    elif hasattr(value, "__dataclass_fields__"):
        yield from (t for key in value.__dataclass_fields__ for t in _tensors(getattr(value, key)))


def _error(session: Any, inputs: Mapping[str, torch.Tensor], wanted: list[torch.Tensor] | None) -> float | None:
    if session is None or wanted is None:
        return None
    # The plain exporter numbers inputs whose names it does not keep; their order is the same.
    names = [each.name for each in session.get_inputs()]
    try:
        got = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs.values(), strict=True)})
    except Exception:
        return float("inf")
    if [a.shape for a in got] != [tuple(b.shape) for b in wanted]:
        return float("inf")
    pairs = zip(got, (b.numpy() for b in wanted), strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


if __name__ == "__main__":
    sys.exit(main())
