"""What the page of an engine shows of the quantisation of its model."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from support.cli import build_report
from support.float_nets import GROUPED, saved_net, saved_samples
from support.onnx_models import RTX
from trtconv.cli.formats.page import engine_page
from trtconv.cli.formats.page.gather import PageSubject, with_measured
from trtconv.core.documents.quantize import QuantizeReport
from trtconv.core.errors import InputError
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.pipeline.quantizing import quantize


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> QuantizeReport:
    folder = tmp_path_factory.mktemp("quantized")
    samples = saved_samples(folder, [(1, 4, 8, 8)] * 6)
    model = saved_net(GROUPED, folder)
    asked = QuantizeRequest(model, folder / "out.onnx", str(samples), target=RTX, tolerance=0.9)
    error = max(each.rms for each in quantize(asked).error.values())
    # A little less, so that each layer is tried in float.
    return quantize(dataclasses.replace(asked, error_budget=0.95 * error))


def rows_of(report: QuantizeReport | None) -> list[list[str]]:
    """Returns the cells of the table of layers."""
    page = engine_page(PageSubject(Path("m.engine.json"), build_report(), quantize=report)).decode()
    section = re.search(r'<section id="quantization">(.*?)</section>', page, re.DOTALL)
    assert ('href="#quantization"' in page) == (section is not None) == (report is not None)
    tables = re.findall(r"<tbody>(.*?)</tbody>", section[1], re.DOTALL) if section else [""]
    rows = re.findall(r"<tr>(.*?)</tr>", tables[-1], re.DOTALL)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


def test_each_layer_has_its_error_its_gain_and_its_reason(report: QuantizeReport) -> None:
    assert report.budget is not None
    found = {row[0]: row for row in rows_of(report)}
    worst_first = [each.node for each in sorted(report.per_layer, key=lambda each: -each.rms)]
    assert list(found)[: len(worst_first)] == worst_first
    assert len(found) == 3 > len(worst_first) > 0
    for each in report.per_layer:
        gain = report.budget.error_of_all - report.budget.alone[each.node]
        _, op, runs, part, error, alone, reason = found[each.node]
        assert (op, runs, reason) == (each.op, "int8", "")
        assert (error, alone) == (f"{100 * each.rms:.2f} %", f"{100 * gain:.2f} %")
        assert 0 < float(part.removesuffix(" %")) < 100
    for step in report.budget.left_in_float:
        assert found[step.node][-1].startswith("left out for the budget")
    assert found["up"][2] == "float"
    assert found["up"][-1].endswith("with 2 groups")


def test_without_a_budget_no_gain_is_told_and_without_quantisation_nothing(report: QuantizeReport) -> None:
    assert {len(row) for row in rows_of(dataclasses.replace(report, budget=None))} == {6}
    assert {len(row) for row in rows_of(report)} == {7}
    assert not rows_of(None)


def test_what_lies_beside_an_engine_is_shown_where_it_is_of_its_model(report: QuantizeReport, tmp_path: Path) -> None:
    beside = tmp_path / "m.engine.quantize.json"
    beside.write_text(json.dumps(report.to_json()))
    other = build_report()
    mine = dataclasses.replace(other, model=report.output)
    found = with_measured(tmp_path / "m.engine.json", mine)
    assert found.quantize is not None and not found.notes
    assert rows_of(found.quantize) == rows_of(report)
    assert with_measured(tmp_path / "n.engine.json", mine, [beside]).quantize == found.quantize
    assert with_measured(tmp_path / "n.engine.json", mine).quantize is None
    assert with_measured(tmp_path / "m.engine.json", other).notes == (
        f"{beside.name} is of another engine and is not shown",
    )
    with pytest.raises(InputError, match="another engine"):
        with_measured(tmp_path / "n.engine.json", other, [beside])
