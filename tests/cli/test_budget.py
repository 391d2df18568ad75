"""What a small file may ask for, and how a command ends that is asked for more: soon, with exit 1 and TC408."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import resource as limits
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx.parser
import pytest

from trtconv.core import budget
from trtconv.graph.model import OnnxModel

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or importlib.util.find_spec("tensorrt_rtx") is None,
    reason="needs Linux and tensorrt-rtx",
)
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
DOUBLINGS = "".join(f"v{i + 1} = Concat <axis = 0> (v{i}, v{i})" for i in range(40))
DOUBLING = f"""{HEAD} g (float[n,3] x) => (float[] y)
    {{ v0 = Shape (x) {DOUBLINGS} r = ReduceSum <keepdims = 0> (v40) f = Cast <to = 1> (r) y = Add (x, f) }}"""
FILLED = f"""{HEAD} g (float[1] x) => (float[n] y) <int64[1] size = {{3000000000}}>
    {{ big = ConstantOfShape (size) y = Add (x, big) }}"""
SMALL = f"{HEAD} g (float[1] x) => (float[1] y) {{ y = Relu (x) }}"
UP = "up = ConvTranspose <output_padding = [1,1], strides = [2,2]> (x, w)"
LOOP = f"""{HEAD} g (float[1,1,4,4] x) => (float[1,1,9,9] y)
    <float[1,1,2,2] w = {{1,2,3,4}}, int64 times = {{1000000000}}, bool go = {{1}}>
    {{ {UP} y = Loop (times, go, up)
        <body = b (int64 i, bool c, float[1,1,9,9] a) => (bool d, float[1,1,9,9] s)
        {{ d = Identity (c) s = Add (a, a) }}> }}"""
WIDE = ("--dim", "n=1:8:64")
COMMANDS = {"check": (), "rewrite": ("-o", "r.onnx"), "build": ("-o", "m.engine")}


def run(folder: Path, text: str, *arguments: str) -> tuple[int, dict[str, object]]:
    """Runs a command on a model as the console entry does; returns the exit status and the JSON document."""
    (folder / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    command = [sys.executable, "-m", "trtconv", *arguments, "--target", "rtx", "-q", "--format", "json"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=120)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(("text", "node"), [(DOUBLING, "Concat"), (FILLED, "ConstantOfShape")])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_made_of_constants_and_sizes_alone_is_held_to_a_budget(
    tmp_path: Path, command: str, text: str, node: str
) -> None:
    dims = ("--dim", "n=2") if command != "rewrite" and text is DOUBLING else ()
    code, said = run(tmp_path, text, command, "m.onnx", *COMMANDS[command], *dims)
    (finding,) = said["findings"]  # type: ignore[misc]
    assert (code, finding["code"], finding["location"]["op"]) == (1, "TC408", node)
    assert "elements; the budget is 67108864" in finding["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_loop_that_does_not_end_is_the_files_own(tmp_path: Path) -> None:
    code, said = run(tmp_path, LOOP, "rewrite", "m.onnx", "-o", "r.onnx", "--budget", "seconds=3")
    (finding,) = said["findings"]  # type: ignore[misc]
    assert (code, finding["code"], finding["location"]["op"]) == (1, "TC408", "Loop")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_the_help_names_every_limit() -> None:
    from trtconv.cli.commands.check import command

    (told,) = (each.help for each in command.params if "--budget" in each.opts)
    limits = [field.name for field in dataclasses.fields(budget.Budget) if field.name not in ("follow_links", "flag")]
    assert [word for word in re.findall(r"[a-z]+", told.partition("limits:")[2]) if word in limits] == limits


def test_a_budget_can_be_raised(tmp_path: Path) -> None:
    text = FILLED.replace("3000000000", "4096")
    assert run(tmp_path, text, "check", "m.onnx", "--budget", "elements=1000")[0] == 1
    assert run(tmp_path, text, "check", "m.onnx", "--budget", "elements=5000")[0] == 0


@pytest.mark.parametrize("command", ["check", "build"])
def test_each_of_several_models_is_held_to_the_limits(tmp_path: Path, command: str) -> None:
    config = 'targets = ["rtx"]\n' + "".join(f'[[models]]\npath = "{name}.onnx"\n' for name in "ab")
    (tmp_path / "trtconv.toml").write_text(config)
    for name in "ab":
        (tmp_path / f"{name}.onnx").write_bytes(onnx.parser.parse_model(SMALL).SerializeToString())
    arguments = [sys.executable, "-m", "trtconv", command, "-q", "--format", "json", "--budget", "megabytes=1"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    runs = json.loads(done.stdout)["runs"]
    assert (done.returncode, len(runs)) == (1, 2)
    assert all("exceeds the budget: stage" in each["error"]["message"] for each in runs)


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "junit"])
def test_what_exceeds_the_budget_is_a_finding_among_several_models_too(tmp_path: Path, form: str) -> None:
    (tmp_path / "trtconv.toml").write_text('targets = ["rtx"]\n[[models]]\npath = "m.onnx"\n')
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(many_inputs(3, 1)).SerializeToString())
    arguments = [sys.executable, "-m", "trtconv", "check", "-q", "--format", form, "--budget", "inputs=3"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    assert done.returncode == 1
    told = done.stdout.decode()
    if form == "sarif":
        told = json.dumps(json.loads(told)["runs"][0]["results"])
    assert "TC408" in told


def many_inputs(inputs: int, outputs: int) -> str:
    names = ", ".join(f"float[1] x{i}" for i in range(inputs))
    ends = ", ".join(f"float[1] y{i}" for i in range(outputs))
    nodes = " ".join(f"y{i} = Relu (x0)" for i in range(outputs))
    return f"{HEAD} g ({names}) => ({ends}) {{ {nodes} }}"


@pytest.mark.parametrize(("command", "inputs", "outputs"), [("check", 11, 1), ("rewrite", 1, 11), ("build", 6, 6)])
def test_inputs_and_outputs_are_held_to_a_budget(tmp_path: Path, command: str, inputs: int, outputs: int) -> None:
    arguments = (command, "m.onnx", *COMMANDS[command])
    code, said = run(tmp_path, many_inputs(inputs, outputs), *arguments, "--budget", "inputs=11")
    (finding,) = said["findings"]  # type: ignore[misc]
    assert (code, finding["code"]) == (1, "TC408")
    assert f"{inputs + outputs} inputs; the budget is 11" in finding["message"]


def test_weights_that_are_listed_as_inputs_are_not_counted(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(SMALL)
    for i in range(20):
        proto.graph.initializer.append(onnx.helper.make_tensor(f"w{i}", 1, [1], [1.0]))
        proto.graph.input.append(onnx.helper.make_tensor_value_info(f"w{i}", 1, [1]))
    (tmp_path / "w.onnx").write_bytes(proto.SerializeToString())
    with budget.allowed(budget.Budget(inputs=2)):
        assert len(OnnxModel.load(tmp_path / "w.onnx").inputs) == 1


@pytest.mark.parametrize(
    ("command", "flags"),
    [("check", ("--profile", "n=1") * 4), ("build", ("--profile", "n=1") * 4), ("build", (*WIDE, "--split", "4"))],
)
def test_profiles_are_held_to_a_budget(tmp_path: Path, command: str, flags: tuple[str, ...]) -> None:
    arguments = (command, "m.onnx", *COMMANDS[command], *flags)
    text = SMALL.replace("float[1]", "float[n]")
    code, said = run(tmp_path, text, *arguments, "--budget", "profiles=3")
    (finding,) = said["findings"]  # type: ignore[misc]
    assert (code, finding["code"]) == (1, "TC408")
    assert "4 profiles; the budget is 3" in finding["message"]


def weighted(proto: onnx.ModelProto) -> onnx.TensorProto:
    """Returns the one weight of a model, which it has from then on."""
    if not proto.graph.initializer:
        proto.graph.initializer.append(onnx.helper.make_tensor("w", 1, [1], [1.0]))
    return proto.graph.initializer[0]


def neg(i: int) -> onnx.NodeProto:
    return onnx.helper.make_node("Neg", ["x"], [f"n{i}"])


def function(proto: onnx.ModelProto) -> onnx.FunctionProto:
    return proto.functions[0] if proto.functions else proto.functions.add(name="f", domain="f")


make_attribute, make_graph = onnx.helper.make_attribute, onnx.helper.make_graph
ADD: dict[str, tuple[str, Callable[[onnx.ModelProto, int], object]]] = {
    "attributes": ("attributes", lambda m, i: m.graph.node[0].attribute.append(make_attribute(f"a{i}", 1))),
    "ends": ("inputs", lambda m, i: m.graph.node[0].input.append("x")),
    "weights": ("weights", lambda m, i: m.graph.initializer.append(onnx.helper.make_tensor(f"w{i}", 1, [1], [1.0]))),
    "sparse": ("weights", lambda m, i: m.graph.sparse_initializer.add()),
    "types": ("tensors", lambda m, i: m.graph.value_info.append(onnx.helper.make_tensor_value_info(f"v{i}", 1, [1]))),
    "annotations": ("tensors", lambda m, i: m.graph.quantization_annotation.add()),
    "metadata": ("entries", lambda m, i: m.metadata_props.add()),
    "opsets": ("entries", lambda m, i: m.opset_import.add()),
    "functions": ("entries", lambda m, i: m.functions.add(name=f"f{i}")),
    "external": ("entries", lambda m, i: weighted(m).external_data.add()),
    "bodies": (
        "nodes",
        lambda m, i: m.graph.node[0].attribute.append(make_attribute(f"b{i}", make_graph([neg(i)], "b", [], []))),
    ),
    "function bodies": ("nodes", lambda m, i: function(m).node.append(neg(i))),
}
"""What a file can list to the limit that it is held to, and what adds one."""


@pytest.mark.parametrize("what", ADD)
def test_all_that_a_file_lists_is_held_to_a_budget(tmp_path: Path, what: str) -> None:
    resource, add = ADD[what]
    proto = onnx.parser.parse_model(SMALL)
    for i in range(100):
        add(proto, i)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with budget.allowed(budget.Budget(**{resource: 50})), pytest.raises(budget.BudgetExceeded) as exceeded:
        OnnxModel.load(path)
    assert exceeded.value.findings[0].code == "TC408"
    assert f"{resource}; the budget is 50" in exceeded.value.message


def test_what_is_listed_too_often_is_told_before_it_is_looked_at(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(SMALL)
    proto.graph.node[0].attribute.extend([make_attribute("a", 1)] * 500_000)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    done = subprocess.run(
        [sys.executable, "-m", "trtconv", "check", "m.onnx", "-q", "--target", "rtx"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        # A second is enough; it took minutes.
        preexec_fn=lambda: limits.setrlimit(limits.RLIMIT_CPU, (20, 20)),
    )
    assert done.returncode == 1
    assert b"TC408" in done.stderr
