"""What a stranger's checkout may hold, and what becomes of it: names, links, pipes, bombs, configurations."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest

from support.paths import MODELS, ROOT
from trtconv.core.errors import InputError, TrtconvError
from trtconv.runtimes.inputs import read_arrays

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8, pipes and limits as Linux has them"),
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
]
SIZES = ("--dim", "batch=1", "--dim", "height=64", "--dim", "width=64")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model whose name is not UTF-8."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(MODELS / "unet.onnx", os.fsdecode(b"m\xff.onnx"))
    return tmp_path


@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit", "github"])
def test_a_name_that_is_not_utf8_is_shown_escaped(call, folder: Path, form: str) -> None:
    ended = call("check", os.fsdecode(b"m\xff.onnx"), *SIZES, "--target", "rtx", "-q", "--format", form)
    assert ended.code == 0, ended.err
    assert ended.out.encode()
    if form in ("json", "sarif"):
        json.loads(ended.out)
    elif form == "junit":
        ElementTree.fromstring(ended.out)


def test_an_engine_may_have_a_name_that_is_not_utf8(call, folder: Path) -> None:
    model, engine = os.fsdecode(b"m\xff.onnx"), os.fsdecode(b"e\xfe.engine")
    for begin in ("built", "up to date"):
        ended = call("build", model, *SIZES, "--target", "rtx", "-q", "-o", engine)
        assert (ended.code, begin in ended.out + ended.err) == (0, True), ended
    assert call("inspect", f"{engine}.json").code == 0
    assert sorted(os.listdir(b".")) == [b"e\xfe.engine", b"e\xfe.engine.json", b"m\xff.onnx"]  # noqa: PTH208


@pytest.mark.parametrize(
    "command",
    [
        ["inspect", "{}"],
        ["check", "{}"],
        ["verify", "{}"],
        ["report", "{}", "-o", "x.html"],
        ["triton", "{}", "repository"],
        ["collect", "{}"],
        ["run", "{}", "--inputs", "x.npz", "-o", "y.npz"],
    ],
)
@pytest.mark.parametrize("name", ["A" * 5000, "/".join(["b" * 200] * 40)])
def test_a_path_may_be_too_long(call, tmp_path: Path, command: list[str], name: str) -> None:
    ended = call(*[part.format(name) for part in command])
    assert ended.code == 2
    assert "hint" in ended.err


def test_a_pipe_is_not_waited_for(call, folder: Path) -> None:
    os.mkfifo("pipe.onnx")
    for command in ("check", "sizes", "explain", "inspect"):
        assert call(command, "pipe.onnx").code == 2


@pytest.mark.parametrize("is_shaped", [True, False])
def test_a_model_that_ends_onnx_itself_is_no_crash_of_tensorrt(spawn: Any, tmp_path: Path, is_shaped: bool) -> None:
    # In onnx 1.23 inference of shapes reads in front of the shape of x.
    text = "g (float[2,3] x, int64[2,1] i) => (float[a] y) { y = GatherND <batch_dims = -2> (x, i) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    if not is_shaped:
        # The checker refuses that before it comes to inference.
        model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "tmp").mkdir()
    code = "from trtconv.cli import run; run()"
    command = ("check", str(tmp_path / "m.onnx"), "--target", "rtx")
    process = spawn(code, *command, env={"TMPDIR": str(tmp_path / "tmp")})
    _, said = process.communicate(timeout=120)
    assert process.returncode in (1, 2), said
    assert "was ended" not in said
    assert (process.returncode == 2) == ("not a valid ONNX model" in said)
    assert not list((tmp_path / "tmp").iterdir())


def test_arrays_are_weighed_before_they_are_read(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 34,)})
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("x.npy", header.getvalue() + bytes(1 << 20))
    with pytest.raises(TrtconvError, match="megabytes; the budget is 1500"):
        read_arrays(tmp_path / "bomb.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("spoiled", ["header", "data", "directory"])
def test_archives_that_are_broken_anywhere(tmp_path: Path, method: int, spoiled: str) -> None:
    entry = io.BytesIO()
    np.save(entry, np.arange(64.0))
    text = entry.getvalue().replace(b"'shape': (", b"'shape': ((") if spoiled == "header" else entry.getvalue()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("x.npy", text)
    data = bytearray(made.getvalue())
    if spoiled != "header":
        at = 60 if spoiled == "data" else len(data) - 40
        data[at : at + 12] = b"\xff" * 12
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(InputError):
        read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("megabytes", [400, 600, 900])
def test_too_little_memory_is_the_machines_fault(folder: Path, megabytes: int) -> None:
    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    command = [sys.executable, "-m", "trtconv", "check", os.fsdecode(b"m\xff.onnx"), *SIZES, "--target", "rtx", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, preexec_fn=limit, capture_output=True, timeout=120, check=False)
    # Where memory ends while a library is loaded, the system's loader ends the process, and nobody is asked.
    assert ended.returncode == 4 or b"thread-local data: ABORT" in ended.stderr, ended.stderr
    assert b"internal error" not in ended.stderr


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 50_000,
        ".".join("a" * 25_000) + " = 1",
        "[[models]]\npath = 'm.onnx'\ndims = { batch = " + "9" * 5000 + " }",
        '[[models]]\npath = "m\\u0000.onnx"',
        "[[models]]\npath = 'm.onnx'\ntargets = ['rtx-" + "9" * 5000 + "']",
        "[[models]]\npath = 'm.onnx'\nengine = '../../victim.txt'",
    ],
)
def test_a_configuration_that_asks_for_too_much_is_refused(call, folder: Path, text: str) -> None:
    (folder / "trtconv.toml").write_text(text)
    ended = call("check")
    assert (ended.code, "hint: " in ended.err) == (2, True), ended.err
    assert len(ended.err) < 2000


def test_the_hook_takes_file_names_for_nothing_else() -> None:
    entry = next(line for line in (ROOT / ".pre-commit-hooks.yaml").read_text().splitlines() if "entry:" in line)
    assert entry.endswith(" --")
