"""Where an engine runs, in words."""

from __future__ import annotations

from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.parts import RuntimeIdentity
from trtconv.core.runs_on import runs_on

RTX = RuntimeIdentity("rtx", "1.7.1.116", None)
TENSORRT = RuntimeIdentity("tensorrt", "8.6.0", "NVIDIA H100")


def test_engines_of_tensorrt_rtx_name_cards_and_what_does_not_load_them() -> None:
    found = runs_on(RTX, BuilderOptions())
    assert found.loader == "TensorRT-RTX 1.7.1.116 alone, not TensorRT, trtexec or Triton"
    assert "RTX 40 series and L4 (8.9)" in found.cards
    assert "T4 (7.5)" not in found.cards


def test_asked_for_capabilities_are_all() -> None:
    found = runs_on(RTX, BuilderOptions(compute_capabilities=("7.5", "9.9"), version_compatible=True))
    assert found.loader.startswith("TensorRT-RTX 1.7.1.116 and newer,")
    assert found.cards == "RTX 20 series and T4 (7.5), GPUs of 9.9"


def test_engines_of_tensorrt_are_for_one_gpu_unless_asked_otherwise() -> None:
    assert runs_on(TENSORRT, BuilderOptions()) == ("TensorRT 8.6.0 alone, not TensorRT-RTX", "NVIDIA H100")
    for hardware, cards in (("ampere+", "all newer"), ("same-compute-capability", "the kind of NVIDIA H100")):
        found = runs_on(TENSORRT, BuilderOptions(hardware=hardware))
        assert cards in found.cards
