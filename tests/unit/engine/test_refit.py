"""New weights in an engine: all of them or an error, and never those of another graph."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support.refittable import give_refitter, net, refittable
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.inspect import EngineInspection
from trtconv.core.documents.saved import load_report
from trtconv.core.errors import EngineFailed, InputError
from trtconv.core.requests.bench import BenchRequest
from trtconv.core.requests.engine import InspectRequest, RefitRequest, RunRequest, VerifyRequest
from trtconv.engine import bench, inspect, refit, run, verify


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch) -> Any:
    return give_refitter(monkeypatch)[1]


def model(folder: Path, text: str, name: str = "new") -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def outputs(engine: Path) -> np.ndarray:
    x = np.random.default_rng(7).normal(size=(1, 2, 5, 5)).astype(np.float32)
    np.savez(engine.parent / "in.npz", x=x)
    run(RunRequest(engine, inputs=engine.parent / "in.npz", output=engine.parent / "out.npz"))
    with np.load(engine.parent / "out.npz") as made:
        return np.array(made["y"])


def test_weights_there_and_back_are_those_of_each_model(trt: Any, tmp_path: Path) -> None:
    first, second = refittable(tmp_path, net(1), "a"), refittable(tmp_path, net(2), "b")
    expected = [outputs(each.engine) for each in (first, second)]
    assert not np.allclose(*expected)
    there = refit(RefitRequest(first.engine, second.model, output=tmp_path / "there.engine"))
    np.testing.assert_array_equal(outputs(tmp_path / "there.engine"), expected[1])
    assert {(each.role, each.sources) for each in there.weights} == {
        ("KERNEL", ("k",)),
        ("BIAS", ("b",)),
        ("KERNEL", ("w",)),
        ("CONSTANT", ("c",)),
    }
    assert (there.before.changed, there.exit_code, there.proof.agrees) == (4, 0, True)
    back = refit(RefitRequest(tmp_path / "there.engine", first.model, output=tmp_path / "back.engine"))
    np.testing.assert_array_equal(outputs(tmp_path / "back.engine"), expected[0])
    assert back.before.changed == 4
    report = load_report(tmp_path / "back.engine.json").report
    assert (report.model.path, report.refit) == (str(first.model), back.before)
    assert report.network == load_report(first.report).report.network


def test_only_what_changed_counts_as_changed(trt: Any, tmp_path: Path) -> None:
    built = refittable(tmp_path, net(1))
    new = model(tmp_path, net(1, w=5))
    report = refit(RefitRequest(built.engine, new))
    assert report.engine is not None and report.engine.path == str(tmp_path / "new.engine")
    assert [each.sources for each in report.weights if each.changed] == [("w",)]
    assert (report.before.weights, report.before.changed) == (4, 1)


def test_names_inside_may_be_others(trt: Any, tmp_path: Path) -> None:
    built = refittable(tmp_path, net(1))
    text = net(2)
    for name in ("up", "r", "s", "k", "b", "w", "c"):
        text = re.sub(rf"\b{name}\b", f"other_{name}", text)
    refit(RefitRequest(built.engine, model(tmp_path, text)))
    np.testing.assert_array_equal(outputs(tmp_path / "new.engine"), outputs(refittable(tmp_path, net(2), "b").engine))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pads = [1, 1, 1, 1]> (s", "pads = [2, 2, 0, 0]> (s", "CONVOLUTION.* other attributes"),
        ("Relu (up)", "Tanh (up)", "ACTIVATION.* other attributes"),
        ("r = Relu (up)", "r = Neg (up)", "UNARY.* in place of .*ACTIVATION.* another operation"),
        ("y = Conv", "s2 = Neg (s)\n  y = Conv", "another operation"),
        ("float[1, 2, 5, 5] x", "float[1, 2, 5, 5] input", "its inputs are 'input'"),
        ("(x, k, b)", "(x, k)", "none as its BIAS"),
        ("Add (r, c)", "Add (c, r)", "other attributes, inputs"),
    ],
)
def test_another_graph_is_refused_by_name(trt: Any, tmp_path: Path, old: str, new: str, said: str) -> None:
    built = refittable(tmp_path, net(1))
    text = net(2).replace(old, new)
    text = text.replace("(x, k, b)", "(input, k, b)") if "input" in new else text
    with pytest.raises(InputError, match=said):
        refit(RefitRequest(built.engine, model(tmp_path, text)))
    assert not (tmp_path / "new.engine").exists()


def test_a_weight_that_would_stay_is_named(trt: Any, tmp_path: Path) -> None:
    built = refittable(tmp_path, net(1))
    key = next((layer, role) for layer, role in keys_of(built) if role == "BIAS")
    trt.Refitter._hidden = frozenset({key})
    with pytest.raises(EngineFailed, match=r"BIAS of layer .*\(from 'b'\).*would keep the old ones \(1 such"):
        refit(RefitRequest(built.engine, model(tmp_path, net(2))))
    assert not (tmp_path / "new.engine").exists()
    # One that has the values that it had may stay.
    assert refit(RefitRequest(built.engine, model(tmp_path, net(2, b=1)))).before.changed == 3


def test_what_tensorrt_does_not_take_is_an_error(trt: Any, tmp_path: Path) -> None:
    built = refittable(tmp_path, net(1))
    trt.Refitter._refused = frozenset(keys_of(built))
    with pytest.raises(EngineFailed, match="TensorRT refuses the KERNEL of layer"):
        refit(RefitRequest(built.engine, model(tmp_path, net(2))))


def test_a_stripped_engine_takes_its_own_weights_back_and_no_others(trt: Any, tmp_path: Path) -> None:
    built = refittable(tmp_path, net(1), options=BuilderOptions(strip_weights=True))
    with pytest.raises(InputError, match="takes its own weights alone"):
        refit(RefitRequest(built.engine, model(tmp_path, net(2))))
    with pytest.raises(InputError, match="built without its weights") as caught:
        outputs(built.engine)
    assert f"trtconv refit {built.engine}" in caught.value.hint
    refit(RefitRequest(built.engine, built.model, output=tmp_path / "full.engine"))
    assert outputs(tmp_path / "full.engine").shape == (1, 2, 9, 9)


def test_an_engine_is_replaced_only_where_it_is_named(trt: Any, tmp_path: Path) -> None:
    built = refittable(tmp_path, net(1))
    old = built.engine.read_bytes()
    onnx.save(onnx.parser.parse_model(net(2)), built.model)
    with pytest.raises(InputError, match="is the engine, and the new engine would replace it") as caught:
        refit(RefitRequest(built.engine, built.model))
    assert f"-o {built.engine}" in caught.value.hint
    assert built.engine.read_bytes() == old
    refit(RefitRequest(built.engine, built.model, output=built.engine))
    assert built.engine.read_bytes() != old
    np.testing.assert_array_equal(outputs(built.engine), outputs(refittable(tmp_path, net(2), "b").engine))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"plan__options": {}}, "was not built to be refitted"),
        ({"network": None}, "does not tell of its network"),
    ],
)
def test_what_cannot_be_refitted(trt: Any, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    built = refittable(tmp_path, net(1))
    built.change_report(**changes)
    with pytest.raises(InputError, match=said):
        refit(RefitRequest(built.engine, model(tmp_path, net(2))))


@pytest.mark.parametrize("spoil", [
    lambda network: network["weights"][0].update(layer=99),
    lambda network: network["weights"][0].update(layer=-1),
    lambda network: network["weights"].append(dict(network["weights"][0])),
    lambda network: network["layers"].clear(),
])  # fmt: skip
def test_weights_of_layers_that_a_report_does_not_have_are_refused(trt: Any, tmp_path: Path, spoil: Any) -> None:
    built = refittable(tmp_path, net(1))
    network = json.loads(built.report.read_text())["network"]
    spoil(network)
    built.change_report(network=network)
    with pytest.raises(InputError, match="its weights are not those of its layers"):
        refit(RefitRequest(built.engine, model(tmp_path, net(2))))


def keys_of(built: Any) -> list[tuple[str, str]]:
    network = load_report(built.report).report.network
    assert network is not None
    return [(network.layers[each.layer].name, each.role) for each in network.weights]


STRIPPED = BuilderOptions(strip_weights=True)


def stripped(folder: Path) -> Any:
    """An engine that has lost its weights, and the numbers that it had with them."""
    expected = outputs(refittable(folder, net(1)).engine)
    built = refittable(folder, net(1), options=STRIPPED)
    other = refittable(folder, net(3), "other").engine.read_bytes()
    # What it computes before it is given its own is something else.
    built.engine.write_bytes(other)
    report = json.loads(built.report.read_text())
    built.change_report(engine={**report["engine"], "sha256": hashlib.sha256(other).hexdigest(), "bytes": len(other)})
    return built, expected


def test_an_engine_without_weights_runs_with_its_file(trt: Any, tmp_path: Path) -> None:
    built, expected = stripped(tmp_path)
    before = built.engine.read_bytes()
    asked = RunRequest(built.engine, inputs=tmp_path / "in.npz", output=tmp_path / "out.npz", weights=built.model)
    run(asked)
    with np.load(asked.output) as made:
        np.testing.assert_array_equal(made["y"], expected)
    assert bench(BenchRequest(built.engine, weights=built.model, warmup=0, duration=0.01)).exit_code == 0
    found = inspect(InspectRequest(built.engine, weights=built.model))
    assert isinstance(found, EngineInspection)
    assert found.loaded
    assert found.time is not None
    assert found.time.layers_us
    report = verify(VerifyRequest(built.model, built.engine))
    assert (report.ran, report.exit_code) == ("engine", 0)
    assert built.engine.read_bytes() == before


def test_weights_of_another_file_are_refused(trt: Any, tmp_path: Path) -> None:
    built, _ = stripped(tmp_path)
    asked = RunRequest(built.engine, inputs=tmp_path / "in.npz", output=tmp_path / "new.npz")
    for weights, said in (
        (None, "--weights MODEL.onnx"),
        (model(tmp_path, net(1, w=5)), "takes its own weights alone"),
        (model(tmp_path, net(1).replace("Relu", "Tanh"), "tanh"), "another graph"),
        (tmp_path / "gone.onnx", "gone.onnx"),
    ):
        with pytest.raises(InputError) as caught:
            run(dataclasses.replace(asked, weights=weights))
        assert said in f"{caught.value.message} {caught.value.hint}"
    whole = refittable(tmp_path, net(1), "whole")
    with pytest.raises(InputError, match="has its weights"):
        run(dataclasses.replace(asked, engine=whole.engine, weights=whole.model))
    with pytest.raises(InputError, match="has its weights"):
        bench(BenchRequest(whole.engine, weights=whole.model))
    assert not asked.output.exists()
    with pytest.raises(InputError, match="takes its own weights alone"):
        inspect(InspectRequest(built.engine, weights=model(tmp_path, net(1, w=5))))
    for path in (built.report, built.model):
        with pytest.raises(InputError, match="is no engine, and is read without --weights"):
            inspect(InspectRequest(path, weights=built.model))
