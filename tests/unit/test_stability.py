"""What docs/api.md says is public is there, what was there stays or warns, and the worked examples do as they say."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import trtconv
from support.paths import ROOT
from trtconv.core import stability
from trtconv.core.rewrite_rules import read_rules
from trtconv.pipeline.extending.installed import GROUP
from trtconv.pipeline.extending.testing import test_extension as tried

FIRST = (ROOT / "tests" / "data" / "api-0.1.0.txt").read_text(encoding="utf-8").split()
"""Names that version 0.1.0 offers; another file for each later version."""
GUIDE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    """Returns the block of docs/extending.md that begins with a file's name."""
    found = re.search(rf"^```\w+\n(# {re.escape(name)}\n.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


def test_what_was_there_stays_or_warns() -> None:
    assert set(FIRST) <= {*trtconv.__all__, *stability.RENAMED}


def test_what_came_later_says_since_when() -> None:
    assert set(trtconv.__all__) - set(FIRST) == set(stability.SINCE)


@pytest.mark.parametrize("name", sorted(trtconv.__all__))
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(trtconv, name)
    assert name == "__version__" or inspect.getdoc(value)


@pytest.mark.parametrize(("home", "name"), [(home, name) for home, names in stability.WITHIN.items() for name in names])
def test_what_extensions_are_given_is_there(home: str, name: str) -> None:
    module, _, kind = home.rpartition(".")
    holder = getattr(importlib.import_module(module), kind) if kind[0].isupper() else importlib.import_module(home)
    there = hasattr(holder, name) or name in (inspect.getdoc(holder) or "") + inspect.getsource(holder.__init__)
    assert there, f"{home}.{name}"


def test_an_old_name_is_found_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stability, "RENAMED", {"convert_model": stability.Renamed("build", "0.2.0", "0.4.0")})
    with pytest.warns(DeprecationWarning, match=r"trtconv\.build since 0\.2\.0"):
        assert trtconv.convert_model is trtconv.build  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        trtconv.never_was  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["rules.toml", "acme.py"])
def test_worked_examples_pass_their_test(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(example(name), encoding="utf-8")
    found = tried(tmp_path / name)
    assert [each for each in found.trials if not each.passed] == [] and len(found.trials) >= 6


def test_the_example_of_rules_is_read(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(example("rules.toml"), encoding="utf-8")
    assert len(read_rules(tmp_path / "rules.toml")) == 3


def test_the_example_of_a_package_names_the_group() -> None:
    assert f'[project.entry-points."{GROUP}"]' in example("pyproject.toml")


@pytest.mark.parametrize(
    ("old", "new"), [("x 5x4 -> y 10x4", "x 5x4 -> y 9x4"), ("rows * 2", "rows * 3"), ("    Sizes:", "    Shapes:")]
)
def test_shapes_of_an_operator_are_tried(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "acme.py").write_text(example("acme.py").replace(old, new, 1), encoding="utf-8")
    assert [each.what for each in tried(tmp_path / "acme.py").trials if not each.passed] == ["shapes"]
