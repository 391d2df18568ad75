"""What two trials of a model mean."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtconv.core import codes
from trtconv.core.decode import decoded
from trtconv.core.documents.proof import BuildProof
from trtconv.core.documents.upgrade import BuildTrial, Effect, Fate, ParsedLayer
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.upgrade import UpgradeRequest
from trtconv.core.target import Target
from trtconv.pipeline.upgrading.environments import Environment, interpreter_of
from trtconv.pipeline.upgrading.judging import Allowance, judged
from trtconv.pipeline.upgrading.layers import differences
from trtconv.pipeline.upgrading.upgrade import upgrade
from trtconv.runtimes.parsed_layers import parsed_layers
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

ALLOWED = Allowance(0.05, 2.0)


def layer(kind: str, node: str, **attributes: str) -> ParsedLayer:
    return ParsedLayer(node, kind, node, attributes)


def trial(fate: Fate = Fate.PROVEN, error: float | None = 0.0, build_s: float = 1.0, *found: Any) -> BuildTrial:
    proof = None if error is None else BuildProof(max_relative_error=error, agrees=True)
    return BuildTrial(fate, proof=proof, seconds={"build": build_s}, findings=found)


@pytest.mark.parametrize(
    ("before", "after", "change", "findings"),
    [
        (trial(), trial(), Effect.SAME, 0),
        (trial(error=0.1), trial(error=0.104), Effect.CHANGED, 0),
        (trial(error=0.1), trial(error=0.106), Effect.REGRESSION, 1),
        (trial(error=0.1), trial(error=math.nan), Effect.REGRESSION, 1),
        (trial(error=0.0), trial(error=9e-7), Effect.SAME, 0),
        (trial(error=None), trial(error=0.5), Effect.CHANGED, 0),
        (trial(build_s=4), trial(build_s=7.9), Effect.SAME, 0),
        (trial(build_s=4), trial(build_s=8.1), Effect.REGRESSION, 1),
        (trial(build_s=0.1), trial(build_s=0.9), Effect.SAME, 0),
        (trial(Fate.PROVEN), trial(Fate.BUILT), Effect.CHANGED, 0),
        (trial(), trial(Fate.TOO_LONG, None), Effect.REGRESSION, 1),
        (trial(Fate.CRASHED, None), trial(Fate.OUT_OF_MEMORY, None), Effect.CHANGED, 0),
        (trial(Fate.CRASHED, None), trial(Fate.CRASHED, None), Effect.SAME, 0),
        (trial(Fate.RULED_OUT), trial(Fate.BUILT), Effect.IMPROVEMENT, 0),
        (trial(), trial(Fate.NOT_TRIED, None), Effect.NOT_TRIED, 0),
        # Of neither side was anything found out.
        (trial(Fate.TOO_LONG, None), trial(Fate.TOO_LONG, None), Effect.NOT_TRIED, 0),
        (trial(Fate.OUT_OF_MEMORY, None), trial(Fate.TOO_LONG, None), Effect.NOT_TRIED, 0),
    ],
)
def test_what_an_upgrade_means(before: BuildTrial, after: BuildTrial, change: Effect, findings: int) -> None:
    row = judged("m.onnx", before, after, ALLOWED)
    assert (row.change, len(row.regressions)) == (change, findings)


def test_times_count_only_where_asked() -> None:
    assert judged("m", trial(build_s=1), trial(build_s=99), Allowance(0.05)).change is Effect.SAME


def test_only_new_errors_are_the_reason() -> None:
    old, new = (codes.PARSER_REFUSED.finding(f"no {op}") for op in ("Foo", "Bar"))
    new = dataclasses.replace(new, location=dataclasses.replace(new.location, node="bar"))
    row = judged("m", trial(Fate.BUILT, 0.0, 1.0, old), trial(Fate.PARSER_REFUSED, None, 1.0, old, new), ALLOWED)
    (found,) = row.regressions
    assert (found.code, found.location.node) == ("TC411", "bar")


def test_layers_belong_together_by_node_and_kind() -> None:
    conv, relu = layer("CONVOLUTION", "conv", pads="1"), layer("ACTIVATION", "relu", type="RELU")
    helper = ParsedLayer("(Unnamed Layer* 7)", "SHUFFLE", "", {})
    renamed = dataclasses.replace(helper, name="(Unnamed Layer* 9)")
    assert differences([helper, conv], [renamed, conv]) == ()
    (new,) = differences([conv, relu], [conv, helper, relu])
    assert (new.node, new.before, new.after) == ("relu", None, "SHUFFLE")
    (changed,) = differences([conv, relu], [layer("CONVOLUTION", "conv", pads="2", newer="x"), relu])
    assert [(each.name, each.before, each.after) for each in changed.attributes] == [("pads", "1", "2")]
    (gone,) = differences([conv, relu], [conv])
    assert (gone.node, gone.before, gone.after) == ("relu", "ACTIVATION", None)


def network(kernel: list[float], first: int = 0) -> ReadNetwork:
    tensors = tuple(ReadTensor(number, f"t{number}", "float32", (1, 3)) for number in range(first + 2))
    held = ReadLayer(0, "c", "CONVOLUTION", (first,), (first + 1,), {"kernel": np.array(kernel, np.float32)}, "c")
    return ReadNetwork(tensors, (held,), (first,), (first + 1,))


def test_numbers_of_tensors_are_no_difference_and_weights_are() -> None:
    long = [float(number) for number in range(40)]
    one, shifted, other = (
        parsed_layers(each, {"c"}) for each in (network(long), network(long, 5), network([*long[:-1], -1.0]))
    )
    assert differences(one, shifted) == ()
    (changed,) = differences(one, other)
    assert [each.name for each in changed.attributes] == ["kernel"]


def test_a_trial_crosses_as_json() -> None:
    told = dataclasses.replace(trial(), layers=(layer("CONVOLUTION", "conv", pads="1"),))
    assert decoded(BuildTrial, told.to_json()) == told


def test_environments_that_are_none(tmp_path: Path) -> None:
    model = BuildRequest(model=tmp_path / "m.onnx")
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="environment"):
            upgrade(UpgradeRequest(builds=(model,), before=place))
    script = tmp_path / "bin" / "python"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no onnx' >&2; exit 1\n")
    script.chmod(0o755)
    assert interpreter_of(tmp_path) == script
    with Environment(script, None, 1.0) as side, pytest.raises(EnvironmentMissing, match="no onnx"):
        side.identity()
    script.write_text("no program")
    with Environment(script, None, 1.0) as side, pytest.raises(EnvironmentMissing, match="does not start"):
        side.identity()


def test_nothing_to_try_and_two_families(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model"):
        upgrade(UpgradeRequest(builds=(), before=tmp_path))
    builds = tuple(BuildRequest(model=tmp_path / "m.onnx", target=Target(family)) for family in ("rtx", "tensorrt"))
    with pytest.raises(InputError, match="rtx and tensorrt"):
        upgrade(UpgradeRequest(builds=builds, before=tmp_path))
