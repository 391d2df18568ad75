"""Misspelt names of libraries and of their networks, told without importing torch: from the libraries' sources.

What is found here is refused; all else is left to the library itself, once it is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from trtconv.core.errors import InputError
from trtconv.core.reading import read_plain
from trtconv.core.suggest import did_you_mean, nearest

_MOST = 1 << 24
"""Bytes of a source."""


class Library(NamedTuple):
    """A library whose networks have names.

    Args:
        package: What is imported.
        sources: Pattern of its files that define networks.
        named: Pattern of a definition, with the name in a group.
    """

    package: str
    sources: str = ""
    named: str = ""


_REGISTERED = r"^@register_model\b[^\n]*\n(?:@[^\n]*\n|[ \t)][^\n]*\n)*def (\w+)"
LIBRARIES: Mapping[str, Library] = {
    "timm": Library("timm", "models/**/*.py", _REGISTERED),
    "torchvision": Library("torchvision", "models/**/*.py", _REGISTERED),
    "smp": Library(
        "segmentation_models_pytorch", "__init__.py", r"^(?:from \.decoders\.\w+ import .*?| +)\b([A-Z]\w+),?$"
    ),
    "transformers": Library("transformers"),
}


def check_name(spec: str) -> None:
    """Raises InputError for a SPEC that names no network of a library, and is near to one that does."""
    scheme, colon, rest = spec.partition(":")
    name = rest.partition("?")[0]
    if not colon or not name or not scheme.isidentifier():
        return
    if scheme not in LIBRARIES:
        _check_scheme(scheme)
    elif scheme == "transformers":
        _check_folder(name)
    else:
        _check_network(scheme, name.partition(".")[0], LIBRARIES[scheme])


def _check_scheme(scheme: str) -> None:
    if nearest(scheme, list(LIBRARIES)) and _folder(scheme) is None:
        raise InputError(f"there is no module {scheme!r}", did_you_mean(scheme, LIBRARIES))


def _check_folder(name: str) -> None:
    # A name without a slash may be an attribute of the package.
    if "/" in name and not Path(name).is_dir():
        raise InputError(f"transformers:{name}: there is no folder {name}", "Name one with config.json and weights.")


def _check_network(scheme: str, name: str, library: Library) -> None:
    folder = _folder(library.package)
    if folder is None or not folder.is_dir() or ":" in name:
        return
    paths = {folder / "__init__.py", *folder.glob(library.sources)}
    texts = [read_plain(path, _MOST).decode(errors="replace") for path in paths if path.is_file()]
    # A word that stands anywhere may be a name of an older form.
    if any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts):
        return
    names = [match for text in texts for match in re.findall(library.named, text, re.MULTILINE)]
    if nearest(name, names):
        raise InputError(f"{scheme} has no network {name!r}", did_you_mean(name, names))


def _folder(package: str) -> Path | None:
    """Returns where a package or module lies that could be imported, None where there is none."""
    spec = PathFinder.find_spec(package, [str(Path.cwd()), *sys.path])
    if spec is None:
        return None
    return Path(next(iter(spec.submodule_search_locations or ()), "") or spec.origin or package)
