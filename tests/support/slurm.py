"""A Slurm of one machine: an sbatch that does the tasks of an array one after another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SBATCH = """#!/bin/sh
echo "$@" >> "$FAKE_LOG"
for a; do case $a in --array=1-*) n=${a#--array=1-};; --output=*) o=${a#--output=};; esac; done
case "$*" in *refuse*) echo "no such partition"; exit 1;; esac
case "$*" in *@card*) number=78;; *) number=77;; esac
echo "$number;cluster"
i=1
while [ $i -le $n ]; do
  SLURM_ARRAY_TASK_ID=$i sh "$a" > "$(echo "$o" | sed "s/%A/$number/;s/%a/$i/")" 2>&1 || worst=$?
  i=$((i + 1))
done
exit ${worst:-0}
"""
_SCANCEL = """#!/bin/sh
echo "scancel $*" >> "$FAKE_LOG"
"""


def put_up_sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts sbatch and scancel where programs are looked for; what they do is in the file `log` of the folder."""
    for name, script in {"sbatch": _SBATCH, "scancel": _SCANCEL}.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LOG", str(folder / "log"))
