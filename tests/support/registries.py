"""What is written and not entered in its registry, so that it would never run, or has no page."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import types
from collections.abc import Sequence

from support.paths import ROOT


def not_entered(package: types.ModuleType, base: type, attribute: str, entered: Sequence[object]) -> list[str]:
    """Returns the subclasses of a class that no instance in a registry has, each with its module.

    Args:
        package: Whose modules are searched, those of inner packages too.
        base: The class.
        attribute: What a subclass defines itself that is meant to run, such as a name; others are bases.
        entered: The registry.
    """
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    written: set[type] = set()
    queue = [base]
    while queue:
        subclasses: list[type] = queue.pop().__subclasses__()
        queue += subclasses
        written |= {kind for kind in subclasses if attribute in vars(kind) and kind.__module__.startswith("trtconv.")}
    return sorted(f"{kind.__name__} ({kind.__module__})" for kind in written - {type(entry) for entry in entered})


def stale_pages(folder: str) -> list[str]:
    """Returns the files of a folder of docs/, rules or passes, that are not what the docstrings say."""
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "docs" / "make_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [name for name in module.stale() if name.startswith(f"{folder}/")]
