"""What a file says of the sizes of its outputs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import onnx

from trtconv.exporter.file.finish import without_found

HEAD = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 6, 4] boxes, float[1, 1, 6] scores) => (%s)
    <int64[1] zero = {0}, int64[1] hundred = {100}, int64[1] most = {1000}, int64[1] last = {2}, int64[1] one = {1},
     float[1] iou = {0.5}> {
      kept = NonMaxSuppression (boxes, scores, most, iou)
      which = Slice (kept, last, most, one)
      flat = Squeeze (which, one)
      first = Slice (flat, zero, hundred)
      rows = Squeeze (boxes, zero)
      picked = Gather (rows, first)
      sized = Shape (picked)
      plain = Relu (boxes) }"""


@pytest.mark.parametrize(
    ("name", "seen", "told"),
    [
        ("picked", (100, 4), ("picked_0", 4)),
        ("picked", ("2*height", 4), ("2*height", 4)),
        ("first", (100,), ("first_0",)),
        ("kept", (100, 3), ("kept_0", 3)),
        ("sized", (2,), (2,)),
        ("plain", (1, 6, 4), (1, 6, 4)),
    ],
)
def test_sizes_of_what_was_found_are_no_fixed_ones(
    name: str, seen: tuple[int | str, ...], told: tuple[int | str, ...]
) -> None:
    kind = "int64" if name in ("first", "kept", "sized") else "float"
    shape = ", ".join("100" if n == 100 else f"d{axis}" for axis, n in enumerate(seen))
    proto = onnx.parser.parse_model(HEAD % f"{kind}[{shape}] {name}")
    assert without_found(proto, {name: seen}) == {name: told}
