"""`trtconv upgrade`: models on two TensorRTs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.environments import DIES, HERE, NEAREST, PLAIN, SAMPLED, VERSION, environment, saved


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    return [saved(tmp_path, SAMPLED, "sampled"), saved(tmp_path, PLAIN, "plain")]


def test_a_crash_is_a_row(call: Any, models: list[Path], tmp_path: Path) -> None:
    dying = environment(tmp_path / "dying", DIES)
    page = tmp_path / "page.html"
    words = ["upgrade", "--from", str(HERE), "--to", str(dying), "--prove", "none", "-q", "-o", str(page)]
    ended = call(*words, str(models[1]), "--format", "json")
    document = json.loads(ended.out)
    (row,) = document["models"]
    assert (ended.code, document["summary"]["regression"]) == (1, 1)
    assert (row["before"]["fate"], row["after"]["fate"]) == ("built", "crashed")
    assert "signal 11" in row["findings"][0]["message"]
    assert "crashed" in page.read_text()


def test_sarif_has_the_regression_and_who_cannot_be_tried(call: Any, models: list[Path], tmp_path: Path) -> None:
    wrong = environment(tmp_path / "wrong", NEAREST)
    words = ["upgrade", "--from", str(HERE), "--to", str(wrong), str(models[0]), str(tmp_path / "none.onnx"), "-q"]
    ended = call(*words, "--format", "sarif")
    (run,) = json.loads(ended.out)["runs"]
    levels = [(each["ruleId"], each["level"]) for each in run["results"]]
    assert ended.code == 2
    assert levels == [("TC411", "error"), ("TC412", "note")]
    assert run["results"][0]["locations"][0]["logicalLocations"][0]["name"] == "sampled"
    assert "no such file" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_models_of_the_configuration(call: Any, models: list[Path], tmp_path: Path) -> None:
    listed = "".join(f'[[models]]\npath = "{each.name}"\ntargets = ["rtx", "rtx-1.7"]\n' for each in models)
    config = tmp_path / "trtconv.toml"
    config.write_text(listed)
    other = environment(tmp_path / "other", VERSION)
    words = ["upgrade", "--from", str(other), "--config", str(config), "--prove", "none", "-q"]
    ended = call(*words)
    assert ended.code == 0
    assert ended.out.splitlines()[0].startswith("from rtx 1.5.0.0 to rtx ")
    assert ended.out.splitlines()[-1] == "2 models: 2 same"
    assert call(*words, "--dim", "x:0=1").code == 2


def test_bad_calls_write_nothing(call: Any, models: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    before = sorted(tmp_path.iterdir())
    assert call("upgrade", str(models[0]), "-o", str(page)).code == 2
    assert call("upgrade", "--from", str(tmp_path / "none"), str(models[0]), "-o", str(page)).code == 2
    assert call("upgrade", "--from", str(HERE), str(models[0]), "-o", str(models[0])).code == 2
    assert sorted(tmp_path.iterdir()) == before


def test_the_page_replaces_nothing_that_a_listed_model_reads(call: Any, models: list[Path], tmp_path: Path) -> None:
    reference = tmp_path / "own.py"
    reference.write_text("a reference")
    config = tmp_path / "trtconv.toml"
    config.write_text(f'[[models]]\npath = "{models[0].name}"\nreferences = ["own.py"]\n')
    ended = call("upgrade", "--from", str(HERE), "--config", str(config), "-q", "-o", str(reference))
    assert ended.code == 2 and "would replace it" in ended.err
    assert reference.read_text() == "a reference"
