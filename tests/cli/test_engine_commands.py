"""verify, bench and inspect on engines of the TensorRT that is here, and what they say where those cannot run."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support.paths import MODELS, ROOT
from trtconv.runtimes.tensorrt.gpu import gpu_name

UNET = MODELS / "unet.onnx"
SMALL = ("--dim", "batch=1", "--dim", "height=32:48:64", "--dim", "width=32:48:64")

pytestmark = pytest.mark.skipif(
    gpu_name() is not None, reason="says what happens without a GPU; tests/gpu has the rest"
)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the U-Net's engines in float32 and float16, and their reports."""
    pytest.importorskip("tensorrt_rtx")
    folder = tmp_path_factory.mktemp("engines")
    for precision in ("as-is", "fp16"):
        command = [sys.executable, "-m", "trtconv", "build", str(UNET), *SMALL, "--target", "rtx", "-q"]
        command += ["--precision", precision, "-o", str(folder / f"{precision}.engine")]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture
def engine(engines: Path, tmp_path: Path) -> Path:
    """Returns an engine that a test may spoil."""
    for name in ("fp16.engine", "fp16.engine.json"):
        shutil.copy(engines / name, tmp_path / name)
    return tmp_path / "fp16.engine"


def document(ended: Any) -> dict[str, Any]:
    return json.loads(ended.out)  # type: ignore[no-any-return]


def test_verify_says_that_the_engine_was_not_run(call: Callable[..., Any], engine: Path) -> None:
    ended = call("verify", str(UNET), str(engine), "-q")
    assert ended.code == 0
    assert "THE ENGINE WAS NOT RUN: there is no GPU here" in ended.out
    assert ended.out.strip().endswith("the engine was not run")
    found = document(call("verify", str(UNET), str(engine), "-q", "--format", "json"))
    assert (found["ran"], found["verified"], found["exit_code"]) == ("network", True, 0)
    assert "no GPU" in found["why_not_run"]
    assert [case["size"] for case in found["cases"]] == ["min", "opt", "max", "random 1", "random 2"]
    assert 1e-5 < found["worst"]["max_rel"] < 2e-2
    assert all(case["shapes"]["x"][2] % 8 == 0 for case in found["cases"])


def test_verify_repeats_itself(call: Callable[..., Any], engine: Path) -> None:
    runs = [document(call("verify", str(UNET), str(engine), "-q", "--seed", "3", "--format", "json")) for _ in "ab"]
    assert runs[0]["cases"] == runs[1]["cases"]


def test_a_tolerance_that_is_not_met(call: Callable[..., Any], engine: Path) -> None:
    ended = call("verify", str(UNET), str(engine), "--tolerance", "1e-7", "--bisect", "--format", "json", "-q")
    found = document(ended)
    assert (ended.code, found["exit_code"], found["verified"]) == (1, 1, False)
    assert [line[:21] for line in ended.err.splitlines()] == ["error: NOT VERIFIED: "]
    assert found["bisect"]["tensor"] is not None
    assert found["bisect"]["node"]["op"]
    text = call("verify", str(UNET), str(engine), "--tolerance", "1e-7", "--bisect", "-q").out
    assert "bisect: the first tensor that diverges is" in text
    assert "NOT VERIFIED" in text


def test_require_engine(call: Callable[..., Any], engine: Path) -> None:
    ended = call("verify", str(UNET), str(engine), "--require-engine", "-q", "--format", "json")
    assert (ended.code, document(ended)["error"]["type"]) == (4, "EnvironmentMissing")


def test_bench_without_a_gpu(call: Callable[..., Any], engine: Path) -> None:
    ended = call("bench", str(engine), "-q", "--format", "json")
    assert (ended.code, document(ended)["exit_code"]) == (4, 4)
    assert "no GPU" in document(ended)["error"]["message"]
    assert document(ended)["error"]["hint"]


def test_inspect_reads_the_report(call: Callable[..., Any], engine: Path) -> None:
    found = document(call("inspect", str(engine), "-q", "--format", "json"))
    assert (found["exit_code"], found["loaded"], found["layers"]) == (0, False, None)
    assert found["profiles"][0]["x"]["max"] == [1, 3, 64, 64]
    model = document(call("inspect", str(UNET), "-q", "--format", "json"))
    assert model["nodes"]["ConvTranspose"] == 3
    assert model["outputs"] == [{"name": "y", "dtype": "float", "dims": ["batch", 4, "height", "width"]}]
    assert document(call("inspect", f"{engine}.json", "-q", "--format", "json"))["kind"] == "report"


def spoil(engine: Path, how: str) -> None:
    data = engine.read_bytes()
    report = Path(f"{engine}.json")
    if how == "truncated":
        engine.write_bytes(data[:1000])
    elif how == "altered":
        engine.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "empty":
        engine.write_bytes(b"")
    elif how == "without report":
        report.unlink()
    elif how == "missing":
        engine.unlink()
    elif how == "another report":
        report.write_text('{"schema": 1, "profiles": [], "dims": []}')
    else:
        report.write_text("{")


def test_inspect_of_outputs_that_a_model_leaves_open(call: Callable[..., Any], tmp_path: Path) -> None:
    model = onnx.load(UNET)
    model.graph.output[0].type.tensor_type.shape.dim[2].ClearField("dim_param")
    bare = model.graph.output.add(name=model.graph.node[0].output[0])
    onnx.save(model, tmp_path / "m.onnx")
    text = call("inspect", str(tmp_path / "m.onnx"), "-q").out
    assert "  (batch, 4, ?, width)\n" in text
    assert [line.split()[2:] for line in text.splitlines() if bare.name in line] == [["?", "?"]]


def test_a_model_where_an_engine_is_wanted(call: Callable[..., Any]) -> None:
    ended = call("bench", str(UNET), "-q")
    assert (ended.code, "is an ONNX model, where an engine is wanted" in ended.err) == (2, True)


@pytest.mark.parametrize("command", ["verify", "bench", "inspect"])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "altered, cut short or replaced; it has 1000 bytes"),
        ("altered", "altered, cut short or replaced"),
        ("empty", "is empty"),
        ("without report", "runs code that is in it"),
        ("missing", "fp16.engine"),
        ("another report", "is not the report of a build"),
        ("broken report", "is not the report of a build"),
    ],
)
def test_files_that_do_not_belong_together(
    call: Callable[..., Any], engine: Path, command: str, how: str, message: str
) -> None:
    spoil(engine, how)
    arguments = [str(UNET), str(engine)] if command == "verify" else [str(engine)]
    ended = call(command, *arguments, "-q")
    assert ended.code == 2
    assert message in ended.err
    assert "hint:" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "none.onnx"], "no such file"),
        (["verify", "UNET", "ENGINE", "--dim", "depth=3"], "no dimension 'depth'"),
        (["verify", "UNET", "ENGINE", "--dim", "height=512"], "no profile of the engine contains height=512"),
        (["verify", "UNET", "ENGINE", "--inputs", "none.npz"], "cannot be read"),
        (["verify", "UNET", "ENGINE", "--generator", "x"], "is not FILE.py:FUNCTION"),
        (["verify", "models/gan_generator.onnx", "ENGINE"], "was built from another version"),
        (["verify", "UNET", "ENGINE", "--tolerance", "-1"], "--tolerance"),
        (["verify", "UNET", "ENGINE", "--tolerance", "nan"], "nan is not a finite number"),
        (["verify", "UNET", "ENGINE", "--time-limit", "inf"], "inf is not a finite number"),
        (["verify", "UNET", "ENGINE", "--seed", "-1"], "--seed"),
        (["bench", "ENGINE", "--plot", "x.pdf"], "neither .svg nor .png"),
        (["bench", "ENGINE", "--shapes", "x"], "is not INPUT:SHAPE"),
        (["bench", "ENGINE", "--shapes", "x:1x3x32x32", "--dim", "batch=1"], "does not go together"),
        (["inspect", "none"], "no such file"),
        (["run", "ENGINE", "--reference", "models/unet.py"], "--reference is about a pipeline"),
    ],
)
def test_mistakes(
    call: Callable[..., Any], engine: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(ROOT)
    ended = call(*(str(UNET) if a == "UNET" else str(engine) if a == "ENGINE" else a for a in arguments), "-q")
    assert ended.code == 2
    assert message in ended.err
    assert len(ended.err.splitlines()) >= 2


def test_inputs_of_the_user(call: Callable[..., Any], engine: Path, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.ones((1, 3, 64, 32), np.float32))
    found = document(call("verify", str(UNET), str(engine), "--inputs", str(path), "-q", "--format", "json"))
    assert [case["shapes"] for case in found["cases"]] == [{"x": [1, 3, 64, 32]}]
    np.savez(path, x=np.full((1, 3, 64, 32), np.nan, np.float32))
    ended = call("verify", str(UNET), str(engine), "--inputs", str(path), "-q")
    assert ended.code == 2
    assert "holds NaN" in ended.err


def test_without_any_engine_the_rewrite_is_proved(call: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copy(UNET, tmp_path / "unet.onnx")
    ended = call("verify", str(tmp_path / "unet.onnx"), *SMALL, "-q", "--format", "json")
    found = document(ended)
    assert (ended.code, found["engine"], found["precision"]) == (0, None, "float32")
    assert "there is no engine" in found["why_not_run"]
    assert found["worst"]["max_rel"] < 1e-5
    assert call("verify", str(tmp_path / "unet.onnx"), "-q").code == 2, "dimensions without bounds"


SLOW = "import time\ndef make(shapes, seed):\n    time.sleep(600)\n"


def test_a_time_limit(call: Callable[..., Any], engine: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    started = time.monotonic()
    generator = f"{tmp_path / 'slow.py'}:make"
    ended = call(
        "verify", str(UNET), str(engine), "--generator", generator, "--time-limit", "10", "-q", "--format", "json"
    )
    assert time.monotonic() - started < 30
    assert ended.code == 4
    assert "took longer than 10 s" in document(ended)["incomplete"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_it_can_be_interrupted(spawn: Callable[..., Any], engine: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    generator = f"{tmp_path / 'slow.py'}:make"
    process = spawn("from trtconv.cli import run; run()", "verify", str(UNET), str(engine), "--generator", generator)
    until = time.monotonic() + 30
    for line in process.stderr:
        if "inputs" in line or time.monotonic() > until:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
