"""Where the nodes of a rewritten model stand in the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from trtconv.core.findings import Finding, Location
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope


class Origin:
    """Remembers where each node of a model is, so that findings about the rewritten model name the place in the file.

    Args:
        model: The model as it was loaded; what is remembered stays when it is rewritten.
    """

    def __init__(self, model: OnnxModel) -> None:
        self._names = {scope.path: scope.columns.names for scope in model.scopes}
        self._ops = {scope.path: scope.columns.ops for scope in model.scopes}
        self._producers = {scope.path: scope.producers for scope in model.scopes}
        self._named: dict[str, dict[str, list[int]]] = {}

    def place(self, findings: Iterable[Finding], judged: OnnxModel) -> tuple[Finding, ...]:
        """Returns findings with the indices that their nodes have in the file; nodes that are not there have none.

        Args:
            findings: Their indices are those of the judged model.
            judged: The model that they are about.
        """
        scopes = {scope.path: scope for scope in judged.scopes}
        return tuple(
            dataclasses.replace(f, location=dataclasses.replace(f.location, index=self._index(f.location, scopes)))
            for f in findings
        )

    def _index(self, location: Location, scopes: Mapping[str, Scope]) -> int | None:
        if location.index is None:
            return None
        ops = self._ops.get(location.graph, ())
        indices = self._indices(location.graph).get(location.node, ()) if location.node else ()
        if len(indices) == 1:
            return indices[0] if ops[indices[0]] == location.op else None
        # Without a name of its own a node is known by what it makes.
        scope = scopes.get(location.graph)
        if scope is None or not 0 <= location.index < len(scope.columns.outputs):
            return None
        producers = self._producers.get(location.graph, {})
        places = {producers[name] for name in scope.columns.outputs[location.index] if name in producers}
        return next((index for index in places if ops[index] == location.op), None)

    def _indices(self, graph: str) -> Mapping[str, Sequence[int]]:
        """Returns where the nodes of each name are; found out when it is first asked for, mostly never."""
        if graph not in self._named:
            indices: dict[str, list[int]] = {}
            for index, name in enumerate(self._names.get(graph, ())):
                indices.setdefault(name, []).append(index)
            self._named[graph] = indices
        return self._named[graph]
