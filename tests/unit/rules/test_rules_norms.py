"""Norms over whole images, whose power has a default."""

from __future__ import annotations

import pytest

from support.onnx_models import RTX
from support.sizes import parse
from trtconv.rules.base import ModelView
from trtconv.rules.global_lp_pool import GlobalLpPoolOddPower


@pytest.mark.parametrize(("attributes", "count"), [("", 0), ("<p = 1>", 1), ("<p = 2>", 0), ("<p = 3>", 1)])
def test_odd_powers_alone(attributes: str, count: int) -> None:
    model = parse(f"g (float[1,2,4,4] x) => (float[1,2,1,1] y) {{ y = GlobalLpPool {attributes} (x) }}")
    assert len(list(GlobalLpPoolOddPower().check(ModelView(model), RTX))) == count
