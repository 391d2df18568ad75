"""Models on two TensorRTs, of which one is the installed TensorRT-RTX, changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.environments import HERE, NEAREST, PLAIN, SAMPLED, environment, saved
from trtconv.core.documents.upgrade import Effect, Fate
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.upgrade import UpgradeRequest
from trtconv.pipeline.upgrading.upgrade import upgrade


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    return [saved(tmp_path, SAMPLED, "sampled"), saved(tmp_path, PLAIN, "plain")]


def builds(models: list[Path]) -> tuple[BuildRequest, ...]:
    return tuple(BuildRequest(model=each) for each in models)


def test_a_node_that_is_read_otherwise_is_a_regression(models: list[Path], tmp_path: Path) -> None:
    wrong = environment(tmp_path / "wrong", NEAREST)
    report = upgrade(UpgradeRequest(builds=builds(models), before=HERE, after=wrong, jobs=1))
    assert (report.after.version, report.exit_code) == ("1.5.0.0", 1)
    assert report.before.version != "1.5.0.0"
    sampled, plain = report.models
    assert (sampled.change, sampled.before.fate, sampled.after.fate) == (Effect.REGRESSION, Fate.PROVEN, Fate.DIFFERS)
    assert sampled.after.error is not None
    assert sampled.after.error > 0.1
    (difference,) = sampled.layers
    (attribute,) = difference.attributes
    assert (difference.node, attribute.name, attribute.before, attribute.after) == (
        *("sampled", "interpolation_mode"),
        *("LINEAR", "NEAREST"),
    )
    assert {each.code for each in sampled.findings} == {"TC411", "TC412"}
    assert (plain.change, plain.layers, plain.findings) == (Effect.SAME, (), ())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain.onnx", "sampled.onnx", "wrong"]


def test_what_is_right_again_is_an_improvement(models: list[Path], tmp_path: Path) -> None:
    wrong = environment(tmp_path / "wrong", NEAREST)
    report = upgrade(UpgradeRequest(builds=builds(models[:1]), before=wrong))
    assert (report.models[0].change, report.exit_code) == (Effect.IMPROVEMENT, 0)
