"""Which findings count: `--select` and `--ignore`, and the ignores of a configuration with their reasons."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from trtconv.core.errors import InputError
from trtconv.core.findings import Finding, Ignored
from trtconv.core.frozen import frozen
from trtconv.core.suggest import did_you_mean

_CODE = re.compile(r"TC\d{0,3}|(?!TC)[A-Z][A-Z0-9]{1,11}\d{3}")
_HINT = "'trtconv rule' lists them; TC3 means all TC3xx."


@frozen
class Selection:
    """A choice among findings, by rule code ("TC101"), the beginning of one ("TC3"), or rule name.

    Args:
        select: What counts; empty: everything.
        ignore: What does not count, to the reason; stronger than `select`.
    """

    select: tuple[str, ...] = ()
    ignore: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for selector in (*self.select, *self.ignore):
            if not _CODE.fullmatch(selector) and not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", selector):
                raise InputError(f"{selector!r} is not a rule code", _HINT)

    @classmethod
    def parse(cls, select: Iterable[str], ignore: Iterable[str]) -> Selection:
        """Reads what `--select` and `--ignore` were given; codes may be joined by commas."""
        codes = [code.strip() for text in select for code in text.split(",")]
        left_out = [code.strip() for text in ignore for code in text.split(",")]
        return cls(tuple(codes), dict.fromkeys(left_out, ""))

    def require(self, rules: Mapping[str, str]) -> None:
        """Refuses what means no rule: a misspelt code would let everything pass, or would be ignored in vain.

        Args:
            rules: Codes of all rules to their names.

        Raises:
            InputError: No rule is meant by one of `select` or `ignore`.
        """
        for selector in self.unmet(rules):
            verb = "selected" if selector in self.select else "ignored"
            choices = rules.keys() if selector.isupper() else rules.values()
            raise InputError(f"no rule is {verb} by {selector!r}", did_you_mean(selector, choices, _HINT))

    def unmet(self, rules: Mapping[str, str]) -> tuple[str, ...]:
        """Returns what of `select` and `ignore` means none of some rules, codes to names."""
        selectors = (*self.select, *self.ignore)
        return tuple(s for s in selectors if not any(_means(s, code, name) for code, name in rules.items()))

    def divide(self, findings: Iterable[Finding]) -> tuple[tuple[Finding, ...], tuple[Ignored, ...]]:
        """Returns the findings that count, and those that are to be ignored; what is not selected is in neither."""
        active: list[Finding] = []
        ignored: list[Ignored] = []
        for finding in findings:
            reason = next((why for selector, why in self.ignore.items() if _finds(selector, finding)), None)
            if reason is not None:
                ignored.append(Ignored(finding, reason))
            elif not self.select or any(_finds(selector, finding) for selector in self.select):
                active.append(finding)
        return tuple(active), tuple(ignored)


def _finds(selector: str, finding: Finding) -> bool:
    return _means(selector, finding.code, finding.name)


def _means(selector: str, code: str, name: str) -> bool:
    return selector == name or (selector.isupper() and code.startswith(selector))
