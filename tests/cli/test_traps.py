"""Commands that run in a stranger's folder, full of modules that Python might take for its own: none is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

TRAPS = (
    *("trtconv.py", "onnx.py", "pathlib.py", "json.py", "sitecustomize.py", "usercustomize.py", "click.py"),
    *("onnxruntime.py", "tensorrt_rtx.py", "importlib/__init__.py", "encodings/__init__.py", "numpy/__init__.py"),
)
SPRUNG = "sprung.txt"
MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,4,4] x) => (float[1,2,8,8] y)
    <float[2,2,2,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> { y = ConvTranspose <strides=[2,2]> (x, w) }"""
DEATH = """
import os, sys, types
fake = types.ModuleType("trtconv.pipeline")
import trtconv
fake.__path__ = [os.path.join(trtconv.__path__[0], "pipeline")]
sys.modules.update(dict.fromkeys(("trtconv.pipeline", "trtconv.pipeline.building", "trtconv.pipeline.checking"), fake))
def die(request, progress):
    os.kill(os.getpid(), 11)
fake.build = fake.check = die
from trtconv.cli import run
run()
"""
CONSOLE = "from trtconv.cli import run; run()"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are isolated on Linux")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout with traps, and with models whose external data are traps too."""
    checkout = tmp_path / "checkout"
    for name in TRAPS:
        trap = checkout / name
        trap.parent.mkdir(parents=True, exist_ok=True)
        trap.write_text(f"open({str(tmp_path / SPRUNG)!r}, 'a').write({name!r} + '\\n')\n")
    model = onnx.parser.parse_model(MODEL)
    onnx.save(model, checkout / "m.onnx")
    onnx.save(model, checkout / "n.onnx")
    _external(model, (checkout / "trtconv.py"), checkout / "external.onnx")
    (tmp_path / "tmp").mkdir()
    return checkout


def _external(model: onnx.ModelProto, data: Path, path: Path) -> None:
    """Saves the model with a weight whose bytes lie in a Python file."""
    weight = numpy_helper.from_array(np.ones((2, 2, 2, 2), np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", data.name), ("offset", "0"), ("length", str(2**4 * 4))):
        weight.external_data.add(key=key, value=value)
    data.write_text(data.read_text().ljust(2**4 * 4, "#"))
    graph = helper.make_graph(model.graph.node, "g", model.graph.input, model.graph.output, [weight])
    onnx.save(helper.make_model(graph, opset_imports=model.opset_import, ir_version=8), path)


def run(folder: Path, *arguments: str, code: str = CONSOLE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", code, *arguments],
        cwd=folder,
        env={"TMPDIR": str(folder.parent / "tmp"), "HOME": str(folder.parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["check", "m.onnx", "--target", "rtx"], id="the child of one model"),
        pytest.param(["check", "m.onnx", "external.onnx", "--target", "rtx"], id="the workers of several models"),
        pytest.param(["build", "m.onnx", "--target", "rtx", "--precision", "fp16"], id="the comparison of a cast"),
        pytest.param(["rewrite", "external.onnx", "-o", "out.onnx"], id="the comparison of a rewrite"),
        pytest.param(["reduce", "m.onnx", "--code", "TC999"], id="the trials of reduce"),
        pytest.param(["inspect", "m.engine"], id="the process that reads an engine"),
    ],
)
def test_no_child_takes_a_module_from_a_foreign_folder(folder: Path, arguments: list[str]) -> None:
    (folder / "m.engine").write_bytes(b"ptrt" + bytes(64))
    done = run(folder, *arguments)
    assert done.returncode in (0, 1, 2, 4), done.stderr
    assert not (folder.parent / SPRUNG).exists(), (folder.parent / SPRUNG).read_text()


@pytest.mark.parametrize("model", ["m.onnx", "external.onnx"])
@pytest.mark.parametrize("command", ["check", "build"])
def test_a_crash_runs_nothing_of_the_model(folder: Path, command: str, model: str) -> None:
    done = run(folder, command, model, "-q", code=DEATH)
    assert done.returncode == 1
    (kept,) = (folder.parent / "tmp").iterdir()
    names = {str(path.relative_to(kept)) for path in kept.rglob("*")}
    assert "rewritten.onnx" in names, done.stderr
    assert names <= {
        *("log.txt", "command.txt", "versions.json", "model.onnx", "rerun.sh", "rewritten.onnx", "passes.json")
    }
    assert not (folder.parent / SPRUNG).exists(), (folder.parent / SPRUNG).read_text()
    again = subprocess.run(
        ["sh", str(kept / "rerun.sh")],
        cwd=folder,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder.parent)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert not (folder.parent / SPRUNG).exists(), (folder.parent / SPRUNG).read_text()


def test_the_module_run_in_a_foreign_folder(folder: Path) -> None:
    """`python -m` itself finds trtconv in the working directory first; nothing else comes from there."""
    (folder / "trtconv.py").unlink()
    code = f"import runpy, sys; sys.path.insert(0, {str(folder)!r}); runpy.run_module('trtconv', {{}}, '__main__')"
    done = run(folder, "check", "m.onnx", "--target", "rtx", code=code)
    assert done.returncode == 0, done.stderr
