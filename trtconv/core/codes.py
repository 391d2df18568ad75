"""Codes of the findings that no rule makes: what TensorRT, its builder and the cast say. Rules hold their own."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from trtconv.core.findings import Finding, Location, Severity


class CodeFamily(enum.Enum):
    """What the findings of one hundred of codes are about."""

    MODEL = 0
    DECONVOLUTION = 1
    SIZES = 2
    QUANTIZATION = 3
    TENSORRT = 4
    PRECISION = 5
    OPERATORS = 6
    EXTENSION = "extension"
    """What somebody else's rules say."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(
            f"codes of TC{value} have no family: take one of another family, or add this one to CodeFamily of "
            "trtconv/core/codes.py"
        )

    @classmethod
    def of(cls, code: str) -> CodeFamily:
        """Returns the family of a code, "TCnnn" or that of an extension."""
        return cls(int(code[2])) if re.fullmatch(r"TC\d{3}", code) else cls.EXTENSION


class Code(NamedTuple):
    """A kind of finding.

    Args:
        code: "TCnnn"; never reused.
        name: The fault, in a few words joined by hyphens.
    """

    code: str
    name: str

    def finding(
        self, message: str, severity: Severity = Severity.ERROR, place: Location | None = None, fix: str = ""
    ) -> Finding:
        """Makes a finding of this kind; arguments as of `Finding`."""
        return Finding(self.code, self.name, message, severity, place or Location(), fix)


SHAPE_TENSOR_INPUT = Code("TC205", "shape-tensor-input")
GPU_MEMORY_SHORT = Code("TC208", "gpu-memory-short")
PARSER_REFUSED = Code("TC401", "parser-refused")
NETWORK_DIFFERS = Code("TC402", "network-differs")
BUILDER_REFUSED = Code("TC403", "builder-refused")
PROFILE_INCONSISTENT = Code("TC404", "profile-inconsistent")
OPTION_MISSING = Code("TC405", "option-missing")
GPU_LIMIT = Code("TC406", "gpu-limit")
TIMING_CACHE_UNUSED = Code("TC407", "timing-cache-unused")
OUTPUT_MISDECLARED = Code("TC409", "output-misdeclared")
PROOF_INCOMPLETE = Code("TC410", "proof-incomplete")
UPGRADE_REGRESSION = Code("TC411", "upgrade-regression")
PARSED_OTHERWISE = Code("TC412", "parsed-otherwise")
TACTIC_OTHER = Code("TC413", "tactic-other")
PLUGIN_OFFERED = Code("TC414", "plugin-offered")
CAST_NOT_VERIFIED = Code("TC511", "cast-not-verified")
CAST_NOT_FINITE = Code("TC512", "cast-not-finite")
CAST_INACCURATE = Code("TC513", "cast-inaccurate")
OF_TENSORRT = frozenset(
    code.code
    for code in (
        PARSER_REFUSED,
        NETWORK_DIFFERS,
        BUILDER_REFUSED,
        PROFILE_INCONSISTENT,
        OPTION_MISSING,
        GPU_LIMIT,
        TIMING_CACHE_UNUSED,
        OUTPUT_MISDECLARED,
        PROOF_INCOMPLETE,
    )
)
"""Codes behind which are many reasons: what TensorRT says."""
