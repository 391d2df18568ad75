"""Reads of values by Python: every kind is seen where it happens, and what no value decides is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import trtconv  # noqa: E402
from trtconv import ExportFailed, ExportOptions  # noqa: E402
from trtconv.core.documents.export import Branch  # noqa: E402
from trtconv.exporter.inputs import InputDecl  # noqa: E402
from trtconv.exporter.module.torch_module import prepare  # noqa: E402
from trtconv.exporter.module.values import value_branches  # noqa: E402

Body = Callable[..., object]


class Net(torch.nn.Module):
    """A module whose forward is a function; it holds a buffer that no input decides."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x: object) -> object:
        return self.body(self, x)


def _branches(body: Body) -> tuple[Branch, ...]:
    inputs = (InputDecl("x", (2, 3)),)
    return value_branches(prepare(Net(body).eval(), inputs, (), (torch.ones(2, 3),)))


def _written_through_a_view(net, x):
    kept = torch.zeros(4)
    kept[1:3].add_(x[0, :2])
    return x + 1 if kept[0] > 5 else x


def _by_buffer(net, x):
    net.table.copy_(x.sum().expand(4))
    return x * 2 if net.table[0] else x


READS = {
    "bool": lambda net, x: x + 1 if x.any() else x,
    "not": lambda net, x: x if not x.any() else x + 1,
    "nan": lambda net, x: x + 1 if torch.isnan(x).any() else x,
    "int": lambda net, x: x.repeat(int(x[0, 0]), 1),
    "float": lambda net, x: x * float(x.mean()),
    "item": lambda net, x: x * x.mean().item(),
    "index": lambda net, x: x.repeat([1, 2, 3][x[0, 0].long()], 1),
    "range": lambda net, x: sum((x for _ in range(x[0, 0].long())), x),
    "tolist": lambda net, x: x * x.tolist()[0][0],
    "numpy": lambda net, x: x + float(x.numpy().max()),
    "in": lambda net, x: x + 1 if 7 in x else x,
    "equal": lambda net, x: x + 1 if torch.equal(x, x * 2) else x,
    "allclose": lambda net, x: x + 1 if torch.allclose(x, x * 2) else x,
    "is_nonzero": lambda net, x: x + 1 if torch.is_nonzero(x.sum()) else x,
    "max": lambda net, x: max(x.sum(), x.mean()),
    "torch.tensor": lambda net, x: x + torch.tensor([x[0, 0], x[0, 1]]).sum(),
    "a count": lambda net, x: x + 1 if x[x > 2].numel() else x,
    "a size": lambda net, x: x + 1 if x.nonzero().shape[0] > 1 else x,
    "a length": lambda net, x: x + len(torch.unique(x)),
    "a view": _written_through_a_view,
    "a buffer": _by_buffer,
}


@pytest.mark.parametrize("kind", READS)
def test_every_read_is_seen_with_its_line(kind: str) -> None:
    (found, *_) = _branches(READS[kind])
    assert found.at.startswith(f"{Path(__file__).name}:") or f"/{Path(__file__).name}:" in found.at
    assert found.code


NO_READS = {
    "a buffer": lambda net, x: x + 1 if net.table[1] > 0 else x,
    "a size": lambda net, x: x + 1 if torch.tensor(x.shape[0]) > 1 else x,
    "zeros of its shape": lambda net, x: x + 1 if torch.zeros_like(x).any() else x,
    "an operator's number": lambda net, x: x[: x[0, 0].long()],
    "shown": lambda net, x: x + len(f"{x.device} {x}") * 0,
    "where": lambda net, x: torch.where(x.any(), x, x + 1),
    "type and shape": lambda net, x: x + 1 if x.dtype == torch.float32 and len(x) > 1 and x.numel() > 2 else x,
    "permutation": lambda net, x: x[:, net.table[:3].argsort().tolist()],
}


@pytest.mark.parametrize("kind", NO_READS)
def test_what_no_value_decides_is_no_read(kind: str) -> None:
    assert _branches(NO_READS[kind]) == ()


def _two_sides(net, x):
    if x.sum() > 100:
        return x * 3
    return x


def _checked(net, x):
    if torch.isnan(x).any():
        raise ValueError("not a number")
    assert x.max() < 50
    return x * 2


def test_the_side_that_ran_and_the_other_are_named() -> None:
    (branch,) = _branches(_two_sides)
    assert (branch.value, branch.ran, branch.lost) == ("reads False", "", "`return x * 3`")


def test_a_check_that_only_raises_stops_no_export(tmp_path: Path) -> None:
    assert [branch.check for branch in _branches(_checked)] == [True, True]
    report = trtconv.export(Net(_checked).eval(), torch.ones(2, 3), tmp_path / "m.onnx", options=_quick())
    assert report.exit_code == 0
    assert report.branches == ()
    assert sum("not in the file" in note for note in report.notes) == 2


def _quick(**changes) -> ExportOptions:
    return ExportOptions(check=False, **changes)


def test_a_branch_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    net, path = Net(_two_sides).eval(), tmp_path / "m.onnx"
    with pytest.raises(ExportFailed) as caught:
        trtconv.export(net, torch.ones(2, 3), path, options=_quick())
    (place,) = (branch.at for branch in _branches(_two_sides))
    assert place in caught.value.message
    assert place in (caught.value.hint or "")
    assert not path.exists()

    report = trtconv.export(net, torch.ones(2, 3), path, options=_quick(accepted=(place,)))
    assert [branch.at for branch in report.branches] == [place]
    assert report.to_json()["branches"][0]["lost"] == "`return x * 3`"
    with pytest.raises(ExportFailed):
        trtconv.export(net, torch.ones(2, 3), path, options=_quick(accepted=(f"{place}0",)))
