"""Which parts of files tensors lie in."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from trtconv.graph.external_data import refer_to, used_parts


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.integers(1, 6)), max_size=6))
def test_parts_that_touch_are_one_and_all_bytes_are_in_one(places: list[tuple[str, int, int]]) -> None:
    tensors = []
    for name, begin, length in places:
        tensor = TensorProto(name=name, data_type=TensorProto.UINT8, dims=[length])
        refer_to(tensor, name, begin, length)
        tensors.append(tensor)
    used = {(name, at) for name, begin, length in places for at in range(begin, begin + length)}
    parts = used_parts(tensors)
    assert [(name, at) for name, begin, end in parts for at in range(begin, end)] == sorted(used)
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in itertools.pairwise(parts))
