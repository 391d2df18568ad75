"""Modules with a branch, written by Hypothesis as source files, and an export held to what they are by construction."""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import math
import random
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import trtconv
from support.branch_grammar import HIGH, LIMITS, LOW, NUMBERS, READS, SizeCondition, size_conditions, written_conditions
from trtconv import ExportFailed, ExportOptions, ExportReport, InputError
from trtconv.core.documents.export import SizeRule

_HEAD = """import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.sides = nn.ModuleList([nn.Identity(), nn.Conv2d(2, 2, 1)])
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x, mask, ids):
        h, w = x.shape[-2:]
        y = self.conv(x) + mask * 0.5 + ids.sum() * 0.01
"""
_TAIL = "        return y\n"
_HERE = "  # here"
FORMS: Mapping[str, str] = {
    "if": f"if {{c}}:{_HERE}\n    y = {{s}}",
    "else": f"if not ({{c}}):{_HERE}\n    y = y - 1\nelse:\n    y = {{s}}",
    "elif": f"if h < 0:\n    y = y - 1\nelif {{c}}:{_HERE}\n    y = {{s}}",
    "return": f"if {{c}}:{_HERE}\n    return {{s}}",
    "one line": f"if {{c}}: y = {{s}}{_HERE}",
    "expression": f"y = ({{s}}) if ({{c}}) else y{_HERE}",
    "and": f"y = ((({{c}}) and [{{s}}]) or [y])[0]{_HERE}",
    "while": f"n = 0\nwhile n < 2 and ({{c}}):{_HERE}\n    y, n = {{s}}, n + 1",
    "range": f"for _ in range(int(bool({{c}}))):{_HERE}\n    y = {{s}}",
    "match": f"match bool({{c}}):{_HERE}\n    case True:\n        y = {{s}}",
    "lookup": f"y = {{{{True: {{s}}, False: y}}}}[bool({{c}})]{_HERE}",
    "index": f"y = [y, {{s}}][int(bool({{c}}))]{_HERE}",
    "factor": f"y = y * (1 + 2 * int(bool({{c}}))){_HERE}",
    "pad": f"y = F.pad(y, (0, 4 * bool({{c}}))){_HERE}",
    "slice": f"y = y[:, : 1 + bool({{c}})]{_HERE}",
    "module": f"y = self.sides[bool({{c}})](y){_HERE}",
    "caught": f"try:\n    assert {{c}}{_HERE}\n    y = {{s}}\nexcept AssertionError:\n    pass",
    "raised": f"try:\n    if {{c}}:{_HERE}\n        raise ValueError\nexcept ValueError:\n    y = {{s}}",
    "comprehension": f"y = sum([{{s}} for _ in range(2) if ({{c}})], y){_HERE}",
    "lambda": f"decide = lambda: bool({{c}}){_HERE}\nif decide():\n    y = {{s}}",
    "kept": f"kept = bool({{c}}){_HERE}\nif kept:\n    y = {{s}}",
}
"""Ways of Python to take a side s by a condition c. A comment marks the line that decides."""
SIDES = (
    "y * 2 + 1",
    "-y",
    "torch.zeros_like(y)",
    "y.flip(-1)",
    "F.relu(y - 0.1)",
    "y + self.table[2]",
    "y[..., 1:-1, 1:-1]",
    "torch.cat([y, y], 1)",
    "self.conv(y)",
    "y + x.mean()",
)
_MASKS = ("mask.any()", "not mask.any()", "mask.all()", "mask.sum() > 5", "mask[0, 0]", "int(mask.sum()) == 0")
_TOKENS = ("49 in ids", "ids[0] == 3", "int(ids.max()) > 1", "ids.tolist()[0] == 7", "(ids == 0).all()")
_TEXTS = ('"nan" in str(x.sum())', '"inf" in repr(x.flatten()[:1])')
_INSIDE = (
    "y = torch.where({c}, {s}, y)",
    "y = y * (1 + ({c}).to(y.dtype))",
    "y = torch.cond({c}, lambda y: y * 2 + 1, lambda y: y - 1, (y,))",
)
"""Ways to take a side inside the graph, where both are."""
_TENSORS = tuple(f"{n} > {{k}}" for n in ("{t}.mean()", "{t}.abs().max()", "({t} > 0).sum()", "{t}[0, 0, -1, -1]"))


class Decides(enum.Enum):
    """What a branch is decided by."""

    SIZES = "sizes"
    VALUES = "values"
    NOTHING = "nothing"  # of the input: a constant, or the graph itself


@dataclasses.dataclass(frozen=True)
class Source:
    """A generated module.

    Args:
        form: How it takes a side, of `FORMS` or `_INSIDE`.
        condition: By what; over h and w alone where sizes decide.
        side: What the side computes.
        by: What decides.
    """

    form: str
    condition: str
    side: str
    by: Decides

    @property
    def branch(self) -> str:
        """The statements that take a side."""
        return self.form.format(c=self.condition, s=self.side)

    @property
    def text(self) -> str:
        """The source of the file."""
        return _HEAD + textwrap.indent(self.branch, " " * 8) + "\n" + _TAIL

    def truth(self) -> Mapping[tuple[int, int], bool]:
        """Returns whether the condition holds, for all sizes within the bounds; where no size decides, that it does."""
        sizes = SizeCondition(self.condition if self.by is Decides.SIZES else "True")
        return sizes.truth()

    @property
    def parts_sizes(self) -> bool:
        """Whether one side is taken at some sizes, and the other at others."""
        return len(set(self.truth().values())) == 2

    @property
    def line(self) -> int:
        """The line that decides, from 1; 0 where none does."""
        marked = (number for number, line in enumerate(self.text.splitlines(), start=1) if line.endswith(_HERE))
        return next(marked, 0)

    def build(self, path: Path) -> nn.Module:
        """Writes the source to a file and makes the module."""
        path.write_text(self.text)
        found = importlib.util.spec_from_file_location(path.stem, path)
        assert found is not None
        assert found.loader is not None
        loaded = importlib.util.module_from_spec(found)
        found.loader.exec_module(loaded)
        torch.manual_seed(0)
        net: nn.Module = loaded.Net().eval()
        return net


def sources() -> st.SearchStrategy[Source]:
    """Modules with one branch, which sizes, values or nothing decides."""
    forms, sides = st.sampled_from(tuple(FORMS.values())), st.sampled_from(SIDES)
    by_sizes = st.builds(
        lambda form, size, side: Source(form, size.text, side, Decides.SIZES),
        forms,
        st.one_of(size_conditions().filter(lambda size: len(set(size.truth().values())) == 2), written_conditions()),
        sides,
    )
    tensors, limits = st.sampled_from(("x", "y", "(x * mask)")), st.sampled_from(LIMITS)
    numbers, reads = st.sampled_from(tuple(NUMBERS.values())), st.sampled_from(tuple(READS.values()))

    def read(number: str, way: str, tensor: str, limit: float) -> str:
        return way.format(n=f"({number.format(t=tensor)})", k=limit)

    values = st.one_of(st.builds(read, numbers, reads, tensors, limits), st.sampled_from(_MASKS + _TOKENS + _TEXTS))
    nothing = st.builds(read, numbers, reads, st.just("torch.zeros_like(x)"), limits)
    inside = st.builds(lambda text, t, k: text.format(t=t, k=k), st.sampled_from(_TENSORS), tensors, limits)
    same_size = st.sampled_from(SIDES[:6])
    by_values = st.builds(lambda form, value, side: Source(form, value, side, Decides.VALUES), forms, values, sides)
    return st.one_of(
        by_sizes,
        by_values,
        st.builds(lambda form, value, side: Source(form, value, side, Decides.NOTHING), forms, nothing, sides),
        st.builds(Source, st.sampled_from(_INSIDE), inside, same_size, st.just(Decides.NOTHING)),
    )


class Verdict(enum.Enum):
    """What came of an export."""

    RIGHT = "right at every size of the rule"
    REFUSED = "refused with the line"
    UNNAMED = "refused without the line"
    LOST = "refused, or for fewer sizes, though nothing parts them"
    WRONG = "wrong without a word"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of an export.

    Args:
        verdict: In a word.
        why: In more.
        kept: The part of all sizes that the rules take.
    """

    verdict: Verdict
    why: str = ""
    kept: float = 0.0

    @property
    def good(self) -> bool:
        """Whether it is what an export may do."""
        return self.verdict in (Verdict.RIGHT, Verdict.REFUSED)


def outcome(source: Source, folder: Path, name: str) -> Outcome:
    """Exports a generated module and holds what comes of it to PyTorch."""
    path = folder / f"{name}.py"
    net = source.build(path)
    example = _inputs(16, 16, 0, 0)
    axes = {"x": (None, None, "height", "width"), "mask": ("height", "width")}
    bounds = {"height": (LOW, HIGH), "width": (LOW, HIGH)}
    try:
        report = trtconv.export(net, example, folder / f"{name}.onnx", axes, bounds, ExportOptions(check=False))
    except ExportFailed as error:
        return _refused(source, f"{path.name}:{source.line}", error.message)
    except InputError as error:
        if _runs(net, example):
            raise
        named = f"{path.name}:{source.line}" in error.message
        return Outcome(Verdict.REFUSED if named else Verdict.UNNAMED, error.message)
    if report.exit_code:
        return _refused(source, f"{path.name}:{source.line}", "not written: the file differs from PyTorch")
    wrong = _first_wrong(source, net, folder / f"{name}.onnx", report)
    if wrong:
        return Outcome(Verdict.WRONG, wrong)
    if source.by is Decides.VALUES:
        return Outcome(Verdict.WRONG, "exported, though its values decide")
    rules = [rule.sentence() for rule in report.sizes if not all(map(rule.takes, range(LOW, HIGH + 1)))]
    if rules and not source.parts_sizes:
        return Outcome(Verdict.LOST, "; ".join(rules))
    kept = [sum(map(rule.takes, range(LOW, HIGH + 1))) / (HIGH + 1 - LOW) for rule in report.sizes]
    return Outcome(Verdict.RIGHT, "; ".join(rules), math.prod(kept))


def _runs(net: nn.Module, example: Mapping[str, Tensor]) -> bool:
    try:
        net(**{key: value.clone() for key, value in example.items()})
    except RuntimeError:
        return False
    return True


def _refused(source: Source, place: str, message: str) -> Outcome:
    if source.by is not Decides.VALUES and not source.parts_sizes:
        return Outcome(Verdict.LOST, message)
    return Outcome(Verdict.REFUSED if place in message else Verdict.UNNAMED, message)


def _first_wrong(source: Source, net: nn.Module, file: Path, report: ExportReport) -> str:
    """Returns where the file is not PyTorch's first: sizes of both sides within the rule, and telling values."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    rules = {rule.name: rule for rule in report.sizes}
    taken = {
        (h, w): holds
        for (h, w), holds in source.truth().items()
        if rules["height"].takes(h) and rules["width"].takes(w) and _tied(rules["height"], rules["width"], h, w)
    }
    for number, (h, w) in enumerate(_telling(taken)):
        for kind in range(_KINDS) if number < 2 else (number % 2,):
            inputs = _inputs(h, w, kind, number)
            with torch.no_grad():
                try:
                    wanted = net(**{key: value.clone() for key, value in inputs.items()}).numpy()
                except RuntimeError:  # sizes that PyTorch refuses, together: the report says so
                    break
            feeds = {key: value.numpy() for key, value in inputs.items() if key in names}
            try:
                (got,) = session.run(None, feeds)
            except Exception as error:
                return f"{h}x{w}: {error}"
            if got.shape != wanted.shape:
                return f"{h}x{w}, values {kind}: {got.shape} for {wanted.shape}"
            largest = float(np.abs(np.nan_to_num(wanted)).max(initial=1e-6))
            if not np.allclose(got, wanted, rtol=1e-3, atol=1e-3 * largest, equal_nan=True):
                return f"{h}x{w}, values {kind}: differs by {np.nanmax(np.abs(got - wanted)):.2g} of {largest:.2g}"
    return ""


def _tied(height: SizeRule, width: SizeRule, h: int, w: int) -> bool:
    """Whether sizes that change together do so."""
    if width.tied != "height":
        return True
    return (h - height.example) * width.step == (w - width.example) * height.step


def _telling(taken: Mapping[tuple[int, int], bool]) -> Iterator[tuple[int, int]]:
    """Yields sizes of both sides: the first and last, and random ones."""
    generator = random.Random(0)
    for side in (True, False):
        own = [sizes for sizes, holds in taken.items() if holds is side]
        yield from dict.fromkeys([*own[:1], *own[-1:], *generator.sample(own, min(len(own), 6))])


_KINDS = 5


def _inputs(height: int, width: int, kind: int, seed: int) -> Mapping[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 2, height, width, generator=generator)
    mask = torch.rand(height, width, generator=generator) > 0.5
    ids = torch.randint(0, 2, (12,), generator=generator)
    values: Sequence[Any] = (
        (x, mask, ids),
        (x * 0, torch.zeros_like(mask), ids * 0),
        (x * 3e4, torch.ones_like(mask), ids * 49),
        (-x.abs(), mask, ids + 3),
        (x.abs() + 60, torch.ones_like(mask), ids * 0 + 7),
    )
    return dict(zip(("x", "mask", "ids"), values[kind], strict=True))
