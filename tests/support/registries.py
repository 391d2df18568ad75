"""What is written and not entered in its registry, so that it would never run."""

from __future__ import annotations

import importlib
import pkgutil
import types
from collections.abc import Sequence


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
