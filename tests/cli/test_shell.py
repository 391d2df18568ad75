"""What shells, file systems and disks do to a command."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import MODELS, ROOT

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX files and limits"),
]


MODEL = MODELS / "gan_generator.onnx"
RUN = "import sys; from trtconv.cli import main; sys.exit(main())"
DIMS = ("--dim", "batch=1")


def test_spaces_and_unicode_in_paths(call, tmp_path: Path) -> None:
    folder = tmp_path / "my nets \u00e9\u4e2d"
    folder.mkdir()
    model = folder / "g n.onnx"
    shutil.copy(MODEL, model)
    assert call("check", str(model), "-q").code == 0
    ended = call("build", str(model), *DIMS, "-q", "-o", str(folder / "e \u00fc.engine"), "--format", "json")
    assert ended.code == 0, ended.err
    assert Path(json.loads(ended.out)["engine"]["path"]).exists()
    assert call("rewrite", str(model), "-o", str(folder / "r \u00fc.onnx"), "-q").code == 0


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root writes everywhere")
def test_read_only_folder(call, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    ended = call("build", str(MODEL), *DIMS, "-o", str(tmp_path / "e.engine"), "-q")
    tmp_path.chmod(0o700)
    assert ended.code == 2
    assert "cannot be written" in ended.err


def test_folder_that_is_a_file(call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = call("build", str(MODEL), *DIMS, "-o", str(tmp_path / "file" / "e.engine"), "-q")
    assert ended.code == 2
    assert "cannot be written" in ended.err


@pytest.mark.parametrize("command", ["build", "rewrite"])
def test_full_disk(spawn, tmp_path: Path, command: str) -> None:
    output = tmp_path / "out"
    output.write_bytes(b"old")
    limit = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
    )
    dims = DIMS if command == "build" else ()
    process = spawn(
        limit + RUN, command, str(MODEL), *dims, "-o", str(output), "--target", "rtx", "-q", "--format", "json"
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert json.loads(out)["exit_code"] == 2
    assert "cannot be written" in err
    assert output.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _in_directory_that_is_gone(tmp_path: Path, way: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs a command, as an installed script or as a module, in a directory that was removed before."""
    script = tmp_path / "installed"
    script.write_text("from trtconv.cli import run; run()")
    gone = tmp_path / "gone"
    gone.mkdir()
    started = {"script": [str(script)], "module": ["-m", "trtconv"]}[way]
    shell = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone), sys.executable, *started, *args]
    return subprocess.run(
        shell, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


@pytest.mark.parametrize(
    ("way", "args"),
    [
        ("script", ("check",)),
        ("script", ("build", "m.onnx")),
        ("script", ("--help",)),
        ("module", ("check", "m.onnx")),
        ("module", ("rule", "TC101")),
    ],
)
def test_working_directory_that_is_gone(tmp_path: Path, way: str, args: tuple[str, ...]) -> None:
    ended = _in_directory_that_is_gone(tmp_path, way, *args)
    assert ended.returncode == (2 if args[0] in ("check", "build") else 0), ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("way", "output_format"), [("script", "text"), ("module", "sarif"), ("script", "github")])
def test_absolute_path_where_the_working_directory_is_gone(tmp_path: Path, way: str, output_format: str) -> None:
    ended = _in_directory_that_is_gone(tmp_path, way, "check", str(MODEL), "-q", "--format", output_format)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(spawn, shell: str) -> None:
    process = spawn(RUN, env={"_TRTCONV_COMPLETE": f"{shell}_source"})
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "_TRTCONV_COMPLETE" in out


def _completed(spawn, *words: str) -> list[str]:
    line = " ".join(["trtconv", *words])
    env = {"_TRTCONV_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    out, _ = spawn(RUN, env=env).communicate(timeout=60)
    return [entry.partition(",")[2] for entry in out.splitlines()]


def test_completions(spawn) -> None:
    assert "check" in _completed(spawn, "ch")
    assert "--fail-on" in _completed(spawn, "check", "--fa")
    assert _completed(spawn, "check", "--format", "s") == ["sarif"]


def test_completion_of_values(spawn, tmp_path: Path) -> None:
    model = str(MODELS / "unet.onnx")
    assert _completed(spawn, "build", model, "--dim", "") == ["batch=", "height=", "width="]
    assert _completed(spawn, "check", model, "--dim", "h") == ["height="]
    assert _completed(spawn, "sizes", model, "--input", "") == ["x="]
    assert _completed(spawn, "explain", model, "/up3") == ["/up3/ConvTranspose"]
    assert _completed(spawn, "check", "--target", "rtx") == ["rtx", "rtx-1"]
    assert _completed(spawn, "rule", "TC20") == [f"TC20{n}" for n in range(1, 9)]
    assert _completed(spawn, "rewrite", model, "--only", "fold-b") == ["fold-batch-norm"]
    assert _completed(spawn, "build", str(tmp_path / "none.onnx"), "--dim", "") == [""]
    assert _completed(spawn, "build", "un") == ["un"], "a file"


def test_completion_of_a_script_is_valid_bash(spawn, tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    out, _ = spawn(RUN, env={"_TRTCONV_COMPLETE": "bash_source"}).communicate(timeout=60)
    subprocess.run(["bash", "-n"], input=out, text=True, check=True)
