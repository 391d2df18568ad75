"""trtconv.toml: what it means, what is refused, and the schema for editors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.paths import ROOT
from trtconv.core import config, toml
from trtconv.core.budget import BudgetExceeded
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.dims import Range
from trtconv.core.errors import InputError
from trtconv.core.findings import Severity
from trtconv.core.options import flags, of_settings, to_settings
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target

HUGE = "0x" + "f" * 5000
FULL = """
targets = ["rtx"]
fail-on = "warning"

[[models]]
path = "nets/u net.onnx"
targets = ["rtx", "tensorrt-8.6"]
dims = { batch = 1, height = "64:128:256" }
profiles = [{ width = "64:128" }, { width = "128:256" }]
precision = "as-is"
rewrite = false
requantize = true
thorough = true
select = ["TC1", "TC3"]
ignore = [{ code = "TC301", reason = "measured" }]

[[models]]
path = "gan.onnx"
engine = "out/g.engine"
fail-on = "never"
"""


def write(folder: Path, text: str, name: str = "trtconv.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key(tmp_path: Path) -> None:
    first, second, third = config.load(write(tmp_path, FULL)).entries
    assert first.check.model == first.build.model == tmp_path / "nets" / "u net.onnx"
    assert (first.check.target, second.check.target) == (Target("rtx"), Target("tensorrt", (8, 6)))
    assert first.check.dims == {"batch": Range(1, 1, 1), "height": Range(64, 128, 256)}
    assert first.build.profiles == ({"width": Range(64, 128, 128)}, {"width": Range(128, 256, 256)})
    assert (first.check.rewrite, first.check.requantize, first.check.thorough) == (False, True, True)
    assert first.check.fail_on is Severity.WARNING
    assert first.check.selection.ignore == {"TC301": "measured"}
    assert first.build.selection == first.check.selection
    assert first.build.engine_path == tmp_path / "nets" / "u net.rtx.engine"
    assert second.build.engine_path == tmp_path / "nets" / "u net.tensorrt-8.6.engine"
    assert third.build.engine_path == tmp_path / "out" / "g.engine"
    assert third.check.fail_on is None


def test_pyproject(tmp_path: Path) -> None:
    body = FULL.replace("[[models]]", "[[tool.trtconv.models]]")
    path = write(tmp_path, f"[tool.trtconv]\n{body}", "pyproject.toml")
    assert len(config.load(path).entries) == 3
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert config.find(tmp_path / "a" / "b") == path
    nearer = write(tmp_path / "a", FULL)
    assert config.find(tmp_path / "a" / "b") == nearer


def test_pyproject_without_a_table_is_passed_over(tmp_path: Path) -> None:
    outer = write(tmp_path, FULL)
    (tmp_path / "a").mkdir()
    write(tmp_path / "a", "[project]\nname = 'x'", "pyproject.toml")
    assert config.find(tmp_path / "a") == outer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "models is missing"),
        ("models = []", "models is empty"),
        ("[[models]]", r"models\[0\].path is missing"),
        ("[[models]]\npath = 3", r"models\[0\].path must be a string"),
        ("tf32 = false\n[[models]]\npath = 'a'", r"no key tf32; it belongs in options: options = \{ tf32 = ... \}"),
        ("[[models]]\npath = 'a'\ndim = {}", r"no key models\[0\].dim; did you mean dims"),
        ("[[models]]\npath = 'a'\ndims = { h = '3:x' }", r"models\[0\].dims.h: '3:x' is not MIN"),
        ("[[models]]\npath = 'a'\ndims = { h = true }", r"models\[0\].dims.h must be"),
        ("[[models]]\npath = 'a'\ndims = { h = '9:3' }", "bounds must be ordered"),
        ("[[models]]\npath = 'a'\nfail-on = 'always'", "not one of error, warning, never"),
        ("[[models]]\npath = 'a'\ntargets = ['trt']", r"targets\[0\]: --target 'trt' is unknown"),
        ("[[models]]\npath = 'a'\ntargets = 'rtx'", "targets must be an array"),
        ("[[models]]\npath = 'a'\nignore = [{ code = 'TC301' }]", "reason is missing"),
        ("[[models]]\npath = 'a'\nignore = [{ code = 'what', reason = 'x' }]", "not a rule code"),
        ("[[models]]\npath = 'a'\n[[models]]\npath = 'a'", "is the engine of two entries"),
        ("[[models]]\npath = 'a'\nprecision = 'auto'\ndata = 'samples.py:make'", "is code, and no configuration makes"),
        ("[[models]]\npath = 'a'\nprove-time = inf", r"prove-time is inf, and 600 is the most"),
        ("[[models]]\npath = 'a'\nprove-time = 601", r"prove-time is 601, and 600 is the most"),
        ("[[models]]\npath = 'a'\nprove-time = nan", r"prove-time is nan"),
        ("models = [", "is not TOML"),
    ],
)
def test_refusals(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        config.load(write(tmp_path, text))


def test_targets_to_check_against_are_not_built(tmp_path: Path) -> None:
    text = "check-targets = ['tensorrt-8.6']\n[[models]]\npath = 'a.onnx'\ntargets = ['rtx']"
    found = config.load(write(tmp_path, text))
    assert [entry.check.target for entry in found.entries] == [Target("rtx"), Target("tensorrt", (8, 6))]
    assert [build.engine_path for build in found.builds] == [tmp_path / "a.engine"]
    assert found.of(tmp_path / "b" / ".." / "a.onnx") == found.entries
    assert found.of(tmp_path / "b.onnx") == ()


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff[[models]]\npath = 'a'")
    assert len(config.load(path).entries) == 1


def test_single_brackets_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        config.load(write(tmp_path, "[models]\npath = 'a'\n[models]\npath = 'b'"))
    assert "double brackets" in caught.value.hint


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        config.load(tmp_path / "no.toml")


def test_schema_for_editors_is_up_to_date_and_agrees(tmp_path: Path) -> None:
    path = ROOT / "docs" / "trtconv.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    assert schema == config.SCHEMA, "run `make docs`"
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(toml.read_toml(write(tmp_path, FULL)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"models": [{"path": "a", "dim": {}}]}, schema)


def test_settings_are_written_as_they_are_read(tmp_path: Path) -> None:
    options = 'options = { workspace = "2G", max-aux-streams = 0, compute-capabilities = ["8.9"], tf32 = false }'
    values = 'values = { size = "64x64:128x128:256x256" }'
    text = FULL.replace('precision = "as-is"', f'precision = "fp16"\nsplit = 3\nround = true\n{options}\n{values}')
    for build in config.load(write(tmp_path, text)).builds:
        table = json.loads(json.dumps(to_settings(build, BuildRequest)))
        assert config.settings_fault(table) == ""
        assert BuildRequest(build.model, build.engine, **of_settings(BuildRequest, table)) == build


def test_a_farm(tmp_path: Path) -> None:
    farm = '[farm]\naddress = "tls://farm:8786"\nstore = "engines"\n'
    found = config.load(write(tmp_path, FULL + farm))
    assert (found.address, found.store) == ("tls://farm:8786", tmp_path / "engines")
    with pytest.raises(InputError, match=r"no key farm\.keys"):
        config.load(write(tmp_path, FULL + farm + 'keys = "theirs"\n'))
    gpus = config.load(
        write(tmp_path, 'targets = ["rtx@L4", "tensorrt-10@cc8.9"]\n[[models]]\npath = "a.onnx"\n')
    ).builds
    assert [build.engine_path.name for build in gpus] == ["a.rtx@l4.engine", "a.tensorrt-10@cc8.9.engine"]


@pytest.mark.parametrize("text", ["tool = 5", 'tool = "trtconv"', "[[tool]]", "[tool]\nother = 1"])
def test_a_pyproject_of_another_form_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text(text)
    assert config.find(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        f'[[models]]\npath = "m.onnx"\ndims = {{ h = {HUGE} }}',
        f'split = {HUGE}\n[[models]]\npath = "m.onnx"',
        '[[models]]\npath = "m.onnx"\n' * 10_001,
        "targets = [" + '"rtx",' * 200 + "]\n" + '[[models]]\npath = "m.onnx"\n' * 100,
        "#" * (1 << 20) + "\n",
        "dims = {" + ",".join(f"d{i} = 1" for i in range(1000)) + "}\n" + '[[models]]\npath = "m.onnx"\n' * 300,
    ],
)
def test_what_would_take_all_time_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trtconv.toml"
    path.write_text(text)
    with pytest.raises(InputError):
        config.load(path)


@pytest.mark.parametrize("place", ["", '[[models]]\npath = "m.onnx"\n'])
def test_too_many_profiles_exceed_the_budget_before_any_is_looked_at(tmp_path: Path, place: str) -> None:
    path = tmp_path / "trtconv.toml"
    path.write_text(f"{place}profiles = [{'{n = 0},' * 257}]\n" + '[[models]]\npath = "n.onnx"\n')
    with pytest.raises(BudgetExceeded) as exceeded:
        config.load(path)
    assert exceeded.value.findings[0].code == "TC408"


@pytest.mark.parametrize("line", ["a" + ".a" * 2000 + " = 1", '"a"' + '."a"' * 2000 + " = 1", "[a" + ".a" * 2000 + "]"])
def test_a_key_of_many_parts_is_refused_and_a_value_with_many_points_is_not(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trtconv.toml"
    path.write_text(f"{line}\n")
    with pytest.raises(InputError, match="too many parts"):
        toml.read_toml(path)
    listed = "tensorrt-8.6", 'it\'s \\"1.2\\"'
    path.write_text("a = [" + ", ".join(f'"{text}"' for text in listed * 2000) + "]\nb = ['.\\']\n")
    assert len(toml.read_toml(path)["a"]) == 4000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('targets = ["rtx2"]', ("targets[0]", "'rtx2'", "Use auto, rtx, tensorrt or a version: tensorrt-8.6")),
        ('targets = ["trt10"]', ("targets[0]", "Did you mean tensorrt-10?")),
        ('dims = { height = "64;256;512" }', ("dims.height", "MIN:OPT:MAX, MIN:MAX or N", "Did you mean 64:256:512?")),
        ('profiles = [{ height = "64:x" }]', ("profiles[0].height", "Give integers, as in 64:256:512")),
        ('split = "0"', ("split is '0'", "or auto")),
        ('options = { compute-capabilities = ["75"] }', ("options.compute-capabilities[0]", "As 7.5")),
    ],
)
def test_a_text_that_cannot_be_read_is_answered_as_on_the_command_line(
    tmp_path: Path, text: str, said: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as refused:
        config.load(write(tmp_path, f'{text}\n[[models]]\npath = "net.onnx"\n'))
    assert [each for each in said if each not in refused.value.message] == []


def test_the_page_has_every_key_of_the_schema_and_no_other() -> None:
    rows = re.findall(
        r"^\| (`[^|]*`) \| (.*?) \|", (ROOT / "docs" / "config.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    told = {key: meaning for keys, meaning in rows for key in re.findall(r"`([^`]+)`", keys)}
    models: Any = config.SCHEMA["properties"]
    properties = models["models"]["items"]["properties"]
    assert told.keys() == properties.keys(), f"rows of docs/config.md: {sorted(told.keys() ^ properties.keys())}"
    untold = properties["options"]["properties"].keys() - set(re.findall(r"`([a-z0-9-]+)`", told["options"]))
    assert not untold, f"name in the row `options` of docs/config.md: {sorted(untold)}"


def test_the_page_of_building_has_every_builder_option() -> None:
    table = (ROOT / "docs" / "building.md").read_text(encoding="utf-8").partition("\n## Builder options\n")[2]
    cells = [row.split("|")[1] for row in table.partition("\n## ")[0].splitlines() if row.startswith("|")]
    options = {flag.option for flag in flags(BuilderOptions)}
    untold = options - set(re.findall(r"`(--[a-z0-9-]+)", " ".join(cells)))
    assert not untold, f"add a row to the table of builder options in docs/building.md: {sorted(untold)}"
