"""Writes docs/trtconv.schema.json, for editors, from core.config.SCHEMA; with --check, only says if it is stale."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "trtconv.schema.json"
sys.path.insert(0, str(ROOT))


def wanted() -> str:
    """Returns the content of the file."""
    from trtconv.core.config import SCHEMA

    return json.dumps(SCHEMA, indent=2) + "\n"


def main() -> int:
    """Writes the file; or, with --check, returns 1 where it would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return 0 if FILE.exists() and FILE.read_text(encoding="utf-8") == wanted() else 1
    FILE.write_text(wanted(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
