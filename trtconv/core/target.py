"""Which TensorRT a model is made for: its family and version."""

from __future__ import annotations

import re
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.gpus import gpu_label
from trtconv.core.suggest import did_you_mean


@frozen
class Family:
    """One of NVIDIA's products that build engines.

    Args:
        product: Its name.
        module: The Python module.
        install: The command that installs it.
        majors: Versions whose rules are known. Which parser reads what differs from one to the next, so none is
            guessed.
    """

    product: str
    module: str
    install: str
    majors: range


FAMILIES = {
    "tensorrt": Family("TensorRT", "tensorrt", "pip install tensorrt", range(8, 12)),
    "rtx": Family("TensorRT-RTX", "tensorrt_rtx", "pip install tensorrt-rtx", range(1, 2)),
}
"""In the order in which the one to use is looked for."""


@frozen
class Target:
    """What an engine or a verdict is meant for. Rules and passes ask this, never TensorRT itself.

    Args:
        family: "rtx" (TensorRT-RTX) or "tensorrt".
        version: (major, minor) where known or asked for, else None.
        gpu: What the GPU is called, as `core.gpus` has it ("rtx-4090", "cc8.9"); None for any.
    """

    family: str
    version: tuple[int, ...] | None = None
    gpu: str | None = None

    def __str__(self) -> str:
        version = "" if self.version is None else f"-{'.'.join(str(part) for part in self.version)}"
        return self.family + version + ("" if self.gpu is None else f"@{self.gpu}")

    to_json = __str__

    def before(self, *version: int) -> bool:
        """True for the full TensorRT in a version older than the given one."""
        return self.family == "tensorrt" and self.version is not None and self.version < version

    @property
    def max_opset(self) -> int:
        """Newest ONNX opset that the parser documents. Source: release notes of the ONNX parser."""
        if self.before(9):
            return 17
        if self.before(10, 5):
            return 20
        return 25 if self.family == "rtx" or not self.before(11) else 24

    @property
    def strided_dilated_deconv(self) -> bool:
        """Whether a deconvolution may have stride > 1 and dilation > 1. Source: builds on RTX 1.7, runs on 8.6."""
        return self.family == "tensorrt"

    @classmethod
    def of(cls, family: str, version: str) -> Target:
        """Returns what a TensorRT is: its family and (major, minor) of its full version, "1.7.1.116"."""
        return cls(family, tuple(int(part) for part in version.split(".")[:2] if part.isdigit()))

    @classmethod
    def parse(cls, text: str) -> Target | None:
        """Reads a `--target`: "auto" (None), "rtx", "tensorrt", "tensorrt-8.6", "rtx-1.7", "tensorrt-10@rtx-4090"."""
        if text == "auto":
            return None
        match = re.fullmatch(rf"({'|'.join(FAMILIES)})(?:-(\d+(?:\.\d+)*))?(?:@(.*\w.*))?", text)
        if match is None:
            hint = "Use auto, rtx, tensorrt or a version: tensorrt-8.6; and a GPU behind it: tensorrt-10@rtx-4090."
            other = re.fullmatch(r"(?:trt|tensorrt)[-_ ]?v?(\d+(?:\.\d+)*)", text, re.IGNORECASE)
            near = f"Did you mean tensorrt-{other[1]}?" if other else did_you_mean(text, ["auto", *FAMILIES], " ")
            raise InputError(f"--target {text!r} is unknown", f"{near} {hint}".strip())
        version = tuple(int(part) for part in match[2].split(".")) if match[2] else None
        return cls(match[1], version, gpu_label(match[3]) if match[3] else None)

    @classmethod
    def from_json(cls, value: Any) -> Target:
        """Reads the text that `to_json` makes."""
        target = cls.parse(str(value))
        if target is None:
            raise InputError(f"{value!r} does not say what an engine was built for", "Build it again.")
        return target

    def fits(self, family: str, version: str) -> bool:
        """Whether a TensorRT is of the family and version that are asked for; "10.13" is of version 10."""
        parts = [str(part) for part in self.version or ()]
        return family == self.family and version.split(".")[: len(parts)] == parts

    @classmethod
    def of_flag(cls, text: str) -> Target | None:
        """Reads what a user wrote for `--target`, as `parse` does.

        Raises:
            InputError: The version is one whose rules are not known.
        """
        target = cls.parse(text)
        version = None if target is None else target.version
        if target is not None and version is not None and version[0] not in FAMILIES[target.family].majors:
            names = ", ".join(f"{family}-{major}" for family, facts in FAMILIES.items() for major in facts.majors)
            raise InputError(f"--target {text!r}: that version's rules are not known", f"Known are {names}.")
        return target
