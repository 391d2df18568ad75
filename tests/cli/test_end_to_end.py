"""The commands on real models with the real runtime."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.paths import MODELS, ROOT

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt-rtx has no package for this platform"
)

UNET = MODELS / "unet.onnx"
DIMS = ("--dim", "batch=1:1:4", "--dim", "height=64:64:128", "--dim", "width=64:64:128")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A Conv with its weight in an external file: input x (n, 1, 8, h)."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, "h"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.full((1, 1, 3, 3), 0.5, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model" / "small.onnx"
    path.parent.mkdir()
    onnx.save_model(model, path, save_as_external_data=True, location="small.data", size_threshold=0)
    return path


def test_build_check_rewrite(call, tmp_path: Path) -> None:
    engine = tmp_path / "out" / "u.engine"
    built = call("build", str(UNET), *DIMS, "-o", str(engine), "--format", "json")
    document = json.loads(built.out)
    assert (built.code, document["exit_code"]) == (0, 0), built.err
    assert any("ConvTranspose" in edit["node"] for edit in document["edits"])
    assert engine.stat().st_size == document["engine"]["bytes"] > 100_000
    assert json.loads(Path(f"{engine}.json").read_text())["engine"] == document["engine"]

    again = call("build", str(UNET), *DIMS, "-o", str(engine))
    assert again.code == 0
    assert "is up to date" in again.out
    assert "is up to date" not in call("build", str(UNET), *DIMS, "-o", str(engine), "--force").out

    checked = call("check", str(UNET), "--format", "json")
    verdict = json.loads(checked.out)
    assert (checked.code, verdict["exit_code"]) == (0, 0)
    assert set(verdict) >= {"schema", "model", "target", "findings", "summary", "parser", "exit_code"}
    assert verdict["parser"]["accepted"] is True

    output = tmp_path / "r.onnx"
    rewritten = call("rewrite", str(UNET), "-o", str(output), "--format", "json")
    assert rewritten.code == 0
    assert json.loads(rewritten.out)["verified"] < 1e-5
    assert output.exists()


def test_trtexec_spelling_builds(call, small: Path, tmp_path: Path) -> None:
    shapes = ("--minShapes", "x:1x1x8x8", "--optShapes", "x:1x1x8x16", "--maxShapes", "x:2x1x8x32")
    built = call("build", str(small), *shapes, "-o", str(tmp_path / "s.engine"), "--format", "json")
    assert built.code == 0, built.err
    assert json.loads(built.out)["profiles"] == [
        {"x": {"min": [1, 1, 8, 8], "opt": [1, 1, 8, 16], "max": [2, 1, 8, 32]}}
    ]


def _missing(path: Path) -> None:
    path.unlink()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _no_onnx(path: Path) -> None:
    path.write_text("<html>not found</html>")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _no_data(path: Path) -> None:
    path.with_name("small.data").unlink()


def _escape(path: Path) -> None:
    path.with_name("small.data").rename(path.parents[1] / "outside.data")
    model = onnx.load(path, load_external_data=False)
    (location,) = (e for e in model.graph.initializer[0].external_data if e.key == "location")
    location.value = "../outside.data"
    path.write_bytes(model.SerializeToString())


def _fine(path: Path) -> None:
    pass


BAD = [
    (_missing, ("--dim", "n=1", "--dim", "h=8")),
    (_folder, ("--dim", "n=1", "--dim", "h=8")),
    (_truncate, ("--dim", "n=1", "--dim", "h=8")),
    (_no_onnx, ("--dim", "n=1", "--dim", "h=8")),
    (_empty, ("--dim", "n=1", "--dim", "h=8")),
    (_no_data, ("--dim", "n=1", "--dim", "h=8")),
    (_escape, ("--dim", "n=1", "--dim", "h=8")),
    (_fine, ()),
    (_fine, ("--dim", "n=1")),
    (_fine, ("--dim", "n=1", "--dim", "h=8", "--dim", "depth=8")),
    (_fine, ("--dim", "n=1", "--dim", "h=8:4:2")),
    (_fine, ("--dim", "n=1", "--dim", "h=8", "--dim", "x:1=1:2:4")),
    (_fine, ("--profile", "n=1,h=8", "--profile", "n=1")),
    (_fine, ("--optShapes", "z:1x1x8x8")),
    (_fine, ("--optShapes", "x:1x1x8")),
]


@pytest.mark.parametrize("output_format", ["text", "json"])
@pytest.mark.parametrize(("spoil", "flags"), BAD)
def test_bad_input(call, small: Path, tmp_path: Path, spoil, flags: tuple[str, ...], output_format: str) -> None:
    engine = tmp_path / "old.engine"
    engine.write_bytes(b"the old engine")
    spoil(small)
    before = sorted(tmp_path.rglob("*"))
    ended = call("build", str(small), *flags, "-o", str(engine), "--format", output_format)
    assert ended.code == 2, ended.err
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err
    assert engine.read_bytes() == b"the old engine"
    assert sorted(tmp_path.rglob("*")) == before
    if output_format == "json":
        document = json.loads(ended.out)
        assert document["exit_code"] == 2
        assert document["error"]["type"] == "InputError"
    else:
        assert ended.out == ""


@pytest.mark.parametrize("output", ["model", "model/small.onnx/e.engine", "model/small.onnx"])
def test_output_that_cannot_be_written(call, small: Path, tmp_path: Path, output: str) -> None:
    content = small.read_bytes()
    before = sorted(tmp_path.rglob("*"))
    ended = call("build", str(small), "--dim", "n=1", "--dim", "h=8", "-o", str(tmp_path / output))
    assert (ended.code, ended.out) == (2, "")
    assert "Traceback" not in ended.err
    assert sorted(tmp_path.rglob("*")) == before
    assert small.read_bytes() == content


def test_target_that_is_not_here(call, small: Path, tmp_path: Path) -> None:
    flags = ("--dim", "n=1", "--dim", "h=8", "-o", str(tmp_path / "e.engine"), "--target", "rtx-1.0")
    ended = call("build", str(small), *flags, "--format", "json")
    assert ended.code == 4
    assert json.loads(ended.out)["error"]["type"] == "EnvironmentMissing"
    assert call("check", str(small), "--target", "tensorrt-8.6").code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_leaves_nothing_behind(spawn, small: Path, tmp_path: Path) -> None:
    code = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from trtconv.runtimes.tensorrt.network import Network
Network.build = lambda *arguments: time.sleep(600)
from trtconv.cli import main
sys.exit(main())
"""
    engine = tmp_path / "old.engine"
    engine.write_bytes(b"the old engine")
    before = sorted(tmp_path.rglob("*"))
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))}
    process = spawn(code, "build", str(small), "--dim", "n=1", "--dim", "h=8", "-o", str(engine), env=environment)
    for line in process.stderr:
        if "build" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert engine.read_bytes() == b"the old engine"
    assert sorted(tmp_path.rglob("*")) == before


def test_every_real_pass_and_rule_is_listed(call) -> None:
    from trtconv.passes import PASSES
    from trtconv.rules import RULES

    passes = json.loads(call("passes", "--format", "json").out)["passes"]
    assert [entry["name"] for entry in passes] == [each.name for each in PASSES]
    rules = json.loads(call("rule", "--format", "json").out)["rules"]
    assert [entry["code"] for entry in rules] == [rule.code for rule in RULES]
    for rule in RULES:
        assert rule.summary in call("rule", rule.code).out


def test_doctor_finds_the_runtime(call) -> None:
    ended = call("doctor", "--format", "json")
    assert ended.code == 0
    runtimes = {runtime["family"]: runtime for runtime in json.loads(ended.out)["runtimes"]}
    assert runtimes["rtx"]["works"] is True


CONSOLE = "from trtconv.cli import run; run()"


@pytest.mark.skipif(sys.platform != "linux", reason="commands are isolated on Linux")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_real_build_that_is_ended(spawn, tmp_path: Path, number: signal.Signals) -> None:
    engine = tmp_path / "out" / "u.engine"
    (tmp_path / "tmp").mkdir()
    env = {"TMPDIR": str(tmp_path / "tmp")}
    restore = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    process = spawn(restore + CONSOLE, "build", str(UNET), *DIMS, "-o", str(engine), "--format", "json", env=env)
    line = ""
    while not line.endswith("] build\n"):
        line = process.stderr.readline()
        assert line
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]) if number == signal.SIGKILL else process.pid, number)
    out, err = process.communicate(timeout=120)
    code = 1 if number == signal.SIGKILL else 130
    assert (process.returncode, json.loads(out)["exit_code"]) == (code, code), err
    assert not engine.parent.exists() or not list(engine.parent.iterdir())
    left = list((tmp_path / "tmp").glob("trtconv-*"))
    if number == signal.SIGKILL:
        assert "during build" in err
        (folder,) = left
        assert {"log.txt", "rerun.sh", "model.onnx", "rewritten.onnx"} <= {each.name for each in folder.iterdir()}
        assert len(json.loads((folder / "passes.json").read_text())["edits"]) == 3
    else:
        assert left == []


def test_two_builds_at_once_into_one_output(spawn, tmp_path: Path) -> None:
    engine, cache = tmp_path / "u.engine", tmp_path / "t.timing"
    sizes = [("--dim", "batch=1", "--dim", f"height={size}", "--dim", f"width={size}") for size in (64, 128)]
    flags = ("-o", str(engine), "--timing-cache", str(cache), "--force", "--format", "json")
    started = [spawn(CONSOLE, "build", str(UNET), *dims, *flags) for dims in sizes]
    documents = []
    for process in started:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        documents.append(json.loads(out))
    kept = json.loads(Path(f"{engine}.json").read_text())
    assert kept["engine"] in [document["engine"] for document in documents]
    assert hashlib.sha256(engine.read_bytes()).hexdigest() == kept["engine"]["sha256"]
    assert {each.name for each in tmp_path.iterdir()} == {"u.engine", "u.engine.json"}
    assert {f["code"] for document in documents for f in document["findings"]} >= {"TC407"}


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--compute-capability", "7.5", "--compute-capability", "8.9"), 0, "TC406"),
        (("--compute-capability", "9.0"), 1, "TC405"),
        (("--compute-capability", "nine"), 2, "compute capability"),
        (("--hardware-compatibility", "ampere+"), 1, "TC405"),
        (("--version-compatible",), 1, "TC405"),
        (("--workspace", "lots"), 2, "is not a size"),
        (
            ("--workspace", "4G", "--optimization-level", "1", "--no-tf32", "--sparsity", "--weight-streaming"),
            0,
            "built",
        ),
        (("--profiling-verbosity", "detailed"), 0, "built"),
    ],
)
def test_builder_options(call, small: Path, tmp_path: Path, flags: tuple[str, ...], code: int, said: str) -> None:
    ended = call("build", str(small), "--dim", "n=1", "--dim", "h=8", "-o", str(tmp_path / "e.engine"), *flags)
    assert ended.code == code
    assert said in ended.out + ended.err
    assert (tmp_path / "e.engine").exists() == (code == 0)
