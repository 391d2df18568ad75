"""What is made to be pasted: hints for a shell, and the configuration of init, whatever names a stranger chose."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper

from trtconv.cli.formats.init import Found, find_models, toml
from trtconv.core import config
from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputSpec
from trtconv.core.errors import InputError
from trtconv.core.text import toml_string

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = (
    *(
        "$(touch PWNED)",
        "`touch PWNED`",
        "a;touch PWNED;",
        "a'b",
        'a"b',
        "a b",
        "-o",
        "a\\b",
        "a#b",
        "a]b",
        "a.b",
        "a=b",
    ),
    *(
        "\U0001f600",
        "a\x7fb",
        "a\x85b",
        "a\u2028b",
        "a\u202eb",
        "\u00e9",
        "a\tb",
        'x"\n[farm]\naddress = "tcp:h:1"\n#',
    ),
)


def _model(path: Path, dim: str) -> None:
    value = [helper.make_tensor_value_info(name, 1, [dim]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.mark.parametrize("name", NAMES)
def test_strings_of_toml_hold_any_text(name: str) -> None:
    assert tomllib.loads(f"{toml_string(name)} = {toml_string(name)}") == {name: name}


@pytest.mark.skipif(sys.platform == "win32", reason="names of POSIX")
@pytest.mark.parametrize("name", NAMES)
def test_init_writes_names_as_data(tmp_path: Path, name: str) -> None:
    _model(tmp_path / f"{name}.onnx", name)
    (tmp_path / config.FILE).write_text(toml(find_models(tmp_path)), encoding="utf-8")
    found = config.load(tmp_path / config.FILE)
    (entry,) = found.entries
    assert (entry.check.model, found.address) == (tmp_path / f"{name}.onnx", None)
    assert list(entry.check.dims) == [name]


@pytest.mark.skipif(sys.platform == "win32", reason="names of POSIX")
def test_init_leaves_out_what_no_toml_can_name(tmp_path: Path) -> None:
    _model(tmp_path / os.fsdecode(b"m\xff.onnx"), "n")
    _model(tmp_path / "n.onnx", "n")
    broken, plain = find_models(tmp_path)
    assert (broken.fault != "", plain.fault) == (True, "")
    text = toml([broken, plain])
    assert len(tomllib.loads(text)["models"]) == 1


def test_a_fault_stays_in_its_comment() -> None:
    text = toml([Found("a\n[farm]\nb", fault='x\n[farm]\naddress = "y"'), Found("m.onnx")])
    assert tomllib.loads(text) == {"models": [{"path": "m.onnx"}]}


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells")
@pytest.mark.parametrize("name", [name for name in NAMES if name.isprintable()])
def test_flags_that_are_to_be_added_are_words(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        make_profile((InputSpec("x", "float", (name,)),), {})
    flags = caught.value.hint.removeprefix("Add: ")
    printed = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {flags}"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert printed == f"--dim\n{name}=MIN:OPT:MAX\n"
    assert shlex.split(flags) == ["--dim", f"{name}=MIN:OPT:MAX"]
    assert not list(tmp_path.iterdir())
