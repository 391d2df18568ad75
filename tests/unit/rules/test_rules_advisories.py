"""Known wrong versions of TensorRT: each advisory is for what is computed wrongly, and not for its neighbours."""

from __future__ import annotations

import pytest

from support.onnx_models import RTX, TENSORRT_8, parse, wrap
from trtconv.core.target import Target
from trtconv.rules import run_rules


def masked(scores: str, mask: str, target: Target) -> bool:
    """Whether an attention with these scores, and a mask that is added to them, is one that 8.6 computes wrongly."""
    rows, columns = scores.rpartition(",")[0], scores.rpartition(",")[2]
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{rows},8] q, float[{scores.rpartition(",")[0].rpartition(",")[0]},8,{columns}] k, float[{mask}] m)
          => (float[{scores}] y)
        {{ s = MatMul (q, k)  a = Add (s, m)  y = Softmax <axis = -1> (a) }}"""
    )
    return "TC616" in {finding.code for finding in run_rules(wrap(proto), target)}


@pytest.mark.parametrize(
    ("scores", "mask", "wrong"),
    [
        ("2,4,1,6", "2,1,1,6", True),
        ("2,2,3,1,6", "2,1,1,1,6", True),
        ("2,1,3,1,6", "2,1,1,1,6", True),
        ("2,1,1,6", "2,1,1,6", False),
        ("2,4,1,6", "1,1,1,6", False),
        ("2,4,1,6", "2,4,1,6", False),
        ("2,4,2,6", "2,1,1,6", False),
    ],
    ids=["heads", "groups of heads", "one group", "one head", "one mask", "a mask a head", "two queries"],
)
def test_one_query_with_a_mask_for_each_batch(scores: str, mask: str, wrong: bool) -> None:
    assert masked(scores, mask, TENSORRT_8) is wrong
    assert not masked(scores, mask, RTX)
