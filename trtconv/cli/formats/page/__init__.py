"""One HTML file about an engine, or about a folder of them: no script, no network, light and dark, fit to print."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trtconv.cli.formats.page.gather import PageSubject
from trtconv.cli.formats.wording import count
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.text import clean
from trtconv.core.version import __version__

_TEMPLATES = Path(__file__).parent / "templates"


def engine_page(subject: PageSubject) -> bytes:
    """Writes the page of an engine.

    Raises:
        InputError: A document has other values than trtconv writes.
        EnvironmentMissing: Jinja2 is not installed.
    """
    environment = _environment()
    from trtconv.cli.formats.page.views import view

    return _render(environment, "engine.html", str(subject.path), view(subject))


def folder_page(name: str, subjects: Sequence[PageSubject], others: int) -> tuple[bytes, dict[str, str]]:
    """Writes the page of a folder: the matrix of its models and targets.

    Args:
        name: Of the folder.
        subjects: The engines.
        others: Number of .json files that are no reports.

    Returns:
        The page; and the reports that it leaves out, since they have other values than trtconv writes, and why.

    Raises:
        EnvironmentMissing: Jinja2 is not installed.
    """
    environment = _environment()
    from trtconv.cli.formats.page.matrix import matrix

    shown: list[PageSubject] = []
    left_out: dict[str, str] = {}
    values: dict[str, Any] = {"name": name, "others": others, "left_out": left_out}
    for subject in subjects:
        # Alone first: one that somebody has spoiled is not to take the others along.
        try:
            _render(environment, "folder.html", str(subject.path), {**values, **matrix([subject])})
            shown.append(subject)
        except InputError as error:
            left_out[str(subject.path)] = error.message
    return _render(environment, "folder.html", name, {**values, **matrix(shown)}), left_out


def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise EnvironmentMissing(f"a page takes Jinja2: {error}", "pip install 'jinja2>=3.1'") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )
    environment.filters["count_of"] = count
    return environment


def _shown(value: Any) -> Any:
    """Makes visible what would hide or turn a text; markup, which is our own, stays as it is."""
    return clean(value) if type(value) is str else value


def _render(environment: Any, template: str, name: str, values: dict[str, Any]) -> bytes:
    from jinja2 import UndefinedError
    from markupsafe import Markup

    from trtconv.cli.formats.page.views import FOREIGN, foreign

    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8").strip()
    # Nothing but this very style is let in: no script, no font, no picture, no other style.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    own = {"style": Markup(style), "style_hash": digest, "version": __version__}
    try:
        return str(environment.get_template(template).render(own | values)).encode("utf-8")
    except (*FOREIGN, UndefinedError) as error:
        raise foreign(name, error) from error
