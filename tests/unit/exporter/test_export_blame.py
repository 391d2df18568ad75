"""Whose line of Python it is. Needs no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trtconv
from trtconv.exporter.module.source_line import is_users

PACKAGE = Path(trtconv.__file__).parent


def test_a_file_beside_the_package_is_the_users(tmp_path: Path) -> None:
    assert is_users(str(tmp_path / "unet.py"))
    assert is_users(str(PACKAGE.with_name("trtconv_nets.py")))
    assert not is_users(str(PACKAGE / "exporter" / "trials.py"))
    # What raises for the user's line: rearrange(x, "b (h p) -> b h p"), or an operation that has no translation.
    assert not is_users("/python/site-packages/einops/einops.py")
    assert not is_users("/python/site-packages/onnx_ir/_convenience/__init__.py")


def test_the_package_is_ours_through_a_link_too(tmp_path: Path) -> None:
    (tmp_path / "packages").symlink_to(PACKAGE.parent)
    code = "import sys, trtconv.exporter.module.source_line as b; sys.exit({})"
    script = code.format("'packages' not in b.__file__ or b.is_users(b.__file__)")
    found = {**os.environ, "PYTHONPATH": str(tmp_path / "packages")}
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=found).returncode == 0
