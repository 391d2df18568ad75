"""What people do wrong, with the exit status and the words that put them right."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

import pytest

from support.mistakes import write_files

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
    pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="tells of TensorRT that is missing"),
    pytest.mark.skipif(sys.platform != "linux", reason="names of files as Linux has them"),
]

D = "--dim batch=1 --dim height=64:256:512 --dim width=64:256:512"
PYTORCH = "is a PyTorch file, not an ONNX model", "trtconv export"
TF = "is a TensorFlow SavedModel", "tf2onnx"
ENGINE = "is a TensorRT engine, not an ONNX model", "the .onnx file that it was built from"
DIMS = "It has: batch (image:0), height (image:2), width (image:3)."

MISTAKES: list[tuple[str, int, tuple[str, ...]]] = [
    ("build unett.onnx", 2, ("unett.onnx: no such file; did you mean myunet.onnx?",)),
    ("check unett.onnx", 2, ("did you mean myunet.onnx?",)),
    ("build myunet.onx", 2, ("did you mean myunet.onnx?",)),
    ("build dir", 2, ("dir is a folder", "Give the .onnx file in it")),
    ("build empty.onnx", 2, ("empty.onnx is an empty file", "copy the file again")),
    ("build trunc.onnx", 2, ("not a readable ONNX model", "copy the file again: it may be truncated")),
    ("build text.onnx", 2, ("is a text file", "binary")),
    ("build j.onnx", 2, ("is a JSON document", "Give an .onnx file")),
    ("build z.onnx", 2, ("is a gzip archive", "gunzip")),
    ("build w.pt", 2, PYTORCH),
    ("build whole.pt", 2, PYTORCH),
    ("build scripted.pt", 2, PYTORCH),
    ("build saved", 2, TF),
    ("build saved/saved_model.pb", 2, TF),
    ("build nmp.engine", 2, ENGINE),
    ("check nmp.engine", 2, ENGINE),
    ("inspect myunet.onnx", 0, ("4 nodes",)),
    ("inspect w.pt", 2, ("w.pt is a PyTorch file, not an engine",)),
    ("bench myunet.onnx", 2, ("is an ONNX model, where an engine is wanted", "trtconv build myunet.onnx")),
    ("verify nmp.engine myunet.onnx", 2, ENGINE),
    ("verify myunet.onnx", 2, ("there is no engine myunet.engine", "--dim batch=")),
    ("verify myunet.onnx nmp.engine", 2, ("no report nmp.engine.json", "--report")),
    (
        "build myunet.onnx",
        2,
        ("3 dynamic dimension(s) without bounds", "--dim batch=", "--dim height=", "--dim width="),
    ),
    ("build myunet.onnx --dim height=512:256:64", 2, ("must be ordered", "Did you mean --dim height=64:256:512?")),
    ("build myunet.onnx --dim height=64:1024:512", 2, ("must be ordered", "Did you mean --dim height=64:512:1024?")),
    ("build myunet.onnx --dim batch=1 --dim hieght=64:256:512 --dim width=64", 2, ("no dimension 'hieght'", DIMS)),
    ("build myunet.onnx --dim Batch=1 --dim H=64 --dim W=64", 2, ("no dimension 'Batch'", DIMS)),
    ("build myunet.onnx --dims batch=1", 2, ("There is no option --dims", "--dim NAME=MIN:OPT:MAX")),
    (f"build myunet.onnx {D} --presicion fp16", 2, ("--precision",)),
    (f"build myunet.onnx {D} --precision fp8", 2, ("'as-is', 'fp16', 'bf16', 'int8'",)),
    (f"build myunet.onnx {D} --fp16", 2, ("There is no option --fp16", "--precision fp16")),
    (f"build myunet.onnx {D} --target trt10", 2, ("'trt10' is unknown", "tensorrt-8.6")),
    (f"build myunet.onnx {D} --target tensorrt-8.6", 4, ("TensorRT is not installed", "--target rtx")),
    (f"build myunet.onnx {D} --target 10.3", 2, ("'10.3' is unknown", "tensorrt-8.6")),
    (f"build myunet.onnx {D} --target tensorrt", 4, ("TensorRT is not installed", "--target rtx")),
    (f"check myunet.onnx {D} --target tensorrt-99", 2, ("rules are not known", "tensorrt-11")),
    (f"build myunet.onnx {D} -o /proc/x.engine", 2, ("/proc/x.engine cannot be written", "another output path")),
    (f"build myunet.onnx {D} -o nodir/sub/x.engine", 0, ("built nodir/sub/x.engine",)),
    (f"build myunet.onnx {D} -o dir", 2, ("dir is a folder", "path of a file")),
    (f"build myunet.onnx {D} -o myunet.onnx", 2, ("is the model itself", "with -o")),
    ("build noext.onnx", 2, ("external data 'gone'", "Put gone beside noext.onnx")),
    ("build myunet.onnx --dim batch=1 --dim height=1000000 --dim width=1000000", 1, ("tensor volume exceeds",)),
    ("build myunet.onnx --dim height=-64", 2, ("--dim height: -64: a dimension is at least 1", "height=64:256:512")),
    ("build myunet.onnx --dim batch=0", 2, ("--dim batch: 0: a dimension is at least 1", "positive")),
    ("build myunet.onnx --dim height=64.5", 2, ("'64.5' is not MIN:OPT:MAX", "Give integers")),
    ("build myunet.onnx --dim height=64x256x512", 2, ("Did you mean --dim height=64:256:512?",)),
    ("build myunet.onnx --dim height=64,256,512", 2, ("Did you mean --dim height=64:256:512?",)),
    ("build myunet.onnx --dim height", 2, ("'height' is not NAME=MIN:OPT:MAX", "--dim height=64:256:512")),
    ("build myunet.onnx --dim height=64 --dim height=128", 2, ("gives height twice: 64 and 128", "one range")),
    (f"build myunet.onnx {D} --dim image:1=3", 0, ("built myunet.engine",)),
    (
        f"build myunet.onnx {D} --dim image:1=4",
        2,
        ("image:1 is static (3) and cannot range over 4", "Leave out image:1"),
    ),
    (f"build myunet.onnx {D} --dim image:7=4", 2, ("no dimension 'image:7'", DIMS)),
    (f"build myunet.onnx {D} --dim x:2=4", 2, ("no input 'x'", "image (batch, 3, height, width)")),
    ("build static.onnx --dim batch=4", 2, ("no dimension 'batch'", "image (1, 3, 64, 64)")),
    (f"build 'my unet.onnx' {D}", 0, ('built "my unet.engine"',)),
    (f"build ü模型.onnx {D}", 0, ("built ü模型.engine",)),
    (f"build - {D}", 2, ("-: no such file", "Stdin is not read")),
    ("build https://example.com/unet.onnx", 2, ("https://example.com/unet.onnx is an address", "Download")),
    ("build myunet.onnx --minShapes image:1x3x64x64", 2, ("--optShapes and --maxShapes missing", "together")),
    (
        "build myunet.onnx --minShapes=image:1x3x64x64 --optShapes=image:1x3x64x64 --maxShapes=image:1x3x64",
        2,
        ("4 in --optShapes, 3 in --maxShapes", "Give the same number"),
    ),
    ("build myunet.onnx --optShapes=x:1x3x64x64", 2, ("the model has no input 'x'", "image (batch, 3")),
    ("build --onnx=myunet.onnx --saveEngine=x.engine --fp16", 2, ("no option --onnx", "trtconv build MODEL.onnx")),
    ("built myunet.onnx", 2, ("Did you mean build?",)),
    ("convert myunet.onnx x.engine", 2, ("Did you mean build?",)),
    ("myunet.onnx", 2, ("Did you mean trtconv build myunet.onnx?",)),
    ("build myunet.onnx x.engine", 2, ("not also x.engine", "-o x.engine")),
    ("build myunet.onnx noext.onnx", 2, ("not also noext.onnx", "trtconv.toml")),
    (f"build myunet.onnx {D} --workspace 4", 2, ("is 4 bytes", "--workspace 4M")),
    (f"build myunet.onnx {D} --workspace 4096", 2, ("is 4096 bytes", "--workspace 4096M")),
    (f"build myunet.onnx {D} --workspace 4K", 2, ("less than 1 MiB", "--workspace 1G")),
    (f"build myunet.onnx {D} --workspace lots", 2, ("'lots' is not a size", "512M")),
    (f"build myunet.onnx {D} --optimization-level 9", 2, ("9 is not in the range 0<=x<=5",)),
    (f"build myunet.onnx {D} --precision int8", 2, ("the model has none", "Quantise it with samples")),
    (f"build myunet.onnx {D} --compute-capability 9.0", 1, ("has no --compute-capability 9.0", "it knows 7.5")),
    (
        f"build myunet.onnx {D} --compute-capability sm_89",
        2,
        ("'sm_89' is not a compute capability", "Did you mean 8.9?"),
    ),
    ("rule TC999", 2, ("there is no rule 'TC999'",)),
    ("rule tc101", 0, ("TC101 output-padding-exceeds-pads",)),
    ("explain myunet.onnx nope", 2, ("nope",)),
    ("check myunet.onnx --select FOO", 2, ("'FOO' is not a rule code", "trtconv rule")),
    (f"build myunet.onnx {D} --format yaml", 2, ("'text', 'json'",)),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    write_files(folder)
    return folder


@pytest.mark.parametrize(("line", "code", "said"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_what_is_said(
    call, files: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int, said: tuple[str, ...]
) -> None:
    monkeypatch.chdir(files)
    ended = call(*shlex.split(line), "-q")
    told = ended.out + ended.err
    assert (ended.code, [words for words in said if words not in told]) == (code, []), told


def test_paths_that_are_no_utf8_do_not_bring_the_model_into_the_message(call, files: Path, monkeypatch) -> None:
    monkeypatch.chdir(files)
    name = b"n\xff.onnx".decode(errors="surrogateescape")
    Path(name).write_bytes(Path("myunet.onnx").read_bytes())
    ended = call("build", name, *D.split(), "-q")
    assert len(ended.out + ended.err) < 10_000
    assert ended.code == 0, ended.err
