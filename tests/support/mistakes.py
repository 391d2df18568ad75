"""The files that people mistake for others, and the call lines of theirs that tests/cli/test_mistakes.py judges."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

UNET = """
<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 3, height, width] image) => (float[batch, 7, p, q] y)
<float[4, 3, 3, 3] k, float[4, 4, 2, 2] up>
{
  [down] a = Conv <pads = [1, 1, 1, 1], strides = [4, 4]> (image, k)
  [mid] b = ConvTranspose <strides = [2, 2]> (a, up)
  [top] c = ConvTranspose <strides = [2, 2]> (b, up)
  [skip] y = Concat <axis = 1> (c, image)
}
"""


def unet() -> onnx.ModelProto:
    """Returns a network that takes multiples of 4, with the dimensions batch, height and width."""
    proto = parser.parse_model(UNET)
    random = np.random.default_rng(0)
    del proto.graph.initializer[:]
    for name, shape in (("k", (4, 3, 3, 3)), ("up", (4, 4, 2, 2))):
        proto.graph.initializer.append(numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name))
    return proto


def write_files(folder: Path) -> None:
    """Writes all files that the calls name, each what its name says or what it is mistaken for."""
    proto = unet()
    data = proto.SerializeToString()
    for name in ("myunet.onnx", "my unet.onnx", "ü模型.onnx"):
        (folder / name).write_bytes(data)
    static = unet()
    for dim, size in zip(static.graph.input[0].type.tensor_type.shape.dim, (1, 3, 64, 64), strict=True):
        dim.dim_value = size
    onnx.save(static, folder / "static.onnx")
    onnx.save_model(proto, folder / "noext.onnx", save_as_external_data=True, location="gone", size_threshold=0)
    (folder / "gone").unlink()
    (folder / "dir").mkdir()
    (folder / "empty.onnx").touch()
    (folder / "trunc.onnx").write_bytes(data[: len(data) // 2])
    (folder / "text.onnx").write_text("hello, this is no model\n" * 9)
    (folder / "j.onnx").write_text('{"model": 1}')
    (folder / "z.onnx").write_bytes(gzip.compress(data))
    for name in ("w.pt", "whole.pt", "scripted.pt"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"")
    (folder / "saved").mkdir()
    (folder / "saved" / "saved_model.pb").write_bytes(b"\x08\x01")
    (folder / "nmp.engine").write_bytes(b"vtrt" + bytes(64))
