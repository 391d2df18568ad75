"""Every `trtconv export` that the README and docs/ show runs as written, on files that stand in for the user's."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from support.paths import MODELS, ROOT  # noqa: E402

pytestmark = pytest.mark.slow

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXPORT = ROOT / "docs" / "export.md"
_INLINE = re.compile(r"`(trtconv export [^`]*)`")
_SHOWN = re.compile(r"^(?:\$ )?(trtconv export .*)$")
EXCERPTS = {
    "trtconv export SPEC": "names the form of the call",
}
"""Commands that are no whole calls, and why."""
_PACKAGE = """
from torch import nn


class UNet(nn.Module):
    def __init__(self, channels=1, **others):
        super().__init__()
        self.down = nn.Conv2d(channels, 4, 2, stride=2)
        self.up = nn.ConvTranspose2d(4, channels, 2, stride=2)

    def forward(self, x):
        return self.up(self.down(x)) + x


class Unet(UNet):
    def __init__(self, encoder_name, encoder_weights, in_channels=3):
        assert encoder_weights is None  # would be downloaded
        super().__init__(in_channels)
"""


def documented() -> list[str]:
    """Returns every `trtconv export` with arguments: of blocks, whose lines a backslash joins, and of running text."""
    found = []
    for page in PAGES:
        text = re.sub(r" *\\\n *", " ", page.read_text(encoding="utf-8"))
        found += [shown[1] for line in text.splitlines() if (shown := _SHOWN.match(line.strip()))]
        found += _INLINE.findall(text)
    return list(dict.fromkeys(re.sub(r"\s+#.*", "", line).strip() for line in found))


def _is_excerpt(command: str) -> bool:
    return command in EXCERPTS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with all that the commands name: models/, a package with its weights, a saved program."""
    shutil.copytree(MODELS, tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "out").mkdir()
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "__init__.py").touch()
    (tmp_path / "mypackage" / "nets.py").write_text(_PACKAGE)
    if importlib.util.find_spec("segmentation_models_pytorch") is None:
        (tmp_path / "segmentation_models_pytorch.py").write_text(_PACKAGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    speech = re.search(r"^```python\n# (speech\.py)\n(.*?)^```", EXPORT.read_text(), re.MULTILINE | re.DOTALL)
    assert speech is not None
    (tmp_path / speech[1]).write_text(speech[2])
    names: dict[str, object] = {}
    exec(_PACKAGE, names)
    net = names["UNet"](3).eval()  # type: ignore[operator]
    from safetensors.torch import save_file

    save_file(net.state_dict(), tmp_path / "unet.safetensors")
    program = torch.export.export(net, (torch.zeros(1, 3, 32, 32),))
    torch.export.save(program, tmp_path / "unet.pt2")
    return tmp_path


def test_the_commands_are_found() -> None:
    commands = documented()
    assert len(commands) >= 10
    assert any(command.startswith("trtconv export unet.pt2") for command in commands)
    assert set(EXCERPTS) <= set(commands)  # an excerpt that is gone needs no reason


@pytest.mark.parametrize("command", [each for each in documented() if not _is_excerpt(each)])
def test_a_documented_export_runs(command: str, call, folder: Path) -> None:
    arguments = shlex.split(command)[1:]
    if "--build" in arguments:
        pytest.importorskip("tensorrt_rtx")
        arguments += [] if "--target" in arguments else ["--target", "rtx"]
    ended = call(*arguments, "-q")
    assert ended.code == 0, ended.err or ended.out
    output = Path(arguments[arguments.index("-o") + 1])
    assert output.is_file() or output.with_name(f"{output.stem}.1{output.suffix}").is_file()
    assert output.with_suffix(".engine").is_file() == ("--build" in arguments)
