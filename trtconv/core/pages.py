"""The pages of rules and passes, which are their docstrings."""

from __future__ import annotations

import textwrap


def sections(page: str) -> list[tuple[str, str]]:
    """Divides a page after its first paragraph.

    Returns:
        Title and text of each section, in order; text before the first title has the title "".
    """
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in page.splitlines()[1:]:
        if line and not line[0].isspace() and line.endswith(":"):
            parts.append((line[:-1], []))
        else:
            parts[-1][1].append(line)
    texts = [(title, textwrap.dedent("\n".join(lines)).strip()) for title, lines in parts]
    return [(title, text) for title, text in texts if text]
