"""Prints the lower bounds of pyproject.toml as constraints for pip: "numpy>=1.26" as "numpy==1.26.0.*".

Of what trtconv itself needs, not of the tools of its developers. Runs on a bare Python 3.10, which reads no TOML.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
_BOUND = re.compile(r'"(?P<name>[a-z][a-z0-9-]*)>=(?P<version>[0-9.]+)')


def constraints(text: str) -> list[str]:
    """Returns the oldest version of each dependency, in their order."""
    section = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    if section is None:
        raise SystemExit(f"{PYPROJECT} has no list of dependencies")
    return [f"{bound['name']}=={_first(bound['version'])}.*" for bound in _BOUND.finditer(section[1])]


def _first(version: str) -> str:
    """Returns the first release of a version: "1.26" as "1.26.0"."""
    return ".".join([*version.split("."), "0", "0"][: max(3, version.count(".") + 1)])


if __name__ == "__main__":
    sys.stdout.write("\n".join(constraints(PYPROJECT.read_text(encoding="utf-8"))) + "\n")
