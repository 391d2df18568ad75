"""Einstein sums with capital letters, which TensorRT's parser refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import PassResult
from trtconv.passes.einsum_letters import LowerEinsumLetters
from trtconv.runtimes import tensorrt


def model(equation: str, *shapes: tuple[int, ...]) -> OnnxModel:
    inputs = [helper.make_tensor_value_info(f"x{at}", onnx.TensorProto.FLOAT, shape) for at, shape in enumerate(shapes)]
    node = helper.make_node("Einsum", [value.name for value in inputs], ["y"], equation=equation)
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    proto = helper.make_model(
        helper.make_graph([node], "g", inputs, [output]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return OnnxModel(proto, Path("m.onnx"))


RTX, OLD = Target("rtx"), Target("tensorrt", (8, 6))


def lowered(made: OnnxModel, target: Target = RTX) -> PassResult:
    return LowerEinsumLetters().run(made, target)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("BIJ,BJK->BIK", [(2, 3, 4), (2, 4, 5)]),
        ("B I J, B J K -> K B I", [(2, 3, 4), (2, 4, 5)]),
        ("aIj,ajI->Ia", [(2, 3, 4), (2, 4, 3)]),
        ("...IJ,...JK->...KI", [(2, 3, 4), (2, 4, 5)]),
        ("KJ,JI", [(5, 4), (4, 3)]),
        ("bJ,Ja", [(5, 4), (4, 3)]),
        ("...JI", [(2, 3, 4)]),
        ("II->I", [(3, 3)]),
    ],
)
def test_capitals_become_small_letters_that_mean_the_same(equation: str, shapes: list[tuple[int, ...]]) -> None:
    before, after = model(equation, *shapes), model(equation, *shapes)
    assert len(lowered(after).edits) == 1
    assert not lowered(after).edits
    random = np.random.default_rng(5)
    feeds = {f"x{at}": random.normal(size=shape).astype(np.float32) for at, shape in enumerate(shapes)}
    one, two = (np.asarray(ReferenceEvaluator(each.proto).run(None, feeds)[0]) for each in (before, after))
    np.testing.assert_allclose(one, two, rtol=1e-5)
    assert not isinstance(tensorrt.load(Target("rtx")).parse(after.serialize(), after.path), tuple)


@pytest.mark.parametrize(
    ("equation", "shapes", "why"),
    [
        ("Aj,ja", [(2, 3), (3, 4)], "first"),
        ("abcdefghijklmnopqrstuvwxyz,zA->A", [(1,) * 26, (1, 2)], "27"),
    ],
)
def test_what_has_no_small_letters_is_left(equation: str, shapes: list[tuple[int, ...]], why: str) -> None:
    made = model(equation, *shapes)
    before = made.serialize()
    result = lowered(made)
    assert not result.edits and why in result.skipped[0].reason
    assert made.serialize() == before


def test_small_letters_are_left() -> None:
    made = model("ij,jk", (3, 4), (4, 5))
    assert not LowerEinsumLetters().may_act(made, Target("rtx"))


@pytest.mark.parametrize(
    ("equation", "shapes", "written"),
    [
        ("...pd,...qd->...pq", [(2, 5, 3), (2, 4, 3)], "apd,aqd->apq"),
        ("...PD,...QD->...PQ", [(2, 3, 5, 3), (2, 3, 4, 3)], "deba,deca->debc"),
        ("i...j->j...i", [(2, 3, 4, 5)], "iabj->jabi"),
        ("...ij,jk->...ik", [(2, 3, 4), (4, 5)], "aij,jk->aik"),
        ("...ij,...jk", [(3, 4), (4, 5)], "ij,jk->ik"),
        ("... b a", [(2, 3, 4)], "cba->cab"),
    ],
)
def test_an_ellipsis_becomes_letters_for_tensorrt_8(equation: str, shapes: list[tuple[int, ...]], written: str) -> None:
    before, after = model(equation, *shapes), model(equation, *shapes)
    if equation == equation.lower():
        assert not LowerEinsumLetters().may_act(after, RTX)
    assert len(lowered(after, OLD).edits) == 1
    assert not LowerEinsumLetters().may_act(after, OLD)
    assert after.proto.graph.node[0].attribute[0].s.decode() == written
    random = np.random.default_rng(5)
    feeds = {f"x{at}": random.normal(size=shape).astype(np.float32) for at, shape in enumerate(shapes)}
    one, two = (np.asarray(ReferenceEvaluator(each.proto).run(None, feeds)[0]) for each in (before, after))
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes", "why"),
    [
        ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)], "other sizes"),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)], "other sizes"),
        ("...ij,...jk->...ik", [("n", 3, 4), ("n", 4, 5)], "other sizes"),
        ("...ij->ij", [(2, 3, 4)], "lost"),
        ("...ii->...i", [(2, 3, 3)], "diagonals"),
        ("...ij->...ji", [(2, 3, 4), (2, 3, 4)], "of 1 inputs"),
        ("...ij->...ji", [None], "how many"),
        ("...abcdefghijklmnopqrstuvwxyz->...a", [(2,) + (1,) * 26], "letters"),
    ],
)
def test_an_ellipsis_that_may_stand_for_more_is_left(equation: str, shapes: Any, why: str) -> None:
    made = model(equation, *shapes)
    result = lowered(made, OLD)
    assert not result.edits and why in result.skipped[0].reason


def test_one_of_unknown_sizes_alone_repeats_nothing() -> None:
    made = model("...ij,jk->...ik", ("n", 3, 4), (4, 5))  # type: ignore[arg-type]
    assert len(lowered(made, OLD).edits) == 1
