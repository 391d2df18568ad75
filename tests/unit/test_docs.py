"""Commands in README and docs/ are real: they run on models/, and print what is shown; the Python example works."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from support.paths import DATA, MODELS, ROOT
from trtconv.cli.group import cli
from trtconv.cli.process.other_flags import FLAGS
from trtconv.core.budget import Budget
from trtconv.rules import RULES

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = sorted((ROOT / "docs").glob("*.md"))
QUESTIONS = sorted((ROOT / "docs" / "questions").glob("*.md"))
HELP = sorted((ROOT / "docs" / "cli").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS, *QUESTIONS, *HELP]


MOST_LINES_OF_README = 200


def fenced(language: str, text: str = README) -> Iterator[str]:
    return iter(re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def shown_commands() -> dict[str, str]:
    """Returns the command of every console block, of all pages, to the output that is shown."""
    found = {}
    for page in PAGES:
        for block in fenced("console", page.read_text(encoding="utf-8")):
            first, _, rest = joined(block).partition("\n")
            found[first.removeprefix("$ ")] = rest
    return found


def joined(block: str) -> str:
    """Joins lines that a backslash continues."""
    return re.sub(r" *\\\n *", " ", block)


def commands() -> list[str]:
    """Returns every trtconv command of the README: in scripts, behind a prompt, in tables and in running text."""
    lines = []
    for language, prompt in (("sh", ""), ("console", "$ ")):
        for block in fenced(language):
            found = joined(block).splitlines()
            lines += [line.removeprefix(prompt) for line in found if line.startswith(f"{prompt}trtconv ")]
    inline = [
        code for code in re.findall(r"`(trtconv [^`]+)`", README) if not re.search(r"\.\.\.| [A-Z]{4}|^\S+ \w+$", code)
    ]
    inline += [f"trtconv {name}" for name in ("passes", "doctor")]
    return list(dict.fromkeys(re.sub(r"\s+#.*|\s*>.*", "", line) for line in (*lines, *inline)))


def steady(text: str) -> str:
    """Takes out what differs between machines and runs: times, versions, paths."""
    text = re.sub(r"^seconds: .*$", "seconds", text, flags=re.MULTILINE)
    text = re.sub(r" in \d+\.\d s", "", text)
    text = re.sub(r"(?i)rtx[- ][\d.]+\d", "rtx", text)
    text = re.sub(r"(without a GPU|on NVIDIA.*)$", "GPU", text, flags=re.MULTILINE)
    return re.sub(r"relative error \S+", "relative error", re.sub(r"\([\d.]+ .?B\)", "(size)", text)).strip()


def pieces(shown: str) -> list[str]:
    """Returns the parts of an output that the README shows; lines of three dots stand for what it leaves out."""
    return [part.strip("\n") for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]


def assert_shows(printed: str, shown: str) -> None:
    """Holds an output to what is shown of it: whole, or the parts in their order, first and last at the ends."""
    lines, parts = steady(printed), [steady(part) for part in pieces(shown)]
    assert lines.startswith(parts[0])
    assert lines.endswith(parts[-1])
    place = 0
    for part in parts:
        found = lines.find(part, place)
        assert found >= 0, part
        place = found + len(part)
    if len(parts) == 1:
        assert lines == parts[0]


@pytest.fixture
def in_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # No link: export names the folder that a model's source is in.
    shutil.copytree(MODELS, tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "out").mkdir()
    own = onnx.load(MODELS / "gan_generator.onnx")
    own.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(own, tmp_path / "model.onnx")
    shutil.copy(DATA / "traffic.csv", tmp_path)
    (tmp_path / "samples").mkdir()
    for seed in range(3):
        image = np.random.default_rng(seed).standard_normal((1, 3, 64, 64), dtype=np.float32)
        np.savez(tmp_path / "samples" / f"{seed}.npz", x=image)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_commands() -> None:
    assert len(commands()) >= 8


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES_OF_README


@pytest.mark.parametrize("command", list(dict.fromkeys((*commands(), *shown_commands()))))
def test_command_runs_and_prints_what_is_shown(command: str, in_copy: Path) -> None:
    arguments = shlex.split(command)[1:]
    if arguments[0] == "export":
        pytest.importorskip("torch")
        pytest.importorskip("onnxscript")
    if "--target" not in arguments and arguments[0] in ("build", "check", "rewrite", "explain", "export"):
        arguments += ["--target", "rtx"]  # the README's machine has no other
    shown = shown_commands().get(command, "")
    if (
        arguments[0] in ("verify", "bench", "inspect", "run", "report", "diff", "triton", "warm")
        and "out/unet.engine" in arguments
    ):
        build = next(each for each in commands() if each.endswith("-o out/unet.engine"))
        assert CliRunner().invoke(cli, [*shlex.split(build)[1:], "--target", "rtx"]).exit_code == 0
    result = CliRunner().invoke(cli, arguments)
    if shown.startswith("error:"):
        assert shown.splitlines()[0].removeprefix("error: ") in str(result.exception)
        return
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    if shown and arguments[0] != "doctor":
        assert_shows(result.stdout, shown)


def test_python_examples_run(in_copy: Path) -> None:
    """One after another, as a reader would; the last needs a GPU."""
    *examples, on_gpu = fenced("python", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for example in examples:
            exec(compile(example, "python.md", "exec"), names)
    assert json.loads((in_copy / "out" / "api.engine.json").read_bytes())["exit_code"] == 0
    assert re.search(r"^build: \d+\.\d s$", printed.getvalue(), re.MULTILINE)
    timed = on_gpu.index("timed = ")
    exec(compile(on_gpu[:timed], "python.md", "exec"), names)  # without a GPU it compares the rewritten model


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_only_what_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (path.parent / target).exists(), target
    assert set(re.findall(r"\bTC\d{3}\b", text)) <= {rule.code for rule in RULES}
    for name in re.findall(r"`trtconv ([a-z]\w*)", text):
        assert cli.get_command(click.Context(cli), name) is not None, name


def _calls(text: str) -> Iterator[list[str]]:
    """Yields every call of trtconv in the scripts and consoles of a page, up to what a shell takes for itself."""
    for block in re.findall(r"^ *```(?:sh|console|text|yaml)?\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^\s*(?:\$ )?(trtconv [a-z].*)$", joined(block), re.MULTILINE):
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
            lexer.whitespace_split = True
            words = list(itertools.takewhile(lambda word: not set(word) <= set("|&;<>"), lexer))
            if "..." not in words:
                yield words


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_of_a_page_is_taken_as_it_is_written(path: Path) -> None:
    group = click.Context(cli, info_name="trtconv")
    for _, name, *arguments in _calls(path.read_text(encoding="utf-8")):
        command = cli.get_command(group, name)
        assert command is not None, name
        with contextlib.suppress(click.exceptions.Exit):
            command.make_context(name, arguments, parent=group)


def test_files_have_what_extending_them_names() -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").replace("\n", " ")
    found = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) (?:of |in |\()`?([\w/]+\.py)", text)
    assert len(found) > 9
    for names, place in found:
        (file,) = (path for path in (ROOT / place, ROOT / "trtconv" / place) if path.is_file())
        words = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", names)}
        gone = words - set(re.findall(r"\w+", file.read_text(encoding="utf-8")))
        assert not gone, f"docs/extending.md names what {place} has not: {sorted(gone)}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(([\w./-]+)\)", index))
    assert {page.relative_to(ROOT / "docs").as_posix() for page in (*DOCS, *QUESTIONS)} - {"README.md"} <= named


def test_flags_of_other_tools_are_in_their_table() -> None:
    told = (ROOT / "docs" / "trtexec.md").read_text(encoding="utf-8")
    assert [flag for flag in FLAGS if f"`{flag}`" not in told] == []
    listed = json.loads((DATA / "trtexec-flags.json").read_text(encoding="utf-8"))
    every = {flag for flags in listed.values() for flag in flags}
    assert [flag for flag in sorted(every) if f"`{flag}` (" not in told] == []
    # What is no flag of ours is answered where somebody types it.
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    ours = {name for each in commands if each is not None for param in each.get_params(context) for name in param.opts}
    assert sorted(every - FLAGS.keys() - ours) == []


def test_every_command_is_in_the_readme() -> None:
    told = {shlex.split(command)[1] for command in commands()}
    # They take several machines.
    told |= set(re.findall(r"^trtconv ([a-z-]+)", (ROOT / "docs" / "farm.md").read_text(), re.MULTILINE))
    # They take a GPU, and another environment.
    told |= set(re.findall(r"`trtconv (refit|upgrade|plan-profiles) ", README))
    assert set(cli.list_commands(click.Context(cli))) <= told


def test_generated_pages_are_up_to_date() -> None:
    # In a process of its own: commands that ran here before may have changed how click writes help.
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "make_cli.py"), "--check"], check=False)
    assert done.returncode == 0, "run `make docs`"


@pytest.mark.parametrize("path", sorted((ROOT / "docker").glob("*.Dockerfile")), ids=lambda path: path.name)
def test_dockerfiles_install_extras_that_there_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    extras = re.findall(r"\.whl\)\[([\w,]+)\]", text)
    declared = re.findall(r"^(\w[\w-]*) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert extras
    assert {name for each in extras for name in each.split(",")} <= set(declared)
    assert f"docker build -f docker/{path.name} " in text


@pytest.mark.parametrize(
    "name",
    [
        "demo",
        "test",
        "test-export",
        "check",
        "bench",
        "bench-gpu",
        "suite-gpu",
        "test-gpu",
        "docs",
        "wheel",
        "fuzz",
        "venv",
        "clean",
    ],
)
def test_makefile_has_the_targets(name: str) -> None:
    assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_nothing_names_a_package_that_is_not_published() -> None:
    texts = [*PAGES, *(ROOT / "trtconv").rglob("*.py"), ROOT / "action.yml", ROOT / ".pre-commit-hooks.yaml"]
    naming = re.compile(r"pip install[^\n`#]*[ '\"]trtconv\b")
    assert [path for path in texts if naming.search(path.read_text(encoding="utf-8"))] == []


def test_promises_name_modules_and_tests_that_are_there() -> None:
    rows = re.findall(
        r"^\| .+ \| (`[^|]+`) \| (`tests/[^|]+`) \| (\d+) \|$",
        (ROOT / "docs" / "security.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    table = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## Promises")[2]
    assert len(rows) == sum(line.startswith("| ") for line in table.splitlines()) - 1
    for modules, tests, cases in rows:
        assert int(cases) > 0
        for name in re.findall("`([^`]+)`", modules):
            assert (ROOT / "trtconv" / name).is_file(), name
        for name in re.findall("`([^`]+)`", tests):
            file, _, function = name.partition("::")
            defined = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
            assert function in defined if function else defined, name


def test_every_limit_of_the_budget_is_told() -> None:
    told = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", (ROOT / "docs" / "security.md").read_text("utf-8"), re.MULTILINE)
    limits = {
        field.name: field.default for field in dataclasses.fields(Budget) if field.name not in ("follow_links", "flag")
    }
    assert {name: int(number.replace(",", "")) for name, number in told} == limits


def commands_about_files() -> dict[str, Path]:
    """Returns the commands in pages that name a file, as a reader would type them, with the page."""
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "cli")]
    texts = ((page, page.read_text(encoding="utf-8")) for page in pages)
    said = ((line, page) for page, text in texts for line in re.findall(r"trtconv [^`'\n]+", text) if "..." not in line)
    cut = ((re.split(r" (?:[|>#&]|2>)|\\$", line)[0].strip(), page) for line, page in said)
    return {line: page for line, page in cut if re.match(r"trtconv [a-z-]+ [\w/-]+\.\w+(?: |$)", line)}


def test_commands_in_pages_can_be_called_as_they_are_written() -> None:
    found = commands_about_files()
    assert len(found) > 50
    for line, page in found.items():
        name, command, rest = cli.resolve_command(click.Context(cli), shlex.split(line)[1:])
        assert command is not None
        try:
            command.make_context(name, list(rest)).close()
        except click.ClickException as error:
            raise AssertionError(f"{page.name}: {line}: {error.format_message()}") from error
