"""One HTML file about an engine, or about a folder of them: no script, no network, light and dark, fit to print."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from trtconv.cli.formats.page.gather import Folder, PageSubject
from trtconv.cli.formats.upgrade import cells, verdict
from trtconv.cli.formats.wording import count
from trtconv.core.documents.farm import FarmStatus
from trtconv.core.documents.upgrade import Effect, UpgradeReport
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.text import clean
from trtconv.core.version import __version__

_TEMPLATES = Path(__file__).parent / "templates"


def engine_page(subject: PageSubject, gpu: str | None = None) -> bytes:
    """Writes the page of an engine.

    Args:
        subject: What it shows.
        gpu: Label of the GPU that times are estimated for; None for the one that the report names.

    Raises:
        EnvironmentMissing: Jinja2 is not installed.
    """
    _environment()
    from trtconv.cli.formats.page.views import view

    return rendered("engine.html", view(subject, gpu))


def folder_page(name: str, folder: Folder) -> bytes:
    """Writes the page of a folder: the matrix of its models and targets.

    Args:
        name: Of the folder.
        folder: What is in it.

    Raises:
        EnvironmentMissing: Jinja2 is not installed.
    """
    _environment()
    from trtconv.cli.formats.page.matrix import matrix

    return rendered(
        "folder.html",
        {
            "name": name,
            "left_out": folder.left_out,
            "others": folder.others,
            **matrix(folder.subjects, folder.failures),
        },
    )


def farm_page(name: str, status: FarmStatus, moment: str) -> bytes:
    """Writes the page of a farm: its workers, and what waits.

    Args:
        name: Its address.
        status: What it does.
        moment: When it did, for people.

    Raises:
        EnvironmentMissing: Jinja2 is not installed.
    """
    return rendered("farm.html", {"name": name, "status": status, "moment": moment})


def upgrade_page(report: UpgradeReport) -> bytes:
    """Writes the page of what another TensorRT makes of models.

    Raises:
        EnvironmentMissing: Jinja2 is not installed.
    """
    kinds = {Effect.SAME: "ok", Effect.IMPROVEMENT: "ok", Effect.CHANGED: "info", Effect.REGRESSION: "bad"}
    rows = [
        {
            "number": number,
            "model": upgrade.model,
            "cells": cells(upgrade),
            "kind": kinds.get(upgrade.change, "warn"),
            "findings": upgrade.findings,
        }
        for number, upgrade in enumerate(report.models, 1)
    ]
    return rendered("upgrade.html", {"report": report, "rows": rows, "verdict": verdict(report)})


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
        finalize=_visible,
    )
    environment.filters["count_of"] = count
    environment.filters["by_parts"] = _by_parts
    return environment


def _visible(value: Any) -> Any:
    """Makes visible what would hide or turn a text; markup, which is our own, stays as it is."""
    return clean(value) if type(value) is str else value


def _by_parts(path: str) -> str:
    """Lets the name of a node break behind its slashes, in a narrow column, and not inside of words."""
    from markupsafe import Markup

    return Markup("/<wbr>").join(clean(path).split("/"))


def rendered(template: str, values: dict[str, object]) -> bytes:
    """Writes a page.

    Args:
        template: Name of its template.
        values: What stands in it.

    Raises:
        EnvironmentMissing: Jinja2 is not installed.
    """
    environment = _environment()
    from markupsafe import Markup

    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8").strip()
    # Nothing but this very style is let in: no script, no font, no picture, no other style.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    own = {"style": Markup(style), "style_hash": digest, "version": __version__}
    return str(environment.get_template(template).render(own | values)).encode("utf-8")
