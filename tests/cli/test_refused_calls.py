"""Bad input for what is done with a model and its engine after the first build: an exit code, a reason, and no file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.cli import Ended
from support.float_nets import HEAD, saved_net
from support.paths import ROOT

Call = Callable[..., Ended]
NET = f"""{HEAD} g (float[n,3,8,8] x) => (float[n,4,8,8] y) {{
    [conv] a = Conv <pads = [1,1,1,1]> (x, w_4_3_3_3)
    [relu] y = Relu (a) }}"""
SIZES = ("--dim", "n=1", "--target", "rtx", "-q")
CACHE = "TRT-8600-EntropyCalibration2\nsomebody: 3c010a14\n"

REFUSED: tuple[tuple[str, int, str], ...] = (
    # The weights of another model.
    ("refit net.engine other.onnx", 2, "net.engine was not built to be refitted"),
    ("refit none.engine net.onnx", 2, "none.engine cannot be read"),
    ("refit junk.engine net.onnx -o new.engine", 2, "junk.engine"),
    ("refit net.engine net.engine", 2, "net.engine"),
    ("build net.onnx -o new.engine --refittable SIZES", 4, "only where there is a GPU"),
    # Types and formats of inputs and outputs.
    ("build net.onnx -o new.engine --io x=uint7 SIZES", 2, "--io 'uint7' is not TYPE[:FORMAT]"),
    ("build net.onnx -o new.engine --io x=fp16:chw3 SIZES", 2, "'chw3' is unknown"),
    ("build net.onnx -o new.engine --io q=fp16 SIZES", 2, "no input or output 'q'"),
    ("build net.onnx -o new.engine --inputIOFormats fp16:chw,fp16:chw SIZES", 2, "net.onnx has 1 input"),
    ("build net.onnx -o new.engine --io y=uint8 SIZES", 2, "output 'y' cannot be uint8"),
    # Images in, results out.
    ("build net.onnx -o new.engine --preprocess scale=1/0 SIZES", 2, "--preprocess 'scale=1/0': a division by 0"),
    ("build net.onnx -o new.engine --preprocess scael=2 SIZES", 2, "there are size, image, scale"),
    ("build net.onnx -o new.engine --images image=8x8+8x8 SIZES", 2, "a size comes twice"),
    ("build net.onnx -o new.engine --images input=q SIZES", 2, "images: net.onnx has no input 'q'"),
    ("build net.onnx -o new.engine --postprocess y=argmax:9 SIZES", 2, "no axis 9"),
    # Types by pattern.
    ("build net.onnx -o new.engine --node-precision no*=fp16 SIZES", 2, "--node-precision no*=fp16 has no effect"),
    ("build net.onnx -o new.engine --node-precision conv=fp17 SIZES", 2, "is not NODE=TYPE"),
    ("build net.onnx -o new.engine --node-precision type:Gelu=fp16 SIZES", 2, "type:Gelu=fp16 has no effect"),
    # The calibration of yesterday.
    ("quantize net.onnx --cache none.cache -o new.onnx -q", 2, "none.cache cannot be read"),
    ("quantize net.onnx --cache junk.engine -o new.onnx -q", 2, "junk.engine is not a calibration cache"),
    ("quantize net.onnx --cache other.cache -o new.onnx -q", 2, "has the scales of no layer"),
    ("quantize net.onnx --cache other.cache -o net.onnx -q", 2, "net.onnx"),
    # Load.
    ("bench net.engine --contexts 0", 2, "--contexts"),
    ("bench net.engine --contexts 2 -q", 4, "no GPU"),
    ("bench net.engine --arrivals bad.csv -q", 2, "bad.csv:2"),
    ("bench net.engine --beside none.engine -q", 2, "none.engine cannot be read"),
    ("bench junk.engine --contexts 2 -q", 2, "junk.engine"),
    # Tensors inside.
    ("verify net.onnx net.engine --save-tensors full -q", 2, "--save-tensors full is there"),
    ("verify net.onnx net.engine --tensor a -q", 2, "--tensor goes with --save-tensors"),
    ("verify net.onnx net.engine --save-tensors new --tensor no* -q", 2, "--tensor 'no*' means no inner tensor"),
    # Versions.
    ("upgrade net.onnx -o new.html -q", 2, "--from"),
    ("upgrade --from full net.onnx -o new.html -q", 2, "full"),
    ("upgrade --from full --to none net.onnx -q", 2, "full"),
    # Traffic.
    ("plan-profiles bad.csv net.onnx -o new", 2, "bad.csv"),
    ("plan-profiles none.csv net.onnx -o new", 2, "none.csv"),
    ("plan-profiles good.csv junk.engine -o new", 2, "junk.engine"),
    ("plan-profiles good.csv net.onnx -o new --measured bad.csv", 2, "bad.csv is not what bench writes"),
    ("plan-profiles good.csv net.onnx -o new --gpu-memory 1", 2, "one profile takes about"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trtconv import BuildRequest, build
    from trtconv.core.target import Target

    folder = tmp_path_factory.mktemp("made")
    path = saved_net(NET, folder)
    path.rename(folder / "net.onnx")
    build(BuildRequest(folder / "net.onnx", target=Target("rtx"), dims={"n": 1}, prove="none"))
    shutil.copy(ROOT / "models" / "unet.onnx", folder / "other.onnx")
    (folder / "junk.engine").write_bytes(b"\x00\xff\x01 no engine" * 99)
    (folder / "other.cache").write_text(CACHE)
    (folder / "bad.csv").write_text("time,n\n0.1,many\n")
    (folder / "good.csv").write_text("count,n\n5,1\n")
    (folder / "full").mkdir()
    np.savez(folder / "full" / "something.npz", x=np.zeros(1))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("words", "code", "said"), REFUSED)
def test_a_bad_call_says_why_and_writes_nothing(
    call: Call, made: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: int, said: str
) -> None:
    monkeypatch.chdir(made)
    before = contents(made)
    line = [word for each in words.split() for word in (SIZES if each == "SIZES" else (each,))]
    ended = call(*line)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert contents(made) == before


def test_a_folder_is_no_file_to_write(call, tmp_path: Path) -> None:
    model = ROOT / "models" / "unet.onnx"
    for command in ("build", "rewrite", "quantize"):
        ended = call(command, str(model), "-o", f"{tmp_path}/new/")
        assert ended.code == 2
        assert "new/ names a folder; give the path of a file to write" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [
        ("build", "--target", f"tensorrt-{'9' * 5000}"),
        ("explain", "9" * 5000),
        ("build", "--dim", f"x:{'9' * 5000}=1"),
        ("build", "--dim", f"batch={'9' * 5000}"),
    ],
)
def test_a_number_of_thousands_of_digits_is_a_bad_call(call, args: tuple[str, ...]) -> None:
    command, *rest = args
    ended = call(command, str(ROOT / "models" / "unet.onnx"), *rest)
    assert ended.code == 2, ended.err[:300]
    assert "internal error" not in ended.err


def test_such_a_number_of_a_configuration_is_one_too(call, tmp_path: Path) -> None:
    (tmp_path / "trtconv.toml").write_text(
        f'[[models]]\npath = "{ROOT / "models" / "unet.onnx"}"\ndims = {{"x:{"9" * 5000}" = 1}}\n'
    )
    ended = call("check", "--config", str(tmp_path / "trtconv.toml"))
    assert ended.code == 2, ended.err[:300]
    assert "internal error" not in ended.err + ended.out
