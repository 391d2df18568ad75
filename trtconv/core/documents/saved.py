"""Reading the report beside an engine, to choose a profile and a padding when the engine runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.decode import Fault, checked_schema, decoded, json_of
from trtconv.core.dims import InputSpec, Range, ShapeProfile, times
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.signed import checksum
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, read_plain
from trtconv.core.suggest import did_you_mean
from trtconv.core.typed import argument


@frozen
class SavedReport:
    """A build report that was read back.

    Args:
        path: The file.
        report: What it says.
        document: Its JSON, as it is signed.
        is_intact: Whether it has a checksum, which an older trtconv did not write, and is as it was written.
    """

    path: Path
    report: BuildReport
    document: Mapping[str, Any]
    is_intact: bool = True

    @property
    def profiles(self) -> tuple[ShapeProfile, ...]:
        """The engine's optimization profiles, in its order."""
        return self.report.profiles

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The model's inputs with the names of their dimensions; empty where an older trtconv wrote the report."""
        return self.report.inputs

    @property
    def forms(self) -> dict[str, str]:
        """The forms that `--tune` chose, or the builder takes, by node."""
        return self.report.forms

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
        fitting = {i: _distance(p, shapes) for i, p in enumerate(self.profiles) if p.contains(shapes)}
        if not fitting:
            request = ", ".join(f"{name} {times(shape)}" for name, shape in shapes.items())
            choices = "; ".join(
                f"{i}: " + ", ".join(f"{n} {times(p.inputs[n].min)} to {times(p.inputs[n].max)}" for n in shapes)
                for i, p in enumerate(self.profiles)
            )
            raise InputError(f"no profile contains {request}", f"The profiles are {choices}.")
        return min(fitting, key=lambda index: fitting[index])

    def padded(self, name: str, size: int) -> int:
        """Returns the smallest size of a dimension, at least this, that the network accepts and some profile contains.

        Args:
            name: The dimension, such as "height".
            size: The size that there is.

        Raises:
            InputError: There is no such dimension, or no such size.
        """
        lattice = self.report.lattice
        dims = {} if lattice is None else lattice.dims
        if name not in dims:
            raise InputError(f"{self.path} tells of no dimension {name!r}", did_you_mean(name, dims))
        valid = dims[name].valid
        low, high = dims[name].min, dims[name].max
        # A dimension that is computed from others has no bounds of its own in the profiles.
        bounds = [profile.dims.get(name, Range(low, high, high)) for profile in self.profiles]
        # Where every size is accepted, the next is the asked one, or where the next profile begins.
        starts = sorted({max(size, bound.min) for bound in bounds}) if valid is None else valid
        sizes = [n for n in starts if n >= size and any(bound.min <= n <= bound.max for bound in bounds)]
        if not sizes:
            raise InputError(f"{name} {size} is beyond what the engine takes ({high})", "Crop or tile the input.")
        return sizes[0]

    def _check_input(self, name: str, shape: Sequence[int]) -> None:
        inputs = self.profiles[0].inputs if self.profiles else {}
        if name not in inputs:
            raise InputError(f"the engine has no input {name!r}", did_you_mean(name, inputs))
        if len(shape) != len(inputs[name].min):
            raise InputError(
                f"input {name} has {len(inputs[name].min)} dimensions, {times(shape)} has {len(shape)}",
                f"Its smallest shape is {times(inputs[name].min)}.",
            )


def load_report(path: str | Path) -> SavedReport:
    """Reads the report that `trtconv build` wrote beside an engine (ENGINE.json).

    Raises:
        InputError: The file cannot be read, is not the report of a build by this version's schema, or was changed; the
            message names the key that is wrong.
    """
    file: Path = argument("load_report", "path", Path, path)
    try:
        return saved(file, json_of(read_plain(file, DOCUMENT_BYTES)))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", "Give the .json file beside the engine."
        ) from error
    except Fault as fault:
        hint = "Build the engine again, with this version of trtconv."
        raise InputError(f"{path} is not the report of a build: {fault}", hint) from fault


def saved(path: Path, document: Any) -> SavedReport:
    """Reads the report of a build.

    Args:
        path: Where it is from.
        document: Its JSON.

    Raises:
        Fault: It is not such a report, has another schema, or was changed.
    """
    report = decoded(BuildReport, checked_schema(document))
    digest = decoded(_Checksum, document).body_sha256
    if digest is not None and digest != checksum(document):
        raise Fault("it was changed after it was written")
    return SavedReport(path, report, document, digest is not None)


@frozen
class _Checksum:
    """The checksum that a report may have of itself."""

    body_sha256: str | None = None


def _distance(profile: ShapeProfile, shapes: Mapping[str, Sequence[int]]) -> float:
    return sum(
        abs(math.log(max(size, 1) / max(best, 1)))
        for name, shape in shapes.items()
        for size, best in zip(shape, profile.inputs[name].opt, strict=True)
    )
