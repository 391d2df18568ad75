"""Samples and caches that somebody else has made: images that are not what they are called, ranges that are none."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from trtconv.cli.timing_folder import cache_folder
from trtconv.core import budget
from trtconv.core.budget import Budget, BudgetExceeded
from trtconv.core.documents.calibration import KeptRanges, KeptSizes
from trtconv.core.errors import InputError
from trtconv.core.preprocessing import Preprocessing
from trtconv.core.samples import sample_files
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize import cache
from trtconv.precision.quantize.images import read_image
from trtconv.precision.quantize.samples import read_samples
from trtconv.runtimes.inputs import read_arrays

Image = pytest.importorskip("PIL.Image")
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def test_no_program_is_started_for_what_is_called_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sprung = tmp_path / "sprung"
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch '{sprung}'\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "x.png").write_bytes(EPS)
    with pytest.raises(InputError, match="cannot be read as an image"):
        read_image(tmp_path / "x.png", Preprocessing(), 0)
    assert not sprung.exists()


def _bomb(path: Path, side: int) -> None:
    """Writes a PNG of a few bytes that says it has side x side pixels."""
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(9))))
    parts = [struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
             for kind, data in (*chunks, (b"IEND", b""))]  # fmt: skip
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


@pytest.mark.parametrize("side", [12_000, 60_000])
def test_an_image_may_not_be_larger_than_the_budget(tmp_path: Path, side: int) -> None:
    _bomb(tmp_path / "x.png", side)
    with budget.allowed(Budget()), pytest.raises((BudgetExceeded, InputError)):
        read_image(tmp_path / "x.png", Preprocessing(), 0)


@pytest.mark.parametrize("resized", [False, True])
def test_a_pixel_counts_for_its_bytes_and_those_of_its_floats(tmp_path: Path, resized: bool) -> None:
    Image.new("RGB", (40, 20)).save(tmp_path / "x.png")
    how = Preprocessing(sizes=((60, 60),)) if resized else Preprocessing()
    megabytes = 3 * (1 + 4) * (60 * 60 if resized else 40 * 20) / 1e6
    with budget.allowed(Budget(megabytes=megabytes)):
        read_image(tmp_path / "x.png", how, 0)
    with budget.allowed(Budget(megabytes=megabytes * 0.99)), pytest.raises(BudgetExceeded):
        read_image(tmp_path / "x.png", how, 0)


def test_what_covers_a_size_may_not_be_larger_than_the_budget(tmp_path: Path) -> None:
    """A line of pixels that is scaled until it is 224 wide has billions of them."""
    Image.new("L", (1, 60_000)).save(tmp_path / "x.png")
    with pytest.raises(BudgetExceeded):
        read_image(tmp_path / "x.png", Preprocessing(sizes=((224, 224),), fit="crop"), 0)


def _archive(path: Path, shape: tuple[int, ...], values: bytes = b"", arrays: int = 1) -> None:
    """Writes an .npz file whose arrays say that they have a shape."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(arrays):
            archive.writestr(f"{'x' if i == 0 else i}.npy", head.getvalue() + values)


@pytest.mark.parametrize(
    ("shape", "filled"), [((10**12, 0, 1), False), ((10**12, 0), False), ((200_000, 1, 1), True), ((200_000, 1), True)]
)
def test_an_array_holds_no_more_samples_than_anybody_needs(
    tmp_path: Path, shape: tuple[int, ...], filled: bool
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (uint8[n,1] x) => (uint8[n,1] y) { y = Identity (x) }'
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    _archive(tmp_path / "x.npz", shape, bytes(np.prod(shape)) if filled else b"")
    with pytest.raises(InputError):
        samples = read_samples(OnnxModel.load(tmp_path / "m.onnx"), str(tmp_path / "x.npz"), [], 1, 0, None)
        # One without elements is one sample, which does not fit the model.
        assert len(samples) == 1
        samples[0]


def test_an_archive_has_no_more_arrays_than_a_model_may_have_inputs(tmp_path: Path) -> None:
    _archive(tmp_path / "x.npz", (1,), b"1", arrays=20)
    with budget.allowed(Budget(inputs=10)), pytest.raises(BudgetExceeded):
        read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("ending", ["png", "tif", "pgm"])
def test_images_of_16_bits_are_no_brighter_than_those_of_8(tmp_path: Path, ending: str) -> None:
    narrow = np.arange(256, dtype=np.uint8).reshape(16, 16)
    Image.fromarray(narrow).save(tmp_path / "narrow.png")
    Image.fromarray(narrow.astype(np.uint16) * 257).save(tmp_path / f"wide.{ending}")
    wide = read_image(tmp_path / f"wide.{ending}", Preprocessing(), 0)
    np.testing.assert_array_equal(wide, read_image(tmp_path / "narrow.png", Preprocessing(), 0))
    Image.fromarray(narrow).save(tmp_path / f"narrow.{ending}")
    np.testing.assert_array_equal(wide, read_image(tmp_path / f"narrow.{ending}", Preprocessing(), 0))


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_images_whose_white_is_not_known_are_refused(kind: type, tmp_path: Path) -> None:
    Image.fromarray(np.linspace(0, 64, 64).astype(kind).reshape(8, 8)).save(tmp_path / "x.tif")
    with pytest.raises(InputError, match="32 bits"):
        read_image(tmp_path / "x.tif", Preprocessing(), 0)


def test_palettes_are_colours(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    rgb = np.zeros((4, 4, 3), np.uint8)
    rgb[:2] = 255, 128, 0
    image = Image.fromarray(rgb).convert("P", palette=Image.Palette.ADAPTIVE, colors=2)
    image.save(tmp_path / "x.png", transparency=bytes([0, 255]))
    found = read_image(tmp_path / "x.png", Preprocessing(), 0)
    np.testing.assert_array_equal(found[0].transpose(1, 2, 0), rgb)
    assert not recwarn.list


WHOLE = {"method": "max", "errors": {}, "ranges": {"x": 1.0, "y": 0}}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "null", "[]", "{}", "[" * 100_000, json.dumps({**WHOLE, "ranges": {"x": 1.0}})),
        *(json.dumps({**WHOLE, "ranges": {"x": 1.0, "y": bad}}) for bad in (-1, float("nan"), float("inf"), "1", None)),
        *(json.dumps({**WHOLE, key: 5}) for key in WHOLE),
    ],
    ids=str,
)
def test_ranges_that_were_spoiled_are_found_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "k.json").write_text(text)
    assert cache.load(tmp_path, "k", KeptRanges, ["x", "y"]) is None
    found = KeptRanges("max", {}, {"x": 1.0, "y": 0})
    cache.store(tmp_path, "k", found)
    assert cache.load(tmp_path, "k", KeptRanges, ["x", "y"]) == found


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="POSIX owners")
def test_a_cache_that_others_may_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "trtconv" / "timing"
    assert cache_folder("timing") == folder
    folder.mkdir(parents=True)
    assert cache_folder("timing") == folder
    for each in (folder, folder.parent):
        each.chmod(0o777)
        assert cache_folder("timing") is None
        each.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
        assert cache_folder("timing") is None


@pytest.mark.parametrize("name", ["a.npz", "sub/b.NPY", "c.png"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "link to nothing"])
def test_a_sample_that_is_not_a_plain_file_is_named(tmp_path: Path, name: str, kind: str) -> None:
    np.savez(tmp_path / "good.npz", x=np.zeros((1, 3, 8, 8), np.float32))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        path.symlink_to("nothing")
    with pytest.raises(InputError, match=re.escape(f"{path} is not a plain file")):
        sample_files(tmp_path)
    path.rename(path.with_name(".hidden"))
    (tmp_path / "readme").touch()
    assert sample_files(tmp_path) == [tmp_path / "good.npz"]


@pytest.mark.parametrize("number", ["1e308", "0.0", "1e39", "2.0", "-1.0"])
def test_a_range_that_was_changed_is_found_anew(tmp_path: Path, number: str) -> None:
    """0 may be one, and is not that of this tensor."""
    cache.store(tmp_path, "k", KeptRanges("max", {}, {"x": 1.25}))
    path = tmp_path / "k.json"
    path.write_text(path.read_text().replace("1.25", number))
    assert cache.load(tmp_path, "k", KeptRanges, ["x"]) is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 1e39])
@pytest.mark.parametrize("values", [lambda bad: [1.0, bad], lambda bad: [bad, 1.0]])
def test_no_range_and_no_size_is_beyond_float32(values: Callable[[float], list[float]], bad: float) -> None:
    ranges = dict(zip("xy", values(bad), strict=True))
    assert not KeptRanges("max", {}, ranges).is_of(["x"])
    assert not KeptSizes({"x": values(bad)}).is_of(["x"])
    assert KeptSizes({"x": [0.0, 1.0]}).is_of(["x"])
