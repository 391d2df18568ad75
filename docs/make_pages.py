"""Writes docs/rules/ and docs/passes/ from docstrings; with --check, only says whether they are up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))


def wanted() -> dict[str, str]:
    """Returns the content of every file, by its path in docs/."""
    from trtconv.cli.formats.pages import index, markdown, pass_index, pass_markdown
    from trtconv.passes import PASSES
    from trtconv.rules import RULES

    rules = sorted(RULES, key=lambda rule: rule.code)
    return {
        "rules/README.md": index(rules),
        **{f"rules/{rule.code}.md": markdown(rule) for rule in rules},
        "passes/README.md": pass_index(PASSES),
        **{f"passes/{each.name}.md": pass_markdown(each) for each in PASSES},
    }


def stale() -> list[str]:
    """Returns the files in docs/ that are missing, outdated or left over."""
    pages = wanted()
    paths = [path for folder in ("rules", "passes") for path in (DOCS / folder).glob("*.md")]
    there = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return sorted(name for name in {*pages, *there} if pages.get(name) != there.get(name))


def main() -> int:
    """Writes the files; or, with --check, returns 1 where some would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    only_check = parser.parse_args().check
    names, pages = stale(), wanted()
    for name in names:
        sys.stdout.write(f"docs/{name}\n")
        if not only_check and name in pages:
            (DOCS / name).parent.mkdir(exist_ok=True)
            (DOCS / name).write_text(pages[name], encoding="utf-8")
        elif not only_check:
            (DOCS / name).unlink()
    return 1 if only_check and names else 0


if __name__ == "__main__":
    sys.exit(main())
