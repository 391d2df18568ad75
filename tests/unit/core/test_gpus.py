"""What GPUs are called, and targets that name one."""

from __future__ import annotations

import pytest

from trtconv.core.errors import InputError
from trtconv.core.gpus import gpu_label, gpu_labels
from trtconv.core.target import Target


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("NVIDIA H100 80GB HBM3", ("h100-80gb-hbm3", "h100")),
        ("NVIDIA H100 PCIe", ("h100-pcie", "h100")),
        ("NVIDIA A100-SXM4-40GB", ("a100-sxm4-40gb", "a100")),
        ("NVIDIA GeForce RTX 4090", ("rtx-4090",)),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", ("rtx-4090-laptop-gpu", "rtx-4090-laptop")),
        ("NVIDIA GeForce RTX 4060 Ti", ("rtx-4060-ti",)),
        ("NVIDIA RTX 6000 Ada Generation", ("rtx-6000-ada-generation", "rtx-6000-ada")),
        ("Tesla T4", ("t4",)),
        ("NVIDIA L4", ("l4",)),
        ("Orin", ("orin",)),
    ],
)
def test_labels(name: str, labels: tuple[str, ...]) -> None:
    assert gpu_labels(name) == labels
    assert gpu_labels(name, "8.9") == (*labels, "cc8.9")
    assert gpu_label(labels[0]) == labels[0]


def test_no_gpu_answers_to_nothing() -> None:
    assert gpu_labels(None) == ()


def test_targets_with_a_gpu() -> None:
    asked = Target.of_flag("tensorrt-8.6@NVIDIA H100 80GB HBM3")
    assert asked == Target("tensorrt", (8, 6), "h100-80gb-hbm3")
    assert str(Target.of_flag("rtx@cc8.9")) == "rtx@cc8.9"
    assert Target.of_flag(str(asked)) == asked
    for wrong in ("rtx@", "@h100", "auto@h100", "rtx@--"):
        with pytest.raises(InputError):
            Target.of_flag(wrong)


def test_which_version_is_meant() -> None:
    assert Target("tensorrt", (10,)).fits("tensorrt", "10.13.3.9")
    assert not Target("tensorrt", (10, 1)).fits("tensorrt", "10.13.3.9")
    assert not Target("tensorrt").fits("rtx", "1.7")
