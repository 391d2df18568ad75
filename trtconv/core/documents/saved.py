"""Reading the report beside an engine, to choose a profile and a padding when the engine runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.dims import InputSpec, Range, ShapeProfile, times
from trtconv.core.documents.build import profiles_from_json
from trtconv.core.documents.forms import read_report
from trtconv.core.documents.tuned import tuned_forms
from trtconv.core.encode import SCHEMA, decoded
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, read_plain
from trtconv.core.requests.common import NODE_PRECISIONS, PRECISIONS
from trtconv.core.suggest import did_you_mean
from trtconv.core.target import FAMILIES


@frozen
class SavedReport:
    """A build report that was read back.

    Args:
        path: The file.
        document: Its JSON.
        profiles: The engine's optimization profiles, in its order.
    """

    path: Path
    document: Mapping[str, Any]
    profiles: tuple[ShapeProfile, ...]

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The model's inputs with the names of their dimensions; empty where an older trtconv wrote the report."""
        listed = self.document.get("inputs") or ()
        return tuple(decoded(InputSpec, each) for each in listed)

    @property
    def forms(self) -> dict[str, str]:
        """The forms that `--tune` chose, by node."""
        return tuned_forms(self.document)

    def profile_for(self, shapes: Mapping[str, Sequence[int]]) -> int:
        """Returns the index of the profile to run inputs of these shapes with.

        Of the profiles that contain them it is the one whose opt is nearest, in factors: that is what TensorRT chose
        its kernels for.

        Args:
            shapes: Input name to its shape; inputs that are left out are taken to fit.

        Raises:
            InputError: An input that the engine does not have, a wrong number of dimensions, or shapes that are in no
                profile; the message lists the profiles.
        """
        for name, shape in shapes.items():
            self._check_input(name, shape)
        fitting = {i: _distance(p, shapes) for i, p in enumerate(self.profiles) if _contains(p, shapes)}
        if not fitting:
            asked = ", ".join(f"{name} {times(shape)}" for name, shape in shapes.items())
            listed = "; ".join(
                f"{i}: " + ", ".join(f"{n} {times(p.inputs[n].min)} to {times(p.inputs[n].max)}" for n in shapes)
                for i, p in enumerate(self.profiles)
            )
            raise InputError(f"no profile contains {asked}", f"The profiles are {listed}.")
        return min(fitting, key=lambda index: fitting[index])

    def padded(self, name: str, size: int) -> int:
        """Returns the smallest size of a dimension, at least this, that the network accepts and some profile contains.

        Args:
            name: The dimension, such as "height".
            size: The size that there is.

        Raises:
            InputError: There is no such dimension, or no such size.
        """
        dims = (self.document.get("lattice") or {}).get("dims", {})
        if name not in dims:
            raise InputError(f"{self.path} tells of no dimension {name!r}", did_you_mean(name, dims))
        valid = dims[name]["valid"]
        low, high = dims[name]["min"], dims[name]["max"]
        # A dimension that is computed from others has no bounds of its own in the profiles.
        bounds = [profile.dims.get(name, Range(low, high, high)) for profile in self.profiles]
        # Where every size is accepted, the next is the asked one, or where the next profile begins.
        starts = sorted({max(size, bound.min) for bound in bounds}) if valid is None else valid
        found = [n for n in starts if n >= size and any(bound.min <= n <= bound.max for bound in bounds)]
        if not found:
            raise InputError(f"{name} {size} is beyond what the engine takes ({high})", "Crop or tile the input.")
        return int(found[0])

    def _check_input(self, name: str, shape: Sequence[int]) -> None:
        known = self.profiles[0].inputs if self.profiles else {}
        if name not in known:
            raise InputError(f"the engine has no input {name!r}", did_you_mean(name, known))
        if len(shape) != len(known[name].min):
            raise InputError(
                f"input {name} has {len(known[name].min)} dimensions, {times(shape)} has {len(shape)}",
                f"Its smallest shape is {times(known[name].min)}.",
            )


def load_report(path: str | Path) -> SavedReport:
    """Reads the report that `trtconv build` wrote beside an engine (ENGINE.json).

    Raises:
        InputError: The file cannot be read, or is no report of a build by this version's schema.
    """
    path = Path(path)
    try:
        document = read_report(read_plain(path, DOCUMENT_BYTES))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", "Give the .json file beside the engine."
        ) from error
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from error
    hint = "Build the engine again, with this version of trtconv."
    if document.get("schema") != SCHEMA:
        raise InputError(f"{path} is no trtconv report of schema {SCHEMA}", hint)
    try:
        profiles = profiles_from_json(document)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, InputError) as error:
        raise InputError(f"{path} is no report of a build: its profiles cannot be read", hint) from error
    foreign = "profiles" if _uneven(profiles) else next(_foreign(document), None)
    if foreign is not None:
        raise InputError(f"{path} is no report of a build: its {foreign} cannot be read", hint)
    return SavedReport(path, document, profiles)


_PARTS: dict[str, set[str]] = {
    "model": {"path", "sha256"},
    "plan": {"target", "precision"},
    "runtime": {"family", "version", "gpu"},
    "engine": {"path", "sha256", "bytes"},
    "mix": set(),
}
"""Parts of a report, and what each has where it is there."""
_LISTED = {
    "inputs": ("name", "dtype", "dims"),
    "io": ("kind", "name", "dtype", "shape"),
    "edits": ("node", "what"),
    "findings": ("code",),
    "tuned": ("node", "form"),
}
"""Lists of a report, and what each of their entries has."""


def _uneven(profiles: Sequence[ShapeProfile]) -> bool:
    """Whether profiles are not all of the same inputs, with as many sizes in min, opt and max."""
    ranks = [
        {name: {len(shapes.min), len(shapes.opt), len(shapes.max)} for name, shapes in profile.inputs.items()}
        for profile in profiles
    ]
    return any(each != ranks[0] or any(len(found) > 1 for found in each.values()) for each in ranks)


def _foreign(document: Mapping[str, Any]) -> Iterator[str]:
    """Yields the parts of a report that `trtconv build` writes otherwise; parts may be missing."""
    parts = {key: document.get(key) or {} for key in _PARTS}
    yield from (
        key for key, part in parts.items() if not isinstance(part, dict) or (part and _PARTS[key] - part.keys())
    )
    if not isinstance(parts["plan"].get("options") or {}, dict):
        yield "options"
    for part in (parts["plan"], parts["mix"]):
        nodes = part.get("node_precisions") or {}
        if not isinstance(nodes, dict) or not all(kind in NODE_PRECISIONS for kind in nodes.values()):
            yield "node_precisions"
        if part.get("precision", PRECISIONS[0]) not in PRECISIONS:
            yield "precision"
    if parts["runtime"].get("family", "rtx") not in FAMILIES:
        yield "runtime"
    for key, names in _LISTED.items():
        entries = document.get(key) or []
        if not isinstance(entries, list) or not all(isinstance(e, dict) and e.keys() >= set(names) for e in entries):
            yield key


def _contains(profile: ShapeProfile, shapes: Mapping[str, Sequence[int]]) -> bool:
    return all(
        low <= size <= high
        for name, shape in shapes.items()
        for size, low, high in zip(shape, profile.inputs[name].min, profile.inputs[name].max, strict=True)
    )


def _distance(profile: ShapeProfile, shapes: Mapping[str, Sequence[int]]) -> float:
    return sum(
        abs(math.log(max(size, 1) / max(best, 1)))
        for name, shape in shapes.items()
        for size, best in zip(shape, profile.inputs[name].opt, strict=True)
    )
