"""Passes, rules and operators of a user's own: what is loaded, what is refused, and what their test finds."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from support.paths import ROOT
from trtconv.core import foreign
from trtconv.core.agreement import AgreedCode, CodeFile
from trtconv.core.documents.extension import ExtensionReport
from trtconv.core.errors import InputError
from trtconv.core.foreign import ForeignCode
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.pipeline.extending.loading import Extension, load
from trtconv.pipeline.extending.testing import test_extension as tried
from trtconv.pipeline.rewriting import rewrite
from trtconv.plugins.registry import find
from trtconv.shapes.lattice.registry import OPERATORS

ACME = (ROOT / "tests" / "data" / "extension.py").read_text(encoding="utf-8")
RTX = Target("rtx", (1, 7))
MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 2] x) => (float[n, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] s = {2, 3, 4}>
{ t = MatMul (x, w)  y = Mul (t, s) }"""


def changed(*pairs: tuple[str, str]) -> str:
    text = ACME
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def loaded(folder: Path, text: str) -> Extension:
    path = folder / "acme.py"
    path.write_text(text, encoding="utf-8")
    return load(AgreedCode(path, hashlib.sha256(text.encode()).hexdigest()))


def report(folder: Path, text: str, name: str = "acme.py") -> ExtensionReport:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return tried(path)


def test_what_a_file_adds(tmp_path: Path) -> None:
    found = loaded(tmp_path, ACME)
    assert (found.owner, [each.name for each in found.passes], [each.code for each in found.rules]) == (
        "ACME",
        ["acme-fold-scale"],
        ["ACME101"],
    )


def test_its_own_test_passes(tmp_path: Path) -> None:
    found = report(tmp_path, ACME)
    assert found.exit_code == 0 and len(found.trials) == 6


SCALED = ("w * s", "w * s * w.dtype.type(1.001)")
IN_PLACE = (
    "x, y = product.inputs[0], node.outputs[0]",
    "next(t for t in field.scope.graph.initializer if t.name == product.inputs[1].name).float_data[0] *= 1.001\n"
    "        x, y = product.inputs[0], node.outputs[0]",
)
RENAMED = "node.name = field.model.fresh_name('again'); field.replace(node, [node]); return 'renamed'"
AGAIN = "{2, 6, 12, 8, 15, 24}, float[3] s = {1, 1, 1}> { t = MatMul (x, w)  y = Mul (t, s) }"
WRONG = {
    "equality": [SCALED],
    "equality of some shapes": [("s.shape != w.shape[1:]", "s.ndim > 9"), ("w * s", "w * s.ravel()[0]")],
    "idempotence": [("            return None\n        product", f"            {RENAMED}\n        product")],
    "contract: it raises": [("w * s", "w * undefined")],
    "contract: it writes into a weight": [IN_PLACE],
    "contract: an edit without a change": [("        field.replace(node, [made])\n", "")],
    "page: no After": [("    After:", "    Behind:")],
    "page: no sentence": [("scale behind it.", "scale behind it")],
    "page: a model that is none": [("t = MatMul (x, w)", "t = MatMul (x")],
    "page: it leaves its own model": [('ops = frozenset({"Mul"})', 'ops = frozenset({"Div"})')],
    "page: it rewrites what it made": [("{2, 6, 12, 8, 15, 24}> { y = MatMul (x, w) }", AGAIN)],
    "page: its models differ": [("{2, 6, 12, 8, 15, 24}", "{2, 6, 12, 8, 15, 25}")],
    "page: the rule finds nothing": [('ops = ("Tanh",)', 'ops = ("Abs",)')],
    "page: the rule finds something": [('ops = ("Tanh",)', 'ops = ("Tanh", "Relu")')],
}


@pytest.mark.parametrize("title", WRONG)
def test_what_is_wrong_is_found(tmp_path: Path, title: str) -> None:
    found = report(tmp_path, changed(*WRONG[title]))
    assert found.exit_code == 1
    failed = {each.what for each in found.trials if not each.passed}
    wanted = title.partition(":")[0].partition(" ")[0]
    # A pass that raises or differs does so for its own page first.
    assert failed & {wanted, "page"} and all(each.why for each in found.trials if not each.passed)


REFERENCE = '''
import trtconv

owner = "ACME"


@trtconv.reference("acme::DoubleRows")
def doubled(x):
    """Every row, and again.

    Model:
        <ir_version: 8, opset_import: ["": 17, "acme": 1]>
        g (float[n, 4] x) => (float[m, 4] y) { y = acme.DoubleRows (x) }
    Sizes:
        x 3x4 -> y 6x4
        x 5x4 -> y 10x4
    """
    import numpy as np

    return np.concatenate([x, x])
'''


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", ""),
        ("[x, x])", "[x, x, x])", "9x4"),
        ("[x, x])", "[x, x], -1)", "3x8"),
        ("np.concatenate", "np.concat_enate", "AttributeError"),
        ("Sizes:", "Size:", "Sizes"),
        ("acme.DoubleRows (x)", "Relu (x)", "no acme::DoubleRows"),
    ],
)
def test_references_are_run_at_the_sizes_of_their_pages(tmp_path: Path, old: str, new: str, said: str) -> None:
    found = report(tmp_path, REFERENCE.replace(old, new) if old else REFERENCE)
    (trial,) = found.trials
    assert (trial.of, trial.what, trial.passed) == ("reference acme::DoubleRows", "run", not said)
    assert said in trial.why


def test_references_of_an_extension_count_where_it_is_named(tmp_path: Path) -> None:
    code = loaded(tmp_path, REFERENCE).code
    assert find("acme", "DoubleRows") is None
    with foreign.using(ForeignCode(extensions=(code,))):
        found = find("acme", "DoubleRows")
        assert found is not None and found([np.ones((1, 4))], {})[0].shape == (2, 4)
    # One without references is none of them.
    plain = loaded(tmp_path, ACME).code
    with foreign.using(ForeignCode(extensions=(plain,))):
        assert find("acme", "DoubleRows") is None


def test_a_file_is_run_once_for_all_that_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = loaded(tmp_path, REFERENCE + '\nprint("it runs")\n').code
    with foreign.using(ForeignCode(extensions=(code,))):
        assert find("acme", "DoubleRows") is not None
    assert "".join(capsys.readouterr()).count("it runs") == 1


REFUSED = {
    "a code without its number": [('"ACME101"', '"ACME7"')],
    "no owner": [('owner = "ACME"', "")],
    "an owner that is trtconv": [('owner = "ACME"', 'owner = "TC1"')],
    "a pass of another name": [('"acme-fold-scale"', '"fold-scale"')],
    "a code of trtconv": [('"ACME101"', '"TC101"')],
    "a code without its owner": [('"ACME101"', '"X101"')],
    "a pass that asks to change numbers": [
        ('name = "acme-fold-scale"', 'name = "acme-fold-scale"\n    requantizes = True')
    ],
    "a pass that asks to free sizes": [
        ('name = "acme-fold-scale"', 'name = "acme-fold-scale"\n    frees_sizes = True')
    ],
    "a safety that is none": [('name = "acme-fold-scale"', 'name = "acme-fold-scale"\n    safety = "anything"')],
    "a fix of nothing": [('name = "acme-fold-scale"', 'name = "acme-fold-scale"\n    fixes = ("TC999",)')],
    "code that does not run": [("import trtconv", "import trtconv\nraise ValueError('no')")],
    "code that ends": [("import trtconv", "import sys, trtconv\nsys.exit(0)")],
    "no Python": [("import trtconv", "import trtconv(")],
    "an operator of ONNX": [
        ("class FoldScale", "@trtconv.operator('Relu')\ndef relu(trial, node, inputs): ...\n\n\nclass FoldScale")
    ],
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_is_no_extension(tmp_path: Path, title: str) -> None:
    before = dict(OPERATORS)
    with pytest.raises(InputError, match=r"acme\.py"):
        loaded(tmp_path, changed(*REFUSED[title]))
    assert dict(OPERATORS) == before
    assert report(tmp_path, changed(*REFUSED[title])).exit_code == 1


def test_what_it_raises_is_told_with_its_line(tmp_path: Path) -> None:
    extension = loaded(tmp_path, changed(("w * s", "w * undefined")))
    with pytest.raises(InputError, match=r"acme-fold-scale failed: NameError.*line \d+"):
        run_passes(OnnxModel(onnx.parser.parse_model(MODEL), Path("m.onnx")), extension.passes, RTX)


def test_what_it_prints_is_not_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extension = loaded(
        tmp_path, changed(("import trtconv", "import trtconv\nprint('loaded')"), ("x, y = ", "print('ran'); x, y = "))
    )
    run_passes(OnnxModel(onnx.parser.parse_model(MODEL), Path("m.onnx")), extension.passes, RTX)
    said = capsys.readouterr()
    assert said.out == "" and "loaded" in said.err and "ran" in said.err


def test_a_file_that_was_changed_since_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "acme.py"
    path.write_text(ACME)
    code = AgreedCode(path, hashlib.sha256(ACME.encode()).hexdigest())
    path.write_text(f"import sys\nsys.trtconv_trap = 1\n{ACME}")
    with pytest.raises(InputError, match="changed"):
        load(code)
    assert not hasattr(sys, "trtconv_trap")


def test_rules_of_rewriting_are_tried_too(tmp_path: Path) -> None:
    text = """
[[rewrite-rules]]
name = "acme-drop-negations"
pattern = "f (x) => (y) { t = Neg (x) y = Neg (t) }"
replacement = "f (x) => (y) { y = Identity (x) }"
ranks = [1, 2]
"""
    assert report(tmp_path, text, "rules.toml").exit_code == 0
    wrong = report(tmp_path, text.replace("Identity", "Abs"), "rules.toml")
    assert wrong.exit_code == 1 and "should be" in wrong.trials[0].why


GATE = (ROOT / "tests" / "data" / "extension_gate.py").read_text(encoding="utf-8")


def test_passes_over_operators_of_ones_own_are_compared_by_their_references(tmp_path: Path) -> None:
    right = report(tmp_path, GATE)
    assert all(trial.passed for trial in right.trials), right
    (equality,) = (trial for trial in right.trials if trial.what == "equality")
    assert int(equality.why.partition(" of ")[0]) > 3 and equality.why.endswith(" models rewritten were compared")
    wrong = report(tmp_path, GATE.replace("Sigmoid", "Tanh"))
    assert {trial.what for trial in wrong.trials if not trial.passed} == {"page", "equality"}


@pytest.mark.parametrize(("text", "is_right"), [(GATE, True), (GATE.replace("Sigmoid", "Tanh"), False)])
def test_rewriting_is_compared_by_references_of_an_extension(tmp_path: Path, text: str, is_right: bool) -> None:
    (tmp_path / "gate.py").write_text(text, encoding="utf-8")
    model = (
        '<ir_version: 8, opset_import: ["": 17, "acme": 1]> g (float[n,4] x) => (float[n,4] y) { y = acme.Gate (x) }'
    )
    onnx.save(onnx.parser.parse_model(model), tmp_path / "m.onnx")
    output = tmp_path / "out.onnx"
    request = RewriteRequest(tmp_path / "m.onnx", output=output, extend=CodeFile.named([tmp_path / "gate.py"]))
    rewriting = rewrite(request)
    assert rewriting.exit_code == (0 if is_right else 1) and output.exists() is is_right
    assert (rewriting.verified.max_relative_error or 0) < 1e-5 or not is_right
    assert not rewriting.verified.why


def test_what_cannot_be_run_is_not_told_to_be_equal(tmp_path: Path) -> None:
    without = GATE[: GATE.index("@trtconv.reference")]
    failed = {trial.what: trial.why for trial in report(tmp_path, without).trials if not trial.passed}
    assert failed.keys() == {"page", "equality"}
    assert all("an operator of your own needs a reference" in message for message in failed.values())
