"""Results on a terminal: wrapped, in colour where that is wanted; elsewhere to the letter."""

from __future__ import annotations

import io

import pytest

from trtconv.cli.process.terminal import dressed

FINDING = "  error TC101 a-fault: something is wrong with a node, and it takes a long sentence to say what that is"
TABLE = "  x      1x3x64x64  1x3x256x256  4x3x512x512   1x3x64x64  1x3x256x256  4x3x512x512"
FLAGS = "    fix: The nearest sizes are 296 and 304: use --dim height=200:296:400 or --dim height=200:304:400"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def sixty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_prose_is_wrapped_and_what_is_copied_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = dressed(f"{FINDING}\n{TABLE}\n{FLAGS}", Terminal()).split("\n")
    assert lines[-2:] == [TABLE, FLAGS]
    assert len(lines) == 4
    assert all(len(line) <= 60 for line in lines[:2])
    assert lines[1].startswith("    ")
    assert " ".join(line.strip() for line in lines[:2]) == FINDING.strip()


@pytest.mark.parametrize(
    ("variables", "terminal", "colours"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colours(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], terminal: bool, colours: bool) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    shown = dressed("  error TC101 a-fault: wrong\nm.onnx: 1 error", Terminal() if terminal else io.StringIO())
    assert shown == (
        "  \x1b[31m\x1b[1merror\x1b[0m TC101 a-fault: wrong\nm.onnx: 1 error"
        if colours
        else "  error TC101 a-fault: wrong\nm.onnx: 1 error"
    )


def test_elsewhere_nothing_is_touched() -> None:
    assert dressed(FINDING, io.StringIO()) == FINDING


def test_the_message_of_a_failure_is_coloured_where_that_is_forced(call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("check", "none.onnx", "-q").err.startswith("error: ")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert call("check", "none.onnx", "-q").err.startswith("\x1b[31m\x1b[1merror:\x1b[0m ")


def test_options_are_grouped_where_there_are_many(call) -> None:
    page = call("build", "--help-all").out
    titles = ("\nSizes:\n", "\nTarget and precision:\n", "\nBuilder:\n", "\nOutput:\n", "\nOptions:\n")
    places = [page.index(title) for title in titles]
    assert places == sorted(places)
    assert page.index("\n  --dim") < page.index("\n  --target")
    assert "\nSizes:\n" not in call("sizes", "--help").out
