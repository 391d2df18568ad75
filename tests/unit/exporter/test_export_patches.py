"""What the exporter replaces of foreign packages: in one folder, and an export works without any one of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support.paths import ROOT
from trtconv.exporter.patches import PATCHES, patch, replaced, without

EXPORTER = ROOT / "trtconv" / "exporter"


def test_each_patch_has_its_module_and_its_reason() -> None:
    modules = {path.stem for path in (EXPORTER / "patches").glob("*.py")} - {"__init__"}
    assert modules == {each.name for each in PATCHES}, "enter it into PATCHES of exporter/patches/__init__.py"
    assert all(each.replaces and each.versions and each.why and each.lost for each in PATCHES)


@pytest.mark.parametrize("path", sorted(EXPORTER.rglob("*.py")), ids=lambda path: str(path.relative_to(EXPORTER)))
def test_nothing_else_replaces_what_is_foreign(path: Path) -> None:
    if path.parent.name == "patches":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names
    }
    assert not imported & {"mock", "unittest"}, "put it into exporter/patches/"


def test_what_a_version_no_longer_has_is_left_alone() -> None:
    class Foreign:
        there = 1

    with replaced(Foreign, "there", 2), replaced(Foreign, "gone", 2):
        assert Foreign.there == 2
        assert not hasattr(Foreign, "gone")
    assert Foreign.there == 1


def test_a_patch_is_switched_off_inside_a_with_only() -> None:
    class Foreign:
        there = 1

    @patch("garbage")
    def double():
        return replaced(Foreign, "there", 2)

    with without("garbage"), double():
        assert Foreign.there == 1
    with without("other"), double():
        assert Foreign.there == 2


@pytest.mark.parametrize("name", [each.name for each in PATCHES])
def test_an_export_works_without_any_one_of_them(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import trtconv

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.norm = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1), torch.nn.BatchNorm2d(4)
            self.up = torch.nn.ConvTranspose2d(4, 3, 2, stride=2)

        def forward(self, x):
            return self.up(torch.relu(self.norm(self.down(x)))) + x

    axes, options = {"x": ("batch", None, "height", "width")}, trtconv.ExportOptions(check=False)
    with without(name):
        report = trtconv.export(
            Net().eval(), {"x": torch.zeros(1, 3, 16, 16)}, tmp_path / "net.onnx", axes, None, options
        )
    assert report.exit_code == 0
    assert report.proof is not None
    assert {rule.name: rule.step for rule in report.sizes}["height"] == 2
