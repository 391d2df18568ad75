"""What a machine can build for, and which of several can do what is asked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from trtconv.core.decode import Fault, decoded, json_of
from trtconv.core.documents.farm import Offer, OfferedRuntime
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.files import source_checksum
from trtconv.core.frozen import frozen
from trtconv.core.gpus import gpu_label, gpu_labels
from trtconv.core.process import Tell
from trtconv.core.target import FAMILIES, Target
from trtconv.core.text import clean
from trtconv.core.version import __version__
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt import Capabilities, RuntimeInfo

MOST_LABELS = 20
_CAPABILITY = re.compile(r"cc[0-9.]+")


@frozen
class Machine:
    """What a machine offers.

    Args:
        runtimes: Each TensorRT that works there.
        labels: What its GPU answers to, the most exact first.
        driver: Newest CUDA version that its driver knows; None without a GPU.
        cast_by: Versions of what a cast depends on there.
        trtconv: Version of trtconv.
        source: Checksum of its code.
        name: What it is called; empty: it is this one.
    """

    runtimes: tuple[RuntimeInfo, ...]
    labels: tuple[str, ...] = ()
    driver: str | None = None
    cast_by: Any = None
    trtconv: str = __version__
    source: str = ""
    name: str = ""

    def to_json(self) -> dict[str, object]:
        """Returns it as plain JSON values."""
        runtimes = tuple(
            OfferedRuntime(info.family, info.version, info.gpu, vars(info.capabilities)) for info in self.runtimes
        )
        return Offer(self.trtconv, self.source, self.driver, runtimes, self.labels, self.cast_by or {}).to_json()

    @property
    def resources(self) -> dict[str, float]:
        """Names of all that jobs can ask of it; one job at a time."""
        offered = [(info, label) for info in self.runtimes for label in (None, *self.labels)]
        return {resource(self.source, info.family, info.version, label): 1.0 for info, label in offered}


def resource(source: str, family: str, version: str, gpu: str | None) -> str:
    """Returns the name of a TensorRT, and maybe a GPU, of machines with the same trtconv."""
    return f"trtconv-{source}:{family}-{version}@{gpu or '*'}"


def read_machine(text: Any, name: str) -> Machine | None:
    """Reads what a machine says of itself, as JSON; None where it is no worker of trtconv's."""
    try:
        offer = decoded(Offer, json_of(text))
    except (Fault, TypeError):
        return None
    runtimes, labels = tuple(map(_runtime, offer.runtimes)), offer.labels[:MOST_LABELS]
    return Machine(runtimes, labels, offer.driver, offer.cast_by, offer.trtconv, offer.source, clean(name))


def _runtime(offered: OfferedRuntime) -> RuntimeInfo:
    has = {field.name: offered.capabilities.get(field.name) is True for field in dataclasses.fields(Capabilities)}
    return RuntimeInfo(offered.family, offered.version, offered.gpu, Capabilities(**has))


def this_machine(gpu: str | None = None) -> Machine:
    """Returns what this machine offers. Loads every TensorRT that is installed.

    Args:
        gpu: What its GPU is to be called; None: as CUDA says it.
    """
    from trtconv.precision import apply

    card = tensorrt.card()
    if (
        gpu is not None
        and _CAPABILITY.fullmatch(gpu_label(gpu))
        and gpu_label(gpu) not in (gpu_labels(card.name, card.capability) if card else ())
    ):
        raise InputError(
            f"--gpu {gpu}: the driver says a compute capability, and here it is {_capability(card)}",
            "Give the name of the GPU, or leave --gpu out.",
        )
    labels = gpu_labels(card.name, card.capability) if card else ()
    if gpu is not None:
        labels = (gpu_label(gpu), *(label for label in labels if label.startswith("cc")))
    infos = [tensorrt.load(Target(status.family)).info for status in tensorrt.available() if status.works]
    driver = card.driver if card else None
    return Machine(tuple(infos), labels, driver, apply.tools(), source=source_checksum())


def _capability(card: Any) -> str:
    own = (
        next((label for label in gpu_labels(card.name, card.capability) if _CAPABILITY.fullmatch(label)), "")
        if card
        else ""
    )
    return own or "none that it knows"


def describe(gpu: str | None, _: Tell) -> dict[str, object]:
    """Returns what this machine offers as JSON; for a process of its own, which TensorRT does not stay in."""
    return this_machine(gpu).to_json()


@frozen
class Choice:
    """The machines that can do a build, all alike as far as it asks.

    Args:
        infos: The TensorRTs there, which differ in the GPU alone.
        cast_by: What casts depend on there, each different one.
        resource: What a job asks for.
        others: What machines with another version of TensorRT have, or the same; their engines are up to date, too.
        strangers: Names of machines that could, and have another trtconv.
    """

    infos: tuple[RuntimeInfo, ...]
    cast_by: tuple[Any, ...]
    resource: str
    others: tuple[RuntimeInfo, ...] = ()
    strangers: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Version of that TensorRT."""
        return self.infos[0].version


def choose(target: Target | None, machines: Sequence[Machine]) -> Choice | None:
    """Returns who can build for a target; None where nobody can.

    Args:
        target: What is asked for; None: TensorRT where a machine has it, else TensorRT-RTX.
        machines: All that there are.

    Raises:
        InputError: There are several kinds of GPU, and the target says none.
        EnvironmentMissing: Only machines with another version of trtconv could.
    """
    candidates = _fitting(target, machines)
    same = [(machine, info) for machine, info in candidates if machine.source == source_checksum()]
    if candidates and not same:
        other = candidates[0][0]
        raise EnvironmentMissing(
            f"{other.name} has trtconv {clean(other.trtconv)} ({clean(other.source)}), and this is {__version__} "
            f"({source_checksum()})",
            "Install the same version of trtconv on all machines.",
        )
    if not same:
        return None
    family = same[0][1].family
    every = tuple(dict.fromkeys(info for _, info in same if info.family == family))
    casts = tuple(machine.cast_by for machine, info in same if info.family == family)
    strangers = tuple(sorted({machine.name for machine, _ in candidates} - {machine.name for machine, _ in same}))
    newest = max((info.version for _, info in same), key=_order)
    same = [(machine, info) for machine, info in same if info.version == newest]
    gpus = {info.gpu: info for _, info in same}
    if family == "tensorrt" and len(gpus) > 1 and (target is None or target.gpu is None):
        offered = " or ".join(sorted({f"{family}@{machine.labels[0]}" for machine, _ in same if machine.labels}))
        raise InputError(f"--target {target or 'auto'} does not say which GPU", f"Use {offered}.")
    name = resource(source_checksum(), family, newest, target.gpu if target else None)
    return Choice(tuple(gpus.values()), casts, name, every, strangers)


def _fitting(target: Target | None, machines: Sequence[Machine]) -> list[tuple[Machine, RuntimeInfo]]:
    if target is None:
        return next((candidates for family in FAMILIES if (candidates := _fitting(Target(family), machines))), [])
    return [
        (machine, info)
        for machine in machines
        if target.gpu is None or target.gpu in machine.labels
        for info in machine.runtimes
        if target.fits(info.family, info.version)
    ]


def _order(version: str) -> list[int]:
    return [int(part) if part.isdecimal() else 0 for part in version.split(".")]
