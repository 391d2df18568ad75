"""The page's section about rewrites: what became of which node, drawn where the model is at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trtconv.cli.formats.explain import alike, legend
from trtconv.cli.formats.page.drawings import graph_drawing, taps_drawing
from trtconv.cli.formats.page.gather import PageSubject, model_files
from trtconv.core.errors import InputError
from trtconv.explainer.changes import Change, changes

MOST_DRAWN = 10
"""Of more kinds of rewrites only the first are drawn."""
_MOST_NAMES = 12


def rewrites(subject: PageSubject) -> dict[str, object]:
    """Returns the rewrites, those that are alike together."""
    edits = subject.report.edits
    skipped = [skip.to_json() for skip in subject.report.skipped[:100]]
    entries, why_not = _changes(subject) if edits else ((), "")
    groups = _alike(entries)
    pictures = [_group(group) for group in groups[:MOST_DRAWN]]
    nodes = {edit.node for members in groups[:MOST_DRAWN] for change in members for edit in change.edits}
    rest = [edit.to_json() for edit in edits if edit.node not in nodes]
    return {"count": len(edits), "groups": pictures, "rest": rest[:200], "left": max(0, len(rest) - 200),
            "skipped": skipped, "why_not": why_not}  # fmt: skip


def _changes(subject: PageSubject) -> tuple[tuple[Change, ...], str]:
    """Returns what became of the model, and why that is not known where its file is not at hand."""
    model, plan = subject.report.model, subject.report.plan
    path = _model_file(subject)
    if path is None:
        return (), f"{model.path} is not here, so that its rewrites are listed and not drawn"
    from trtconv.graph.model import OnnxModel

    try:
        if OnnxModel.load(path).digest() != model.sha256:
            return (), f"{path} is not the model that was built any more, so that rewrites are listed and not drawn"
        forms = subject.report.forms
        return changes(path, plan.target, plan.precision, requantize=plan.requantize, forms=forms), ""
    except InputError as error:
        return (), f"{error.message}: rewrites are listed and not drawn"


def _model_file(subject: PageSubject) -> Path | None:
    for path in model_files(subject):
        if path.suffix.lower() == ".onnx" and path.is_file():
            return path
    return None


def _alike(entries: Sequence[Change]) -> list[list[Change]]:
    groups: dict[Any, list[Change]] = {}
    for change in entries:
        edits = tuple((edit.pass_name, edit.what) for edit in change.edits)
        key = edits, *(tuple((n.op, n.attributes) for n in side) for side in (change.before, change.after))
        groups.setdefault(key, []).append(change)
    return list(groups.values())


def _group(members: Sequence[Change]) -> dict[str, object]:
    first = members[0]
    names = [change.before[0].name or ", ".join(change.before[0].outputs) for change in members]
    return {
        "title": first.before[0].op,
        "names": names[:_MOST_NAMES],
        "more": max(0, len(names) - _MOST_NAMES),
        "edits": [{"pass": edit.pass_name, "what": edit.what} for edit in first.edits],
        "before": graph_drawing(first.before, first.after, "gone"),
        "after": graph_drawing(first.after, first.before, "new") if first.after else "",
        "after_count": len(first.after),
        "after_ops": ", ".join(node.op for node in first.after),
        "why": first.why,
        "taps": _taps(first),
    }


def _taps(change: Change) -> list[dict[str, object]]:
    taps: list[dict[str, object]] = []
    for names, axis in alike(change.axes):
        picture = taps_drawing(axis)
        if picture:
            size = axis.sample.size if axis.sample is not None else 0
            taps.append(
                {
                    "title": f"axis {names[0]}" if len(names) == 1 else f"axes {' and '.join(names)}, alike",
                    "size": size,
                    "out": axis.out_filled,
                    "picture": picture,
                    "legend": legend(axis)[0].strip(" ()"),
                }
            )
    return taps
