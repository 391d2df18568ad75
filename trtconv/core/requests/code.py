"""The options that name code of others: libraries of plugins, references, and passes and rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trtconv.core.agreement import CodeFile, code_option
from trtconv.core.options import Flag, Option


def _libraries(*paths: Sequence[str]) -> tuple[CodeFile, ...]:
    return CodeFile.named([path for paths in paths for path in paths])


_PLUGIN: Option = code_option(
    "--plugin",
    "Load a library of TensorRT plugins, wherever the model is parsed, built or run. Repeatable.",
    metavar="LIB",
    key="plugins",
    about="Libraries of TensorRT plugins; each needs --agree SHA256 on the command line.",
)
PLUGINS: Any = _PLUGIN._replace(
    flags=(
        *_PLUGIN.flags,
        Flag("--staticPlugins", "trtexec's spelling of --plugin.", metavar="LIB", many=True, absent=()),
        Flag("--dynamicPlugins", "Likewise.", metavar="LIB", many=True, absent=()),
    ),
    read=_libraries,
)
"""Libraries of plugins that are loaded."""

SERIALIZED_PLUGINS: Any = code_option(
    "--setPluginsToSerialize",
    "Load a library of plugins, and put a copy of it into the engine, which then needs --trust. Repeatable.",
    metavar="LIB",
    key="plugins-to-serialize",
    about="Libraries of TensorRT plugins that go into the engine; each needs --agree SHA256 on the command line.",
)
"""Libraries of plugins that go into the engine."""

LEAN_RUNTIME: Any = code_option(
    "--lean-runtime",
    "Run the engine with this library (libnvinfer_lean.so), of the version that built it: of an engine that was built "
    "with --version-compatible --exclude-lean-runtime.",
    metavar="LIB",
    key="",
    about="",
)._replace(settings={}, load=None, save=None)
"""The lean runtime of an engine that has none in it; the last one that is named counts."""

REFERENCES: Any = code_option(
    "--reference",
    "Run a Python file with functions that say what operators of your own compute (docs/plugins.md). Repeatable.",
    metavar="FILE.py",
    key="references",
    about="Python files that say what operators compute; each needs --agree SHA256 on the command line.",
)
"""Files with references."""

EXTEND: Any = code_option(
    "--extend",
    "Run a Python file of passes, rules and operators of your own (docs/extending.md), or the extension of that name "
    "that a package offers (trtconv extension list). Repeatable.",
    metavar="FILE.py|NAME",
    key="extend",
    about="Files of passes and rules of your own, or names of installed extensions; each needs --agree SHA256 on the "
    "command line.",
)
"""Files of passes, rules and operators of the user's own."""
