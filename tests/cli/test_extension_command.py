"""`trtconv extension`, and engines that passes of a user's own helped to make: named by hash, proven, verified."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from support.paths import ROOT

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx")
ACME = (ROOT / "tests" / "data" / "extension.py").read_text(encoding="utf-8")
MODEL = (
    '<ir_version: 8, opset_import: ["": 17]> g (float[2, 2] x) => (float[2, 3] y) '
    "<float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] s = {2, 3, 4}> { t = MatMul (x, w)  u = Mul (t, s)  y = Tanh (u) }"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    (tmp_path / "acme.py").write_text(ACME)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_test_says_what_is_wrong(call, project: Path) -> None:
    assert call("extension", "test", "acme.py").code == 0
    (project / "acme.py").write_text(ACME.replace("w * s", "w + s"))
    ended = call("extension", "test", "acme.py", "--format", "json")
    told = json.loads(ended.out)
    assert (ended.code, told["exit_code"], told["owner"]) == (1, 1, "ACME")
    assert [each["what"] for each in told["trials"] if not each["passed"]] == ["equality"]


@pytest.mark.parametrize("words", [["test"], ["list", "acme.py"], ["test", "nothing.py"], ["try", "acme.py"]])
def test_bad_calls(call, project: Path, words: list[str]) -> None:
    assert call("extension", *words).code == 2


def test_an_extension_is_part_of_what_the_engine_is(call, project: Path) -> None:
    words = ["build", "m.onnx", "--target", "rtx", "--extend", "acme.py", "-q", "--format", "json"]
    built = json.loads(call(*words).out)
    assert built["proof"]["agrees"] and [edit["pass"] for edit in built["edits"]] == ["acme-fold-scale"]
    assert [each["file"] for each in built["plan"]["extensions"]] == ["acme.py"]
    assert [each["code"] for each in built["findings"]] == ["ACME101"]
    assert json.loads(call(*words).out)["up_to_date"]
    without = call("verify", "m.onnx", "-q")
    assert without.code == 2 and "--extend acme.py" in without.err
    assert call("verify", "m.onnx", "--extend", "acme.py", "-q").code == 0
    (project / "acme.py").write_text(f"{ACME}\n# Another file is another engine.\n")
    assert call("verify", "m.onnx", "--extend", "acme.py", "-q").code == 2
    assert not json.loads(call(*words).out)["up_to_date"]


SCALED = ("w * s", "w * s * w.dtype.type(1.001)")
IN_PLACE = (
    "x, y = product.inputs[0], node.outputs[0]",
    "next(t for t in field.scope.graph.initializer if t.name == product.inputs[1].name).float_data[0] *= 1.001\n"
    "        return None",
)


@pytest.mark.parametrize("change", [SCALED, IN_PLACE], ids=["a weight of its own", "a weight of the file, silently"])
def test_a_pass_that_changes_a_weight_leaves_no_engine(call, project: Path, change: tuple[str, str]) -> None:
    assert change[0] in ACME
    (project / "acme.py").write_text(ACME.replace(*change))
    ended = call("build", "m.onnx", "--target", "rtx", "--extend", "acme.py", "-q")
    assert ended.code in (1, 2), ended
    assert "TC402" in ended.out or "wrote into weight" in ended.err
    assert not list(project.glob("*.engine*"))


def test_none_leaves_without_a_proof(call, project: Path) -> None:
    ended = call("build", "m.onnx", "--target", "rtx", "--extend", "acme.py", "--prove", "none", "-q")
    assert ended.code == 2 and "--extend" in ended.err


def test_findings_of_an_extension_are_selected_by_their_codes(call, project: Path) -> None:
    words = ["check", "m.onnx", "--target", "rtx", "-q", "--format", "json"]
    assert json.loads(call(*words, "--extend", "acme.py", "--ignore", "ACME101").out)["findings"] == []
    assert call(*words, "--extend", "acme.py", "--select", "ACME101", "--fail-on", "warning").code == 1
    assert call(*words, "--select", "ACME101").code == 2
    for form in ("sarif", "junit", "github"):
        ended = call("check", "m.onnx", "--target", "rtx", "-q", "--format", form, "--extend", "acme.py")
        assert ended.code == 0 and "ACME101" in ended.out
