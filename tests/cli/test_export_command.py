"""`trtconv export`: flags, exit codes, and what it needs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from support.paths import TESTS

NETS = TESTS / "support" / "export_nets.py"
TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("onnxscript") is not None
needs_torch = pytest.mark.skipif(not TORCH, reason="torch and onnxscript are not installed")


def test_nothing_imports_torch_before_it_is_needed(spawn) -> None:
    code = (
        "import sys, trtconv, trtconv.exporter, trtconv.cli.commands.export\n"
        "trtconv.export, trtconv.convert, trtconv.ExportOptions\n"
        "assert not {'torch', 'onnxscript'} & set(sys.modules), 'torch'"
    )
    process = spawn(code)
    _, err = process.communicate()
    assert (process.returncode, err) == (0, "")


def test_without_torch(call, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ended = call("export", f"{NETS}:Skip", "-o", str(tmp_path / "m.onnx"), "--input", "x=1x3x8x8", "-q")
    assert ended.code == 4
    assert "torch is not installed" in ended.err
    assert "pip install" in ended.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flags",
    [
        ("--input", "x=1y3"),
        ("--input", "x=1x3", "--dim", "h"),
        ("--input", "x=1x3", "--arg", "1=2"),
    ],
)
def test_flags_that_cannot_be_read(call, flags: tuple[str, ...], tmp_path: Path) -> None:
    ended = call("export", f"{NETS}:Skip", "-o", str(tmp_path / "m.onnx"), "--format", "json", "-q", *flags)
    assert ended.code == 2
    assert json.loads(ended.out)["exit_code"] == 2


@needs_torch
def test_the_result_is_checked_at_its_bounds(call, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    flags = "--input x=1x3x32x32 --dynamic x=batch,_,height,width --dim height=16:64 -q"
    ended = call("export", f"{NETS}:Skip", "-o", str(path), *flags.split())
    assert ended.code == 0
    assert "accepts the model and builds it" in ended.out
    assert "no sizes checked" not in ended.out


@needs_torch
def test_export_as_json(call, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    flags = "--input x=1x3x32x32 --dynamic x=batch,_,height,width --dim height=16:64 --output-name y --format json -q"
    ended = call("export", f"{NETS}:Skip", "-o", str(path), "--no-check", *flags.split())
    assert (ended.code, ended.err) == (0, "")
    report = json.loads(ended.out)
    assert report["output"]["bytes"] == path.stat().st_size
    assert report["dims"]["height"]["step"] == 2
    assert report["outputs"] == {"y": ["batch", 6, "height", "width"]}
    assert report["proof"]["max_relative_error"] < 1e-4


@needs_torch
def test_export_then_build(call, tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    path = tmp_path / "m.onnx"
    flags = "--input x=1x3x32x32 --dynamic x=batch,_,height,width --dim height=16:64 --dim width=16:64 --target rtx"
    ended = call("export", f"{NETS}:Skip", "-o", str(path), *flags.split())
    assert ended.code == 0, ended.err
    assert "height must be a multiple of 2: from `return torch.cat(" in ended.out
    assert "parser: rtx" in ended.out
    assert ended.out.splitlines()[-1].startswith(f"wrote {path} (")
    # The bounds of height and width are in the file.
    sizes = "--dim batch=1:1:2 --target rtx -q"
    assert call("build", str(path), *sizes.split()).code == 0
    assert path.with_suffix(".engine").exists()


@needs_torch
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("Baked", 1, "height becomes a constant: from `height = int(x.shape[2])` at "),
        ("Values", 1, "a file does not: `if x.sum() > 0:` at "),
        ("broken", 2, "KeyError: 'no such weight'"),
        ("nothing", 2, "has no 'nothing'"),
    ],
)
def test_failures(call, name: str, code: int, said: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    flags = "--input x=1x3x32x32 --dynamic x=batch,_,height,width -q"
    ended = call("export", f"{NETS}:{name}", "-o", str(path), *flags.split())
    assert ended.code == code
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert not list(tmp_path.iterdir())


@needs_torch
def test_the_output_must_be_writable(call, tmp_path: Path) -> None:
    assert call("export", f"{NETS}:Skip", "-o", str(tmp_path), "--input", "x=1x3x8x8", "-q").code == 2


@needs_torch
@pytest.mark.parametrize(
    "flags",
    [("--dynamic", "y=batch,_,h,w"), ("--dim", "heigth=8:16"), ("--dim", "h=40:50"), ("--input", "n=1:int64[1..leng]")],
)
def test_names_are_checked_before_anything_is_loaded(call, flags: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("raise SystemExit('this file was run')\n")
    given = ("--input", "x=1x3x32x32", "--dynamic", "x=batch,_,h,w", *flags)
    ended = call("export", f"{tmp_path / 'net.py'}:build", "-o", str(tmp_path / "m.onnx"), "-q", *given)
    assert ended.code == 2
    assert "was run" not in ended.err


OPERATOR = """
import torch


@torch.library.custom_op("trtconv_cli::swish", mutates_args=())
def swish(x: torch.Tensor, beta: float) -> torch.Tensor:
    return x * torch.sigmoid(beta * x)


swish.register_fake(lambda x, beta: torch.empty_like(x))


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.trtconv_cli.swish(x + 1, 1.5).mean(2)
"""


def _translated(call, folder: Path, operator: str, factor: int):
    """Exports a module with an operator of its own, by files for it, with the proof."""
    (folder / "net.py").write_text(OPERATOR)
    (folder / "mine.py").write_text(
        "import trtconv\n@trtconv.translation('trtconv_cli::swish')\n"
        f"def swish(x, beta: float):\n    return trtconv.node({operator!r}, x, beta=beta)\n"
    )
    (folder / "reference.py").write_text(
        "import numpy as np, trtconv\n@trtconv.reference('my.domain::SwishBeta')\n"
        f"def swish(x, beta):\n    return x / (1 + np.exp(-beta * x)) * {factor}\n"
    )
    files = ("--translate", str(folder / "mine.py"), "--reference", str(folder / "reference.py"))
    given = ("--input", "x=batch,3,length=4:8:40", "--no-check", "--format", "json", "-q")
    return call("export", f"{folder / 'net.py'}:Net", "-o", str(folder / "m.onnx"), *files, *given)


@needs_torch
@pytest.mark.parametrize(
    ("operator", "factor", "code"),
    [("my.domain::SwishBeta", 1, 0), ("my.domain::SwishBeta", 2, 1), ("NoDomain", 1, 2), ("my.domain::", 1, 2)],
)
def test_translations_are_run_and_proven(call, tmp_path: Path, operator: str, factor: int, code: int) -> None:
    ended = _translated(call, tmp_path, operator, factor)
    report = json.loads(ended.out)
    assert (ended.code, report["exit_code"]) == (code, code)
    assert (tmp_path / "m.onnx").exists() == (code == 0)
    if code == 2:
        assert f"trtconv.node({operator!r})" in report["error"]["message"]
        return
    assert len(report["proof"]["runs"]) >= 3
    assert (report["proof"]["max_relative_error"] <= report["proof"]["tolerance"]) == (code == 0)


SIDES = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        y = x * 2 if x.shape[2] >= 40 else x
        return y + 1 if x.shape[3] % 5 == 2 else y
"""


@needs_torch
def test_every_side_is_built(call, tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    (tmp_path / "net.py").write_text(SIDES)
    axes = "x=1,3,height=16:32:64,width=16:20:24"
    flags = f"--input {axes} --split-branches --build --target rtx --format json -q"
    ended = call("export", f"{tmp_path / 'net.py'}:Net", "-o", str(tmp_path / "m.onnx"), *flags.split())
    assert ended.code == 0, ended.err
    built = sorted(each.name for each in tmp_path.glob("*.engine"))
    assert built == [f"m.{n}.engine" for n in range(1, 5)]
    assert sorted(each.name for each in tmp_path.glob("*.onnx")) == [f"m.{n}.onnx" for n in range(1, 5)]
    for number in range(1, 5):
        report = json.loads((tmp_path / f"m.{number}.engine.json").read_text())
        low, _, top = (report["profiles"][0]["x"][end][2] for end in ("min", "opt", "max"))
        assert (low >= 40) is (top >= 40), "an engine takes heights of one side alone"
    json.loads(ended.out)
