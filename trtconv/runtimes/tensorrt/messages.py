"""What TensorRT says, made fit for people: source positions out, the reason kept, profile faults recognised.

The texts are NVIDIA's and change between versions. Nothing here decides whether a model is accepted; where a text is
not understood it is passed on as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trtconv.core import codes
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.findings import Finding, Location
from trtconv.core.frozen import frozen
from trtconv.core.process import address_space

# Patterns are texts, which re compiles where they are first used: that takes long, and most builds use few of them.
# Said on every failure of a machine without a GPU, next to the real reason.
_NO_GPU_NOISE = r"catchCudaError|cudaError 35|CUDA initialization failure with error: 35"
_SOURCE = r"\s*\bIn \S+ at \S+?:\d+\)?(?=[\s).]|$)|\s*Instruction: [A-Z_]+(?: -?\d+)*\.?"
_PREFIX = r"^(?:\d+: )?(?:\[[\w.]+::\w+::\d+\]\s*)?(?:\w+::\w+: )?(?:\[[\w.]+::\w+::\d+\]\s*)?"
_CODE = r"(?s)^Error Code \d+: [\w ]+ ?\((.*)$"
_ASSERTION = r"(?s)^Assertion failed: .*?: (?=\S)"
_QUOTED_REASON = r'&&\s*((?:"[^"]*"\s*)+)$'
_MYELIN = r"^\[[\w.]+:\d+: \w+\]\s*(?:\w+Exception: )?(?:[\w.]+:\d+: )?(?:CHECK\(.*?\) failed\.? ?)?"
_INVALID_NODE = r"(?m)^Invalid Node - .*$"

_PROFILE_ERROR = r"(?s)k(MIN|OPT|MAX) values for profile (\d+) violate shape constraints: (.*)"
_PROFILE_WARNING = r"(?s)Profile k(MIN|OPT|MAX) values are not self-consistent\.? (.*)"
_VIOLATED = r"Condition '(\S+)' violated: (-?\d+ \S+ -?\d+)"
_MISFIT = r"Dimension mismatch for tensor (\S+) and profile (\d+)|satisfy MIN<=OPT<=MAX"
NARROWER = "Give the dynamic dimensions narrower ranges, or fix one of them."
_REMEDIES = (
    (r"tensor volume exceeds", "Give smaller sizes: --dim NAME=MIN:OPT:MAX."),
    (r"workspace", "Allow more with --workspace 4G, or leave it out."),
    (r"bad_alloc", NARROWER),
    (
        r"equal ranks when condition|ScopeType|IConditionalOutputLayer",
        "It is about the If nodes of the model: export it without them, or fold them (trtconv rule TC619).",
    ),
    (
        r"ISqueezeLayer without an axes input",
        "It is about a Squeeze without axes: name them, or write the size into the file (trtconv rule TC620).",
    ),
    (
        r"(?s)Error during shape inference of.*= scatter_elements\(",
        "It is about a ScatterElements with more indices along its axis than there are places: some repeat, and ONNX"
        " does not say which counts. torch's older exporter writes index_add so, and loses what repeats: export with"
        " dynamo=True, whose ScatterND adds.",
    ),
)
"""Parts of the builder's texts, and what to do."""
# Memory of this machine, not of the GPU: ENOMEM, and EAGAIN, which is what starting a thread ends with.
_NO_MEMORY = "annot allocate memory|Resource temporarily unavailable"
# Where nothing limits it, the builder asked for more than any machine has, as RTX 1.7 does of some networks.
_NO_MEMORY_IN_LIMITS = f"bad_alloc|{_NO_MEMORY}"
_REDUCE = "trtconv reduce with the same arguments finds the smallest part of the model that is refused."
_ENGINE_STARTS = r"^Detected \d+ inputs? and \d+ output network tensors?"


def clean(text: str) -> str:
    """Returns a message without source positions, error-code wrappers and the noise of a machine without a GPU."""
    lines = re.sub(_INVALID_NODE, "", text).splitlines()
    lines = [_clean_line(line) for line in lines if not re.search(_NO_GPU_NOISE, line)]
    rest = list(dict.fromkeys(line for line in lines if line))
    return "\n".join(rest) or text.strip()


def refusal(text: str) -> str:
    """Cleans the reason why the parser refused a node."""
    cleaned = clean(text)
    # The whole text for an operator that the parser knows by name and never imports.
    return "the parser does not support this operator" if cleaned == "false" else cleaned


def _clean_line(line: str) -> str:
    line = re.sub(_SOURCE, "", re.sub(_PREFIX, "", line.strip()))
    wrapped = re.match(_CODE, line)
    if wrapped:
        line = re.sub(_MYELIN, "", wrapped[1])
        if line.count(")") > line.count("("):
            line = line[: line.rindex(")")] + line[line.rindex(")") + 1 :]
        elif line.count("(") > line.count(")"):
            line = line.removeprefix("(")
    line = re.sub(_ASSERTION, "", line)
    quoted = re.search(_QUOTED_REASON, line)
    if quoted:
        line = "".join(re.findall(r'"([^"]*)"', quoted[1]))
    return line.strip()


def distinct(texts: Iterable[str]) -> list[str]:
    """Cleans messages and drops repetitions and those that were only noise."""
    cleaned = [clean(text) for text in texts if not re.search(_NO_GPU_NOISE, text) or "\n" in text]
    return list(dict.fromkeys(cleaned))


@frozen
class Record:
    """One message that TensorRT logged.

    Args:
        severity: Name of the severity: "INTERNAL_ERROR", "ERROR", "WARNING" or "INFO".
        text: The message as it came.
    """

    severity: str
    text: str

    @property
    def is_error(self) -> bool:
        """Whether it tells of a failure."""
        return self.severity in ("ERROR", "INTERNAL_ERROR")


def profile_findings(records: Sequence[Record], profiles: int) -> tuple[Finding, ...]:
    """Finds what the builder said about profiles whose sizes the network cannot take.

    Args:
        records: All that was logged during the build, in order.
        profiles: Number of profiles that were given.

    Returns:
        One TC404 finding a distinct fault. TensorRT only warns about an impossible minimum or maximum and writes an
        engine that fails at run time, so its warning counts as much as its error.
    """
    starts = sum(1 for r in records if re.match(_ENGINE_STARTS, r.text))
    # The warning does not say which profile it means. The builder goes through them in order and announces each;
    # that tells which, unless it announced more than there are (several engines inside one).
    countable = starts <= profiles
    findings: dict[str, Finding] = {}
    count = 0
    for record in records:
        count += bool(re.match(_ENGINE_STARTS, record.text))
        finding = _profile_finding(record.text, count - 1 if countable and count else (0 if profiles == 1 else None))
        if finding is not None:
            findings.setdefault(finding.message, finding)
    return tuple(findings.values())


def _profile_finding(text: str, current: int | None) -> Finding | None:
    error = re.search(_PROFILE_ERROR, text)
    warning = re.search(_PROFILE_WARNING, text)
    if error:
        return _inconsistent(error[1], int(error[2]), error[3])
    if warning:
        return _inconsistent(warning[1], current, warning[2])
    if re.search(_MISFIT, text):
        return _finding(clean(text), Location())
    return None


def _inconsistent(which: str, profile: int | None, reason: str) -> Finding:
    reason = clean(reason)
    layer, _, rest = reason.partition(": ")
    if not rest or " " in layer.strip():
        layer, rest = "", reason
    violated = re.search(_VIOLATED, rest)
    what = rest.split(". ")[0].strip().rstrip(".")
    sizes = f" ({violated[2]})" if violated else ""
    number = "a profile" if profile is None else f"profile {profile}"
    at = f'layer "{layer}": ' if layer else ""
    message = f"the {which.lower()} sizes of {number} do not fit the network: {at}{what}{sizes}"
    return _finding(message, Location(node=layer))


def _finding(message: str, location: Location) -> Finding:
    fix = "Choose sizes that the network accepts at min, opt and max; `trtconv sizes MODEL` lists them."
    return codes.PROFILE_INCONSISTENT.finding(message, place=location, fix=fix)


def require_memory(records: Sequence[Record]) -> None:
    """Raises EnvironmentMissing where the builder says that the system gave it no memory, or no thread."""
    lack = _NO_MEMORY if address_space() is None else _NO_MEMORY_IN_LIMITS
    if any(record.is_error and re.search(lack, record.text) for record in records):
        raise EnvironmentMissing(
            "TensorRT's builder got no memory from the system", "Use a machine with more, or raise ulimit -v."
        )


def refusal_findings(records: Sequence[Record]) -> tuple[Finding, ...]:
    """Makes one TC403 finding a distinct error that the builder logged; one that says so where it logged none."""
    texts = distinct(record.text for record in records if record.is_error)
    texts = texts or ["TensorRT's builder refused the network without giving a reason"]
    return tuple(codes.BUILDER_REFUSED.finding(text, fix=_remedy(text)) for text in texts)


def _remedy(text: str) -> str:
    return next((fix for pattern, fix in _REMEDIES if re.search(pattern, text)), _REDUCE)
