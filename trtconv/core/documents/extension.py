"""What `trtconv extension` tells."""

from __future__ import annotations

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class TriedPart(Document):
    """One thing that an extension was tried at.

    Args:
        of: What was tried: "pass acme-fold-scale".
        what: "page", "contract", "idempotence", "equality", "shapes" or "use".
        passed: Whether it is as it must be.
        why: What is wrong, or how much was tried.
    """

    of: str
    what: str
    passed: bool
    why: str = ""


@frozen
class ExtensionReport(Document, keys="schema file sha256 owner trials exit_code"):
    """What `trtconv extension test` found.

    Args:
        file: The file.
        sha256: Of it.
        owner: Whose it says it is; empty for rules of rewriting.
    """

    file: str
    sha256: str
    owner: str
    trials: tuple[TriedPart, ...]

    @property
    def exit_code(self) -> int:
        """1 where something is not as it must be."""
        return 0 if all(trial.passed for trial in self.trials) else 1


@frozen
class InstalledExtension(Document):
    """An extension that an installed package offers.

    Args:
        name: What `--extend` calls it.
        package: The package, with its version.
        module: The module that would be run.
        sha256: Of the module's file; empty where that is not found.
    """

    name: str
    package: str
    module: str
    sha256: str = ""


@frozen
class ExtensionList(Document, keys="schema extensions exit_code"):
    """What `trtconv extension list` tells; none of it is loaded."""

    extensions: tuple[InstalledExtension, ...]
    exit_code: int = 0
