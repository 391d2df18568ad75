"""Who of several machines can build what is asked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from support.runtime import RTX, TENSORRT_8
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.files import source_checksum
from trtconv.core.gpus import gpu_labels
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target
from trtconv.engine.farm.machines import Machine, choose, read_machine, this_machine
from trtconv.engine.farm.planning import Planned
from trtconv.runtimes.tensorrt import RuntimeInfo


def machine(name: str, gpu: str | None, capability: str | None, *versions: str) -> Machine:
    infos = tuple(
        RuntimeInfo(*version.split("-"), gpu, RTX if version.startswith("rtx") else TENSORRT_8) for version in versions
    )
    return Machine(infos, gpu_labels(gpu, capability), "12.4", {"onnx": "1"}, source=source_checksum(), name=name)


H100 = machine("a", "NVIDIA H100 80GB HBM3", "9.0", "tensorrt-8.6.0", "tensorrt-10.3.0")
PCIE = machine("b", "NVIDIA H100 PCIe", "9.0", "tensorrt-8.6.0")
L4 = machine("c", "NVIDIA L4", "8.9", "tensorrt-10.13.3", "rtx-1.7.1")
NONE = machine("d", None, None, "rtx-1.7.1")
ALL = (H100, PCIE, L4, NONE)


@pytest.mark.parametrize(
    ("asked", "resource", "gpus"),
    [
        ("tensorrt-8.6@h100", "tensorrt-8.6.0@h100", {"NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"}),
        ("tensorrt@h100-pcie", "tensorrt-8.6.0@h100-pcie", {"NVIDIA H100 PCIe"}),
        ("tensorrt@cc9.0", "tensorrt-10.3.0@cc9.0", {"NVIDIA H100 80GB HBM3"}),
        ("tensorrt-10@L4", "tensorrt-10.13.3@l4", {"NVIDIA L4"}),
        ("rtx", "rtx-1.7.1@*", {"NVIDIA L4", None}),
    ],
)
def test_choice(asked: str, resource: str, gpus: set[str | None]) -> None:
    choice = choose(Target.of_flag(asked), ALL)
    assert choice is not None
    assert choice.resource == f"trtconv-{source_checksum()}:{resource}"
    assert {info.gpu for info in choice.infos} == gpus
    assert sum(choice.resource in each.resources for each in ALL) >= len(gpus)


@pytest.mark.parametrize("asked", ["tensorrt@rtx-4090", "tensorrt-11", "rtx@h100", "tensorrt-10@h100-pcie"])
def test_nobody(asked: str) -> None:
    assert choose(Target.of_flag(asked), ALL) is None


def test_the_target_has_to_say_which_of_several_gpus() -> None:
    with pytest.raises(InputError, match="does not say which GPU") as raised:
        choose(Target("tensorrt", (8, 6)), ALL)
    assert raised.value.hint == "Use tensorrt@h100-80gb-hbm3 or tensorrt@h100-pcie."
    only = choose(Target("tensorrt", (8, 6)), (PCIE, NONE))
    assert only is not None
    assert only.version == "8.6.0"
    automatic = choose(None, (L4, NONE))
    assert automatic is not None
    assert automatic.version == "10.13.3"


def test_another_version_of_trtconv_is_told() -> None:
    old = dataclasses.replace(L4, source="feedfeedfeedfeed", trtconv="0.0.1")
    with pytest.raises(EnvironmentMissing, match=r"c has trtconv 0\.0\.1 \(feedfeedfeedfeed\)"):
        choose(Target("rtx", None, "l4"), (old, NONE))
    both = choose(Target("rtx"), (old, NONE))
    assert both is not None
    assert len(both.infos) == 1


def test_what_a_machine_says_of_itself_is_read_again() -> None:
    assert read_machine(json.dumps(H100.to_json()), "a") == H100
    for wrong in ("", "[]", "{}", None, 7, json.dumps({**H100.to_json(), "runtimes": [{"family": 1}]}), "[" * 100_000):
        assert read_machine(wrong, "x") is None
    lacking = H100.to_json()
    del lacking["runtimes"][0]["family"]
    assert read_machine(json.dumps(lacking), "x") is None
    assert (
        read_machine(json.dumps({"more": 1, **{k: v for k, v in H100.to_json().items() if k != "source"}}), "x") is None
    )
    named = read_machine(json.dumps(H100.to_json()), "a\x1b[2J\n::error::")
    assert named is not None
    assert named.name.isprintable()


def test_an_upgraded_worker_makes_no_engine_of_the_others_stale() -> None:
    old, new, stranger = (
        Machine((RuntimeInfo("rtx", version, None, RTX),), cast_by={"onnx": cast}, source=source, name=name)
        for version, cast, source, name in (
            ("1.6.0", "1", source_checksum(), "old"),
            ("1.7.1", "2", source_checksum(), "new"),
            ("1.8.0", "2", "another", "stranger"),
        )
    )
    choice = choose(Target("rtx"), (old, new, stranger))
    assert choice is not None
    assert (choice.version, {info.version for info in choice.others}) == ("1.7.1", {"1.6.0", "1.7.1"})
    assert (choice.cast_by, choice.strangers) == (({"onnx": "1"}, {"onnx": "2"}), ("stranger",))
    told = Planned(BuildRequest(Path("m.onnx"), target=Target("rtx")), "to-build", choice=choice)
    assert told.record().version == "1.7.1"
    assert ["1.6.0" in note for note in told.notes] == [True, False]
    assert "stranger" in told.notes[1]
    alone = choose(Target("rtx"), (new,))
    assert alone is not None
    assert Planned(told.request, "to-build", choice=alone).notes == ()


def test_a_compute_capability_is_the_drivers_to_say() -> None:
    with pytest.raises(InputError, match=r"cc8\.9"):
        this_machine("cc8.9")
