"""Bounds of networks whose nodes do not tell which sizes they take: those at which ONNX Runtime runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

import trtconv
from support.sizes import parse, save
from trtconv.core.errors import InputError
from trtconv.pipeline import size_trials
from trtconv.pipeline.size_trials import SizeTrials

# A row of 300 numbers is read as far as the input has some that are not zero.
ROW = """g (float[1,h] x) => (float[a,b] y)
<float[300] row = {VALUES}, int64 zero = {0}, int64 one = {1}, int64[2] s = {1,-1}> {
    p = NonZero (x)  m = ReduceMax <keepdims = 0> (p)  n = Add (m, one)  at = Range (zero, n, one)
    g = Gather (row, at)  w = Reshape (g, s)  y = Add (x, w)
}""".replace("VALUES", ", ".join(["1"] * 300))


def test_what_onnx_runtime_runs_is_proposed(tmp_path: Path) -> None:
    path = save(ROW, tmp_path / "m.onnx")
    with pytest.raises(InputError) as error:
        trtconv.build(trtconv.BuildRequest(path))
    proposal = "--dim h=32:128:256 (at which ONNX Runtime ran the network)"
    assert error.value.hint == f"Add: --dim h=MIN:OPT:MAX, for example {proposal}"
    assert not (tmp_path / "m.engine").exists()


def test_sizes_run_or_do_not() -> None:
    runs = SizeTrials(parse("g (float[n,3] x) => (float[a,4] y) <int64[2] s = {-1,4}> { y = Reshape (x, s) }"))
    assert runs([{"n": 4}, {"n": 8}])
    assert not runs([{"n": 4}, {"n": 5}])
    # A model that is none, and sizes that are none.
    assert not SizeTrials(parse("g (float[n] x) => (float[n] y) { y = Unheard (x) }"))([{"n": 4}])
    assert not runs([{"m": 4}])


def test_there_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_trials, "_SECONDS", 0.0)
    assert not SizeTrials(parse("g (float[n] x) => (float[n] y) { y = Relu (x) }"))([{"n": 4}])


def test_there_is_an_end_for_many_models() -> None:
    assert not SizeTrials(parse("g (float[n] x) => (float[n] y) { y = Relu (x) }"), until=0.0)([{"n": 4}])
