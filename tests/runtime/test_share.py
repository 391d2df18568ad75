"""Parts of failing models that may be shown to others, with the real parser and builder of TensorRT-RTX."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from support.failing_models import (
    SECRET,
    FailingModel,
    foreign_operator,
    misread_deconvolution,
    nms_of_scores,
    zero_scale,
)
from trtconv.cli.group import cli
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.errors import InputError
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.share import ShareRequest
from trtconv.core.target import Target
from trtconv.pipeline.sharing import share

RTX = Target("rtx")


def values_of(proto: onnx.ModelProto) -> np.ndarray:  # type: ignore[type-arg]
    """All float weights of a model."""
    held = [numpy_helper.to_array(each) for each in proto.graph.initializer]
    return np.concatenate([v.ravel() for v in held if v.dtype == np.float32] or [np.zeros(0, np.float32)])


@pytest.mark.parametrize(
    "failing",
    [misread_deconvolution(16), foreign_operator(), zero_scale(), nms_of_scores()],
    ids=lambda each: each.code,
)
def test_the_part_fails_alike_and_has_nothing_of_the_model(tmp_path: Path, failing: FailingModel) -> None:
    path, out = tmp_path / f"{SECRET}.onnx", tmp_path / "part.onnx"
    onnx.save(failing.proto, path)
    flags = ["share", str(path), "-o", str(out), "--target", "rtx", "-q", "--format", "json", *failing.flags]
    called = CliRunner().invoke(cli, flags)
    assert called.exit_code == 0, called.output
    report = json.loads(called.stdout)
    assert report["failure"]["code"] == failing.code
    assert report["nodes"]["after"] < report["nodes"]["before"]
    data, page = out.read_bytes(), Path(report["page"]).read_text()
    assert len(data) < 20_000
    # Neither a name nor a weight, looked for in another way than the command does.
    assert SECRET.encode().lower() not in data.lower()
    assert SECRET.lower() not in page.lower()
    own, theirs = values_of(onnx.load(out)), values_of(failing.proto)
    assert not np.isin(own[own != 0], theirs).any()
    # What the page shows, fails.
    assert report["commands"]["trtconv"] in page
    words = shlex.split(report["commands"]["trtconv"])
    if failing.code != "crash":
        again = CliRunner().invoke(cli, [words[1], str(out), *words[3:], "--format", "json", "-q"])
        assert again.exit_code == 1
        assert failing.code in {finding["code"] for finding in json.loads(again.stdout)["findings"]}


class Scripted:
    """A worker for which a model fails that holds a name, or a number."""

    def __init__(self, name: str = "", number: float = 0.0) -> None:
        self._name, self._number = name, number

    def run(self, request: BuildRequest, limit_s: float) -> FailedRun | BuildReport:
        proto = onnx.load(request.model)
        fails = any(self._name == node.name for node in proto.graph.node) or self._number in values_of(proto)
        if fails:
            return FailedRun(str(request.model), "rtx", "BuildFailed", "it ended", "", 1, lost="crash")
        return BuildReport({}, None, {})  # type: ignore[arg-type]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("worker", "why"),
    [(Scripted(name="the one"), "other names"), (Scripted(number=np.float32(0.1234567)), "other weights")],
)
def test_what_fails_on_its_own_names_or_weights_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Scripted, why: str
) -> None:
    monkeypatch.setattr("trtconv.pipeline.trials.Worker", lambda: worker)
    weight = numpy_helper.from_array(np.array([0.1234567, 2, 3, 4], np.float32), "w")
    nodes = [helper.make_node("Neg", ["x"], ["a"], "one"), helper.make_node("Mul", ["a", "w"], ["y"], "the one")]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], [weight]), ir_version=8), path)
    with pytest.raises(InputError, match=why):
        share(ShareRequest(path, tmp_path / "part.onnx", target=RTX))
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]


def test_a_page_is_replaced_where_it_is_ours_and_the_model_never(tmp_path: Path) -> None:
    failing, path = foreign_operator(), tmp_path / "m.onnx"
    onnx.save(failing.proto, path)
    request = ShareRequest(path, tmp_path / "part.onnx", target=RTX)
    first = share(request)
    assert share(request).page == first.page
    page = Path(first.page)
    page.write_text(page.read_text().replace("## What is in it", "## What is in it, with my notes"))
    with pytest.raises(InputError, match="was not written by trtconv"):
        share(request)
    with pytest.raises(InputError, match="is the model itself"):
        share(ShareRequest(path, path, target=RTX))
