"""Completion in real shells, behind a terminal: what a stranger called a node, a dimension or a file never runs."""

from __future__ import annotations

import os
import pty
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import onnx
import pytest
from onnx import helper

from trtconv.cli.complete import values
from trtconv.cli.process.boundary import main

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX terminals")

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(trtconv completion bash)"; bind "set bell-style none"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit; compinit -u -D; eval "$(trtconv completion zsh)"; unsetopt beep menu_complete auto_menu',
    ),
    "fish": (["fish", "--no-config", "-i", "--private"], "trtconv completion fish | source"),
}
HOSTILE = (
    "$(touch PWNED)",
    "`touch PWNED`",
    ";touch PWNED;",
    "x&touch PWNED&",
    "\\x\ntouch PWNED\n",
    "'\";touch PWNED",
    "\x1b[31m",
)
"""What stands behind the beginning of a name. Each is typed so far as to be the only one meant."""
RECORD = """#!/bin/sh
if [ -n "$_TRTCONV_COMPLETE" ] || [ "$1" = completion ]; then exec {trtconv} "$@"; fi
printf '%s\\0' "$@" >> ../calls
printf '\\n' >> ../calls
"""


class Terminal:
    """A shell behind a pseudo-terminal, in which `trtconv` writes down how it was called.

    Args:
        shell: One of `SHELLS`.
        folder: Its working directory.
    """

    def __init__(self, shell: str, folder: Path) -> None:
        self._count = 0
        self._calls = folder.parent / "calls"
        command, setup = SHELLS[shell]
        home = folder.parent / "home"
        home.mkdir()
        (home / "trtconv").write_text(RECORD.format(trtconv=Path(sys.executable).parent / "trtconv"))
        (home / "trtconv").chmod(0o755)
        pid, self._terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            path = f"{home}:/usr/bin:/bin"
            environment = {"PATH": path, "TERM": "dumb", "HOME": str(home), "LC_ALL": "C.UTF-8"}
            os.execvpe(command[0], command, environment)
        self._pid = pid
        self.enter(setup)

    def enter(self, line: str) -> str:
        """Types a line, and waits until the shell has done it; returns what it wrote meanwhile."""
        self._count += 1
        # The shell is not to find the end in what it echoes of the question.
        os.write(self._terminal, f"{line}\necho do''ne{self._count}.\n".encode())
        said, until = "", time.monotonic() + 60
        while f"done{self._count}." not in said:
            assert time.monotonic() < until, said
            if select.select([self._terminal], [], [], 0.2)[0]:
                said += os.read(self._terminal, 65536).decode(errors="replace")
        return said

    def calls(self) -> list[list[str]]:
        """Returns the arguments of every call of `trtconv` so far."""
        if not self._calls.exists():
            return []
        return [line.split("\0") for line in self._calls.read_text().split("\0\n")[:-1]]

    def close(self) -> None:
        os.close(self._terminal)
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)


@pytest.fixture(params=["bash", "zsh", "fish"])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Terminal]]:
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param}")
    started: list[Terminal] = []

    def start() -> Terminal:
        started.append(Terminal(request.param, tmp_path / "folder"))
        return started[-1]

    (tmp_path / "folder").mkdir()
    yield start
    for each in started:
        each.close()
    assert not list(tmp_path.rglob("*PWNED"))


def _model(path: Path, dims: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
    """Writes a model with an input a dimension, and a deconvolution a node."""
    dims, nodes = list(dims), list(nodes)
    made = [helper.make_node("ConvTranspose", ["x", "w"], [f"y{i}"], name=name) for i, name in enumerate(nodes)]
    made += [helper.make_node("Identity", [f"i{i}"], [f"o{i}"]) for i in range(len(dims))]
    inputs = [helper.make_tensor_value_info("x", 1, [1, 1, 8, 8])]
    inputs += [helper.make_tensor_value_info(f"i{i}", 1, [dim]) for i, dim in enumerate(dims)]
    outputs = [helper.make_tensor_value_info(name, 1, None) for node in made for name in node.output]
    weight = helper.make_tensor("w", onnx.TensorProto.FLOAT, [1, 1, 1, 1], [1.0])
    graph = helper.make_graph(made, "g", inputs, outputs, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def test_names_of_a_model_are_words_or_are_left_out(terminal: Callable[[], Terminal], tmp_path: Path) -> None:
    names = [f"k{i}{rest}" for i, rest in enumerate(HOSTILE)]
    _model(tmp_path / "folder" / "m.onnx", names, ["up/plain_name", *names])
    shell = terminal()
    said = shell.enter("trtconv explain m.onnx up\t")
    assert shell.calls() == [["explain", "m.onnx", "up/plain_name"]], said
    for number in range(len(names)):
        said = shell.enter(f"trtconv explain m.onnx k{number}\t")
        assert "\x1b[31m" not in said
    said = shell.enter("trtconv check m.onnx --dim k0\t")
    assert shell.calls()[1:] == [
        *(["explain", "m.onnx", f"k{number}"] for number in range(len(names))),
        ["check", "m.onnx", "--dim", "k0"],
    ], said


def test_names_of_files_stay_one_word(terminal: Callable[[], Terminal], tmp_path: Path) -> None:
    names = [f"f{i}{rest}.onnx".replace("/", "") for i, rest in enumerate(HOSTILE)]
    for name in names:
        (tmp_path / "folder" / name).touch()
    shell = terminal()
    for number in range(len(names)):
        shell.enter(f"trtconv check f{number}\t")
    calls = shell.calls()
    assert len(calls) == len(names)
    for (command, word), name in zip(calls, names, strict=True):
        # fish ends a name at its line break.
        assert command == "check"
        assert word in (name, name.partition("\n")[0])


READ_BY_SHELLS = (
    *(f"a{sign}b" for sign in " '\"$`;&|<>*?()[]{}#!\\%^,~\n\r\t\0\x1b\x85\u00a0\u2028\u202e\u2066"),
    *("~/x", "=ls", "-o", "--force", "#x", "%x", "^x", "@x"),
)


@pytest.mark.parametrize("name", READ_BY_SHELLS)
def test_what_a_shell_would_read_is_not_offered(tmp_path: Path, name: str) -> None:
    _model(tmp_path / "m.onnx", [name, "size"], [name, "up/1.x"])
    context = click.Context(click.Command("explain"))
    context.params["model"] = str(tmp_path / "m.onnx")
    assert [each.value for each in values(context, "node", "")] == ["up/1.x"]
    assert [each.value for each in values(context, "dim", "")] == ["size="]


def test_a_file_whose_name_is_an_option_is_not_offered(terminal: Callable[[], Terminal], tmp_path: Path) -> None:
    (tmp_path / "folder" / "--extend=x.onnx").touch()
    shell = terminal()
    said = shell.enter("trtconv check \t")
    assert shell.calls() in ([["check"]], [["check", "./--extend=x.onnx"]]), said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"COMP_WORDS": "trtconv check"},
        {"COMP_WORDS": "trtconv check m", "COMP_CWORD": "x"},
        {"COMP_WORDS": "trtconv check m", "COMP_CWORD": ""},
        {"COMP_WORDS": "trtconv check m", "COMP_CWORD": "9" * 5000},
        {"COMP_WORDS": "trtconv check m", "COMP_CWORD": "-7"},
        {"COMP_WORDS": "trtconv check m", "COMP_CWORD": " "},
        {"COMP_WORDS": "trtconv check '", "COMP_CWORD": "2"},
        {"COMP_WORDS": "trtconv check \udcff", "COMP_CWORD": "2"},
        {"COMP_WORDS": "", "COMP_CWORD": "0"},
    ],
)
def test_variables_of_completion_that_make_no_sense_are_an_error(
    shell: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TRTCONV_COMPLETE", f"{shell}_complete")
    for name in ("COMP_WORDS", "COMP_CWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code = main([])
    assert code in (0, 2)
    assert ("COMP_WORDS and COMP_CWORD" in capsys.readouterr().err) == (code == 2)
