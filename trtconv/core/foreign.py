"""Code of others that a command was given and may load, as plugins and references; it goes into its processes too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from trtconv.core.agreement import AgreedCode, CodeFile, agreed
from trtconv.core.documents.parts import CodeIdentity
from trtconv.core.frozen import frozen


@frozen
class ForeignCode:
    """Code of others that was agreed to.

    Args:
        plugins: Libraries for TensorRT to load.
        serialized: Those of them that go into the engine.
        references: Python files that say what operators compute.
        extensions: Python files that may do so too, among other things.
        lean: The lean runtime of an engine that was built by another version of TensorRT; the last one counts.
    """

    plugins: tuple[AgreedCode, ...] = ()
    serialized: tuple[AgreedCode, ...] = ()
    references: tuple[AgreedCode, ...] = ()
    extensions: tuple[AgreedCode, ...] = ()
    lean: tuple[AgreedCode, ...] = ()

    @classmethod
    def of(cls, request: Any, extensions: Sequence[CodeFile] = ()) -> ForeignCode:
        """Returns what a request names; nothing is loaded yet.

        Args:
            request: One with `plugins`, or some of the fields about code.
            extensions: The files of its extensions.

        Raises:
            InputError: A file cannot be read, or a configuration names it and the call does not agree.
        """
        names = ("plugins", "serialized_plugins", "references", "lean_runtime")
        plugins, serialized, references, lean = (tuple(getattr(request, name, ())) for name in names)
        agreements = getattr(request, "agree", ())
        # All at once, so that one call can agree to all.
        agreed((*plugins, *serialized, *references, *extensions, *lean), agreements)
        own = agreed(serialized, agreements)
        every = tuple(dict.fromkeys((*agreed(plugins, agreements), *own)))
        reference_code, extension_code = agreed(references, agreements), agreed(extensions, agreements)
        return cls(every, own, reference_code, extension_code, agreed(lean, agreements))

    @property
    def plugin_identities(self) -> tuple[CodeIdentity, ...]:
        """The libraries by name and SHA-256."""
        return tuple(
            CodeIdentity(plugin.path.name, plugin.sha256, plugin in self.serialized or None) for plugin in self.plugins
        )

    @property
    def reference_identities(self) -> tuple[CodeIdentity, ...]:
        """The references by name and SHA-256."""
        return tuple(CodeIdentity(reference.path.name, reference.sha256) for reference in self.references)


_NONE = ForeignCode()
_current: ContextVar[ForeignCode] = ContextVar("foreign", default=_NONE)


def current() -> ForeignCode:
    """Returns what may be loaded here."""
    return _current.get()


@contextlib.contextmanager
def using(code: ForeignCode) -> Iterator[None]:
    """Lets code be loaded by what is called inside."""
    token = _current.set(code)
    try:
        yield
    finally:
        _current.reset(token)
