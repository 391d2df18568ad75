"""`trtconv quantize` from a file and a folder to a file, and what it may take for that."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest

from support.cli import Ended
from support.float_nets import ATTENTION, RESIDUAL, saved_net, saved_samples
from trtconv.cli.commands.build import _as_old_as_its_bytes

Call = Callable[..., Ended]


@pytest.mark.parametrize(
    ("resources", "code", "words"),
    [
        ("megabytes=4000", 0, ""),
        ("nodes=1", 1, "nodes; the budget is 1"),
        ("megabytes", 2, "'megabytes' is not a budget"),
    ],
)
def test_what_it_may_take_is_said_by_a_flag_of_its_own(
    call: Call, resources: str, code: int, words: str, tmp_path: Path
) -> None:
    """For --budget is the error to be met here."""
    samples = saved_samples(tmp_path, [(1, 4, 8, 8)])
    output = tmp_path / "int8.onnx"
    arguments = (str(saved_net(RESIDUAL, tmp_path)), "--data", str(samples), "-o", str(output), "--target", "rtx")
    ended = call("quantize", *arguments, "--budget", "0.5", "--no-cache", "-q", "--resources", resources)
    assert ended.code == code, ended.err
    assert words in ended.out + ended.err
    assert output.exists() == (code == 0)
    if code == 1:
        assert "--resources nodes=N" in ended.out + ended.err
        assert "--budget" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("int8", 0, "100.0 % of the multiply-adds"),
        ("int8-weights", 2, "products of two computed matrices have no weights"),
        ("int4-weights", 2, "Leave it out, or use --kind int8 or --kind fp8."),
    ],
)
def test_attention_is_quantised_where_inputs_are(call: Call, kind: str, code: int, words: str, tmp_path: Path) -> None:
    samples, output = saved_samples(tmp_path, [(1, 6, 8)]), tmp_path / "int8.onnx"
    arguments = (str(saved_net(ATTENTION, tmp_path)), "--data", str(samples), "-o", str(output), "--target", "rtx")
    ended = call("quantize", *arguments, "--attention", "--kind", kind, "--no-cache", "-q")
    assert ended.code == code, ended.err
    assert words in ended.out + ended.err
    assert output.exists() == (code == 0)


@pytest.mark.parametrize(("flags", "quantised"), [((), 0), (("--attention",), 2)])
def test_a_build_quantises_attention_where_asked(
    call: Call, flags: tuple[str, ...], quantised: int, tmp_path: Path
) -> None:
    pytest.importorskip("tensorrt_rtx")
    data = ("--precision", "int8", "--data", str(saved_samples(tmp_path, [(1, 6, 8)])), "--dim", "n=1")
    ended = call("build", str(saved_net(ATTENTION, tmp_path)), *data, *flags, "--target", "rtx", "-q", "--format=json")
    # RTX 1.4 builds int8 beside float16 with a GPU alone.
    assert ended.code == 0 or "Cuda Runtime" in ended.out, ended.err
    layers = {layer["node"] for layer in json.loads(ended.out)["quantization"]["quantized"]}
    assert len(layers & {"scores", "mix"}) == quantised


def test_a_model_that_is_written_again_keeps_the_age_of_all_its_files(tmp_path: Path) -> None:
    files = (tmp_path / "m.onnx", tmp_path / "m.onnx.data")
    for path in files:
        path.write_bytes(b"x")
        os.utime(path, (1000, 1000))
    with _as_old_as_its_bytes(files[0]):
        for path in files:
            path.write_bytes(b"x")
    assert [path.stat().st_mtime for path in files] == [1000, 1000]
    with _as_old_as_its_bytes(files[0]):
        files[1].write_bytes(b"y")
    assert files[1].stat().st_mtime > 1000


def need_int8() -> None:
    """Skips a test where no TensorRT-RTX is installed, or one that refuses the int8 network."""
    version = pytest.importorskip("tensorrt_rtx").__version__
    if tuple(map(int, version.split(".")[:2])) < (1, 5):
        pytest.skip("TensorRT-RTX 1.4 builds no int8 network whose deconvolutions are added")


def test_verify_of_the_float_model_says_how_both_are_compared(call: Call, tmp_path: Path) -> None:
    need_int8()
    net, engine = saved_net(RESIDUAL, tmp_path), tmp_path / "e.engine"
    data = ("--precision", "int8", "--data", str(saved_samples(tmp_path, [(1, 4, 8, 8)])), "--target", "rtx", "-q")
    assert call("build", str(net), *data, "-o", str(engine)).code == 0
    ended = call("verify", str(net), str(engine), "-q")
    assert ended.code == 2
    command = ended.err.strip().partition("trtconv ")[2]
    assert command == f"verify {tmp_path / 'e.int8.onnx'} {engine} --against {net}"
    assert call(*command.split(), "-q").code == 0


def test_the_same_call_again_replaces_what_it_wrote(call: Call, tmp_path: Path) -> None:
    need_int8()
    data = ("--precision", "int8", "--data", str(saved_samples(tmp_path, [(1, 4, 8, 8)])))
    args = (
        "build",
        str(saved_net(RESIDUAL, tmp_path)),
        *data,
        "--target",
        "rtx",
        "-q",
        "-o",
        str(tmp_path / "e.engine"),
    )
    assert call(*args).code == 0
    written = sorted(path.name for path in tmp_path.iterdir())
    for flags in ((), ("--force",)):
        ended = call(*args, *flags)
        assert ended.code == 0, ended.err
        # The same samples make the same file, of which the engine is.
        assert ("is up to date" in ended.out) is not bool(flags)
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    # What somebody else put there is still nobody's to replace.
    (tmp_path / "e.engine.quantize.json").write_text('{"mine": 1}')
    assert "was not written by trtconv" in call(*args).err


def test_for_the_full_tensorrt_kernels_say_their_sizes(call: Call, tmp_path: Path) -> None:
    """8.6 takes them from a weight that is an initializer, and what is quantised is none."""
    model = tmp_path / "net.onnx"
    weight = f"float[4,3,3,3] w = {{{', '.join(['0.5'] * 108)}}}"
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[1,3,8,8] x) => (float[1,4,p,q] y) <{weight}> {{ y = Conv (x, w) }}"""
    onnx.save(onnx.parser.parse_model(text), model)
    ended = call("quantize", str(model), "--random", "-o", str(tmp_path / "q.onnx"), "--target", "tensorrt-8.6", "-q")
    assert ended.code == 0 and "TC110" not in ended.out, ended.out
    (conv,) = (node for node in onnx.load(tmp_path / "q.onnx").graph.node if node.op_type == "Conv")
    assert {attribute.name: list(attribute.ints) for attribute in conv.attribute}["kernel_shape"] == [3, 3]
