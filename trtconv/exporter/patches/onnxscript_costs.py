"""What onnxscript does for every file and nothing comes of, left out while torch's exporter writes.

It parses the source of each operator that it could write, of which it takes the domain, and it holds each of its
patterns to each node: for those of several outputs it sorts all nodes of the graph anew every time.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from trtconv.exporter.patches import patch, replaced


@patch("onnxscript_costs")
@contextlib.contextmanager
def idle_work_left_out() -> Iterator[None]:
    """While active, operators are parsed when somebody asks, and patterns are held to nodes of their type only."""
    from onnxscript import TracedOnnxFunction

    with contextlib.ExitStack() as patches:
        parsed = vars(TracedOnnxFunction).get("function_ir")
        if isinstance(parsed, property) and parsed.fget is not None:
            unread = property(functools.partial(_Unread, parsed.fget))
            patches.enter_context(replaced(TracedOnnxFunction, "function_ir", unread))
        with contextlib.suppress(ImportError):
            from onnxscript.rewriter._matcher import SimplePatternMatcher

            matched = functools.partialmethod(_matched, SimplePatternMatcher.match)
            patches.enter_context(replaced(SimplePatternMatcher, "match", matched))
        yield


class _Unread:
    """What onnxscript reads out of the source of an operator, read where more than its domain is asked for."""

    def __init__(self, read: Callable[[Any], Any], function: Any) -> None:
        self.domain = function.opset.domain
        self._read = functools.partial(read, function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read(), name)


def _matched(matcher: Any, match: Callable[..., Any], model: Any, graph: Any, node: Any, **named: Any) -> Any:
    """Stands in for `SimplePatternMatcher.match`, whose first question is the type of the node."""
    if not matcher.pattern.output_nodes[0].op.matches(node.op_type):
        return None
    return match(matcher, model, graph, node, **named)
