"""Follows every hint that `trtconv build` prints, until it builds, or is refused for a reason that no hint mends.

    python bench/hints.py [--only TEXT] [--packages] [--missing] [-o bench/results/hints.json]

Networks with random weights, those of public packages with --packages, each written by both exporters of torch, begin
with the bounds of whoever knows his sizes: half of the example's to twice as much. What a hint says is then done as it
is written: sizes, flags, or the export of the module. "first": builds so; "after hints"; "refused": no hint is left
that could be followed; "circle": a call is advised that has been made before; "died" and "too long": the process
ended, or was ended after --limit seconds. Ends with 1 where there is one of the last three. What is in the output file
is kept with --missing; it is written after every network.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import inspect
import io
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch
from click.testing import CliRunner
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

from architectures import Architecture, architectures  # noqa: E402
from measuring import told  # noqa: E402

from support import export_nets, size_nets  # noqa: E402
from trtconv.cli.group import cli  # noqa: E402
from trtconv.core.errors import TrtconvError  # noqa: E402

_MOST_STEPS = 8
_EXPORTED = None
"""What is told between the export of a file and its row."""
_NOT_EXPORTED = "torch does not export it"
_BOUND = re.compile(r"--dim (?P<name>'[^']+'|[^\s=]+)=(?P<bound>\d+(?::\d+){0,2})")
_END = re.compile(r"\b(?:use|Use) (?P<pick>min|opt|max) (?P<size>\d+)")
_OF = re.compile(r"the (min|opt|max) of (\S+?),")
_FLAG = re.compile(r"(?:add|Add|build) (--round|--partition)\b")

Axes = tuple[str | None, ...]
PLANE: Axes = ("batch", None, "height", "width")


def own(name: str, make: Callable[[], nn.Module], shape: tuple[int, ...], axes: Axes) -> Architecture:
    """Returns a network that is not of a package."""
    return Architecture(name, make, shape, axes, (1, 1))


class Attention(nn.Module):
    """Tokens of an image, with positions that belong to one size, or none."""

    def __init__(self, tokens: int = 0) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.positions = nn.Parameter(torch.randn(1, tokens, 8)) if tokens else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patch(x)
        batch, channels, height, width = y.shape
        tokens = y.flatten(2).transpose(1, 2)
        tokens = tokens if self.positions is None else tokens + self.positions
        mixed = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return mixed.transpose(1, 2).reshape(batch, channels, height, width)


class Recurrent(nn.Module):
    """Features of a line of text, read both ways."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.net = getattr(nn, kind)(8, 6, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)[0]


class Found(nn.Module):
    """Pixels above a limit, at most a hundred."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[0, 0] > 0).nonzero()[:100]


def _layers(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*layers)


def corpus() -> Iterator[Architecture]:
    """Yields the networks."""
    image = (1, 3, 32, 32)
    for name in ("Skip", "AnySize", "ComputedPadding", "Baked", "Fixed", "Branch"):
        yield own(name, getattr(export_nets, name), image, PLANE)
    for name in ("NestedUnet", "Pyramid", "Vit", "Yolo", "Normalised", "PaddedToEight", "PaddedToSkip"):
        yield own(name, getattr(size_nets, name), (1, 3, 64, 64), PLANE)
    for padded in (False, True):
        yield own(f"Windows {padded}", functools.partial(size_nets.Windows, padded), (1, 3, 64, 64), PLANE)
    yield own("Attention", Attention, image, PLANE)
    yield own("Attention, positions of one size", lambda: Attention(64), image, PLANE)
    yield own("Found", Found, image, PLANE)
    for kind in ("LSTM", "GRU", "RNN"):
        yield own(kind, functools.partial(Recurrent, kind), (1, 12, 8), ("batch", "length", None))
    conv = nn.Conv2d(3, 8, 3, padding=1)
    yield own("AdaptiveAvgPool", _layers(conv, nn.AdaptiveAvgPool2d(4)), image, PLANE)
    yield own("Flatten", _layers(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(3600, 5)), image, PLANE)
    yield own("PixelShuffle", _layers(nn.Conv2d(3, 12, 3), nn.PixelShuffle(2)), image, PLANE)
    yield own("Unfold", _layers(nn.Unfold(4, stride=4)), image, PLANE)
    yield own("GroupNorm", _layers(conv, nn.GroupNorm(2, 8), nn.SiLU()), image, PLANE)
    yield own("LayerNorm", _layers(nn.Conv2d(3, 4, 3), nn.LayerNorm([4, 30, 30])), image, PLANE)
    deconv = nn.ConvTranspose2d(3, 4, 3, 2, 0, 1)
    yield own("ConvTranspose", _layers(deconv, nn.ReLU()), image, PLANE)
    yield own("Upsample", _layers(nn.MaxPool2d(2), nn.Upsample(scale_factor=3, mode="bilinear")), image, PLANE)
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    yield own("TransformerEncoder", _layers(encoder), (1, 10, 16), ("batch", "length", None))


def export(case: Architecture, module: nn.Module, exporter: str, path: Path) -> None:
    """Writes a network's file as one of torch's exporters does by itself."""
    x = case.example()
    names = {axis: name for axis, name in enumerate(case.axes) if name}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            dims = ({axis: torch.export.Dim.DYNAMIC if axis else torch.export.Dim.AUTO for axis in names},)
            torch.onnx.export(module, (x,), path, dynamo=True, dynamic_shapes=dims, input_names=["x"], verbose=False)
        else:
            torch.onnx.export(module, (x,), path, dynamo=False, dynamic_axes={"x": names}, input_names=["x"])


class Call(NamedTuple):
    """A call of build: the model, its bounds and its flags."""

    model: str
    bounds: tuple[tuple[str, str], ...]
    flags: tuple[str, ...] = ()

    def words(self) -> list[str]:
        dims = [word for name, bound in self.bounds for word in ("--dim", f"{name}={bound}")]
        return ["build", self.model, *dims, *self.flags, "--target", "rtx", "--force", "-q", "--format", "json"]


def follow(case: Architecture, path: Path, exported: Callable[[], Call | None]) -> dict[str, Any]:
    """Builds, and does what hints say until none is left."""
    sizes = {name: size for name, size in zip(case.axes, case.shape, strict=True) if name}
    model = onnx.load(path, load_external_data=False)
    told = [dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
    places = {str(axis): told[axis] for axis, name in enumerate(case.axes) if name and told[axis]}
    bounds = {
        places[str(axis)]: _around(sizes[name]) for axis, name in enumerate(case.axes) if name and str(axis) in places
    }
    call, steps, made = Call(str(path), tuple(bounds.items())), [], list[Call]()
    while True:
        made.append(call)
        outcome = CliRunner().invoke(cli, call.words())
        error = outcome.exception
        document: dict[str, Any]
        if isinstance(error, TrtconvError):
            document = {"error": {"type": type(error).__name__, "message": error.message, "hint": error.hint}}
        else:
            document = json.loads(outcome.stdout)
        if document.get("exit_code") == 0:
            return {"end": "after hints" if steps else "first", "steps": steps}
        errors = [each for each in document.get("findings", ()) if each["severity"] == "error"]
        said = [(each["message"], each["fix"]) for each in errors]
        if document.get("error"):
            said.append((document["error"]["message"], document["error"].get("hint") or ""))
        following = next((n for message, fix in said if (n := followed(call, message, fix, exported))), None)
        # Results do not tell where they were made.
        message, advice = (text.replace(f"{path.parent}/", "") for text in (said[0] if said else ("", "")))
        why = [each["code"] for each in errors] or [document.get("error", {}).get("type")]
        if following is None:
            return {"end": "refused", "why": sorted(set(why)), "said": message[:200], "steps": steps}
        if following in made or len(steps) == _MOST_STEPS:
            return {"end": "circle", "why": sorted(set(why)), "said": [message, advice], "steps": steps}
        steps.append(
            " ".join(word for word in following.words()[2:-6]) if following.model == call.model else "trtconv export"
        )
        call = following


def _around(size: int) -> str:
    return "1:1:4" if size == 1 else f"{max(1, size // 2)}:{size}:{2 * size}"


def followed(call: Call, message: str, fix: str, exported: Callable[[], Call | None]) -> Call | None:
    """Returns the call that a hint advises; None where it advises none that is about this file."""
    bounds = dict(call.bounds)
    for found in _BOUND.finditer(fix):
        bounds[found["name"].strip("'")] = found["bound"]
    end, of = _END.search(fix), _OF.search(message)
    if end and of and of[2] in bounds:
        parts = (bounds[of[2]].split(":") * 3)[:3]
        parts[("min", "opt", "max").index(end["pick"])] = end["size"]
        bounds[of[2]] = ":".join(map(str, sorted(map(int, parts))))
    changed = call._replace(bounds=tuple(bounds.items()))
    if changed != call:
        return changed
    if "trtconv export" in fix and not call.model.endswith("ours.onnx"):
        return exported()
    flag = _FLAG.search(fix)
    return call._replace(flags=(*call.flags, flag[1])) if flag and flag[1] not in call.flags else None


def _ours(case: Architecture, folder: Path) -> Call | None:
    """Exports with trtconv, as the hint says; returns the first call with its file, or nothing where it refuses."""
    import trtconv

    path = folder / "ours.onnx"
    torch.manual_seed(0)
    module = case.make().eval()
    name = next(iter(inspect.signature(module.forward).parameters))
    try:
        trtconv.export(
            module, {name: case.example()}, path, {name: case.axes}, None, trtconv.ExportOptions(check=False)
        )
    except trtconv.TrtconvError:
        return None
    written = {dim.dim_param for value in onnx.load(path).graph.input for dim in value.type.tensor_type.shape.dim}
    sizes = {name: size for name, size in zip(case.axes, case.shape, strict=True) if name in written}
    return Call(str(path), tuple((name, _around(size)) for name, size in sizes.items()))


def main() -> int:
    """Prints a line a file; returns 1 where hints lead in a circle, or a process dies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--packages", action="store_true", help="networks of public packages, not those of our own")
    parser.add_argument("--missing", action="store_true", help="only what is not in the output file")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that one file may take")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    kept = json.loads(args.output.read_text()) if args.output and args.output.exists() else {}
    rows: dict[str, dict[str, Any]] = dict(kept.get("files", {}))
    torch.set_num_threads(1)
    for case in architectures() if args.packages else corpus():
        for exporter in ("dynamo", "traced"):
            name = f"{case.name}, {exporter}"
            if args.only not in case.name or (args.missing and name in rows):
                continue
            rows[name] = row = _row_of_child(case, exporter, args.limit)
            sys.stdout.write(f"{name}: {json.dumps(row)}\n")
            sys.stdout.flush()
            _write(args.output, rows)
    counts = _write(args.output, rows)
    sys.stdout.write(f"{counts}\n")
    return 1 if counts.keys() & {"circle", "died", "too long"} else 0


def _write(path: Path | None, rows: dict[str, dict[str, Any]]) -> dict[str, int]:
    counts = dict(collections.Counter(row["end"] for row in rows.values()))
    if path:
        about = {"networks": len({name.rpartition(", ")[0] for name in rows}), "counts": counts}
        path.write_text(json.dumps({**about, "files": rows}, indent=1) + "\n")
    return counts


def _row_of_child(case: Architecture, exporter: str, limit: float) -> dict[str, Any]:
    """Returns what comes of a file, in a process of its own: builders and exporters may end theirs."""
    messages, code = told(_tell, (case, exporter), limit)
    if messages and messages[-1] is not _EXPORTED:
        return messages[-1]  # type: ignore[no-any-return]
    if code is None:
        return {"end": "too long", "why": f"more than {limit:.0f} s"}
    return {"end": "died" if messages else _NOT_EXPORTED, "why": f"exit status {code}"}


def _tell(case: Architecture, exporter: str, line: Any) -> None:
    """Tells that torch has written the file, and then the row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        torch.manual_seed(0)
        module = case.make().eval()
        try:
            export(case, module, exporter, path)
        except Exception as error:  # torch refuses in many ways
            line.send({"end": _NOT_EXPORTED, "why": type(error).__name__})
            return
        line.send(_EXPORTED)
        line.send(follow(case, path, lambda: _ours(case, Path(folder))))


if __name__ == "__main__":
    sys.exit(main())
