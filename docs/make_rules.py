"""Writes docs/rules/ from the docstrings of the rules; with --check, only says whether it is up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "rules"
sys.path.insert(0, str(ROOT))


def wanted() -> dict[str, str]:
    """Returns the content of every file of docs/rules/ by name."""
    from trtconv.cli.formats.pages import index, markdown
    from trtconv.rules import RULES

    rules = sorted(RULES, key=lambda rule: rule.code)
    return {"README.md": index(rules), **{f"{rule.code}.md": markdown(rule) for rule in rules}}


def stale() -> list[str]:
    """Returns the names of the files that are missing, outdated or left over."""
    pages = wanted()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    return sorted(name for name in {*pages, *there} if pages.get(name) != there.get(name))


def main() -> int:
    """Writes the files; or, with --check, returns 1 where some would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    only_check = parser.parse_args().check
    names = stale()
    pages = wanted()
    for name in names:
        sys.stdout.write(f"docs/rules/{name}\n")
        if not only_check and name in pages:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(pages[name], encoding="utf-8")
        elif not only_check:
            (FOLDER / name).unlink()
    return 1 if only_check and names else 0


if __name__ == "__main__":
    sys.exit(main())
