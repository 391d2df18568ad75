"""Rules of rewriting of a configuration: built, proven, kept, built again by verify; refused where they are wrong."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx")
RULE = """
[[rewrite-rules]]
name = "acme-drop-negations"
pattern = "f (x) => (y) { t = Neg (x) y = Neg (t) }"
replacement = "f (x) => (y) { y = Identity (x) }"
ranks = [2]
"""
CONFIG = """
targets = ["rtx"]
rewrite-rules = ["rules.toml"]
[[models]]
path = "m.onnx"
dims = { n = "1:2:4" }
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = "g (float[n, 4] x) => (float[n, 4] y) { a = Neg (x) b = Neg (a) y = Relu (b) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), tmp_path / "m.onnx")
    (tmp_path / "rules.toml").write_text(RULE)
    (tmp_path / "trtconv.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_rule_is_part_of_what_the_engine_is(call, project: Path) -> None:
    built = json.loads(call("build", "m.onnx", "-q", "--format", "json").out)
    assert [edit["pass"] for edit in built["edits"]] == ["acme-drop-negations"]
    assert built["proof"]["agrees"] and [rule["name"] for rule in built["plan"]["rewrite_rules"]] == [
        "acme-drop-negations"
    ]
    assert json.loads(call("build", "m.onnx", "-q", "--format", "json").out)["up_to_date"]
    (project / "trtconv.toml").unlink()
    verified = json.loads(call("verify", "m.onnx", "-q", "--format", "json").out)
    assert verified["exit_code"] == 0 and verified["proof"]["agrees"]
    assert not json.loads(call("build", "m.onnx", "--dim", "n=1:2:4", "-q", "--format", "json").out)["up_to_date"]


@pytest.mark.parametrize(
    "command",
    [
        ["build", "m.onnx"],
        ["check", "m.onnx"],
        ["check"],
        ["rewrite", "m.onnx", "-o", "o.onnx", "--rewrite-rules", "rules.toml"],
    ],
)
def test_a_wrong_rule_makes_nothing(call, project: Path, command: list[str]) -> None:
    (project / "rules.toml").write_text(RULE.replace("Identity", "Abs"))
    ended = call(*command, "-q")
    assert ended.code == 2
    assert "acme-drop-negations" in ended.out + ended.err and "y should be" in ended.out + ended.err
    assert not list(project.glob("*.engine")) and not (project / "o.onnx").exists()


@pytest.mark.parametrize(
    "text", ["", "[[models]]\npath = 'm.onnx'", RULE + RULE, RULE + "rank = [1]", "rewrite-rules = ['rules.toml']"]
)
def test_what_is_no_file_of_rules(call, project: Path, text: str) -> None:
    (project / "rules.toml").write_text(text)
    ended = call("check", "m.onnx", "-q")
    assert ended.code == 2 and "rules.toml" in ended.err + ended.out


@pytest.mark.parametrize("name", ["../rules.toml", "link.toml", "/etc/hosts"])
def test_a_configuration_reads_no_rules_outside_its_folder(call, project: Path, name: str) -> None:
    outside = project.parent / "rules.toml"
    outside.write_text(RULE)
    (project / "link.toml").symlink_to(outside)
    config = project / "trtconv.toml"
    config.write_text(config.read_text().replace("rules.toml", name))
    ended = call("check", "m.onnx", "-q")
    assert ended.code == 2 and "outside the folder of the configuration" in ended.err


def test_rewrite_takes_them_by_name(call, project: Path) -> None:
    ended = call(
        "rewrite", "m.onnx", "-o", "o.onnx", "--rewrite-rules", "rules.toml", "--only", "acme-drop-negations", "-q"
    )
    assert ended.code == 0, ended.err
    assert [node.op_type for node in onnx.load("o.onnx").graph.node] == ["Identity", "Relu"]
