"""The adapter with the installed TensorRT-RTX: real models parsed, real engines built."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import BuildFailed, EnvironmentMissing
from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.runtimes.tensorrt import DeconvLayer, ParsedNetwork, ParserIssue, Runtime, available, load

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed: pip install tensorrt-rtx")

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
node = onnx.helper.make_node
graph = onnx.helper.make_graph
HERE = Path("model.onnx")


def value(name: str, shape: list[Any], dtype: int = FLOAT) -> Any:
    return onnx.helper.make_tensor_value_info(name, dtype, shape)


def const(name: str, array: Any) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def weight(*shape: int, name: str = "W") -> Any:
    return const(name, np.ones(shape, np.float32))


def model(nodes: Any, inputs: Any, outputs: Any, constants: Any = (), functions: Any = (), opset: int = 17) -> bytes:
    domains = ["", "cust", "local"]
    opsets = [onnx.helper.make_opsetid(d, 1 if d else opset) for d in domains]
    made = graph(nodes, "g", inputs, outputs, list(constants))
    proto = onnx.helper.make_model(made, opset_imports=opsets, functions=list(functions))
    proto.ir_version = 8
    return bytes(proto.SerializeToString())


X = value("x", [1, 3, 8, 8])
ANY = value("y", ["a", "b", "c", "d"])
W = weight(3, 4, 3, 3)
BIAS = const("B", np.ones(4, np.float32))


def up(*inputs: str, out: str = "y", name: str = "up", **attributes: Any) -> Any:
    return node("ConvTranspose", list(inputs), [out], name=name, **attributes)


@pytest.fixture(scope="module")
def rtx() -> Runtime:
    return load(Target("rtx"))


def accepted(rtx: Runtime, data: bytes, path: Path = HERE) -> ParsedNetwork:
    network = rtx.parse(data, path)
    assert not isinstance(network, tuple), network
    return network


def refused(rtx: Runtime, data: bytes) -> tuple[ParserIssue, ...]:
    issues = rtx.parse(data, HERE)
    assert isinstance(issues, tuple)
    return issues


def only_deconv(rtx: Runtime, data: bytes) -> DeconvLayer:
    (layer,) = accepted(rtx, data).deconvolutions
    assert layer.onnx_node == "up"
    return layer


def plan(*profiles: tuple[Any, Any, Any], precision: str = "as-is") -> BuildPlan:
    made = tuple(ShapeProfile({"x": InputRange(*shapes)}, {}) for shapes in profiles)
    return BuildPlan(Target("rtx"), made, precision=precision)


def failure(network: ParsedNetwork, asked: BuildPlan) -> tuple[list[Finding], BuildFailed]:
    with pytest.raises(BuildFailed) as caught:
        network.build(asked)
    findings = [finding for finding in caught.value.findings if isinstance(finding, Finding)]
    return findings, caught.value


def test_the_runtime_says_what_it_is(rtx: Runtime) -> None:
    info = rtx.info
    assert info.family == "rtx"
    assert info.target.family == "rtx"
    assert not info.capabilities.builder_precision_flags
    assert info.capabilities.builds_without_gpu
    assert [s.works for s in available() if s.family == "rtx"] == [True]


# Deconvolutions are read as TensorRT has them.


def test_2d_with_bias(rtx: Runtime) -> None:
    layer = only_deconv(rtx, model([up("x", "W", "B", strides=[2, 3], pads=[1, 0, 0, 1])], [X], [ANY], [W, BIAS]))
    assert (layer.kernel, layer.stride, layer.dilation) == ((3, 3), (2, 3), (1, 1))
    assert (layer.pre_padding, layer.post_padding) == ((1, 0), (0, 1))
    assert (layer.groups, layer.out_channels, layer.has_bias) == (1, 4, True)
    assert (layer.input_shape, layer.output_shape) == ((1, 3, 8, 8), (1, 4, 16, 23))
    assert (layer.output, layer.inside) == ("y", ())


def test_1d_is_lifted_to_2d(rtx: Runtime) -> None:
    inputs = [value("x", [1, 3, 8])]
    network = accepted(rtx, model([up("x", "W", strides=[2])], inputs, [value("y", [1, 4, 17])], [weight(3, 4, 3)]))
    assert "UNSQUEEZE" in network.layer_types
    (layer,) = network.deconvolutions
    assert (layer.onnx_node, layer.kernel, layer.stride) == ("up", (3, 1), (2, 1))
    assert (layer.has_bias, layer.output_shape) == (False, (1, 4, 17, 1))


def test_3d_dynamic(rtx: Runtime) -> None:
    inputs = [value("x", ["n", 3, "d", "h", "w"])]
    output = [value("y", ["a", 4, "b", "c", "e"])]
    layer = only_deconv(rtx, model([up("x", "W", strides=[2, 2, 2])], inputs, output, [weight(3, 4, 3, 3, 3)]))
    assert (layer.kernel, layer.input_shape) == ((3, 3, 3), (-1, 3, -1, -1, -1))


def test_groups(rtx: Runtime) -> None:
    inputs = [value("x", [1, 4, 8, 8])]
    layer = only_deconv(rtx, model([up("x", "W", group=2)], inputs, [ANY], [weight(4, 3, 3, 3)]))
    assert (layer.groups, layer.out_channels) == (2, 6)


def test_same_upper(rtx: Runtime) -> None:
    layer = only_deconv(rtx, model([up("x", "W", strides=[2, 2], auto_pad="SAME_UPPER")], [X], [ANY], [W]))
    assert (layer.padding_mode, layer.output_shape) == ("SAME_UPPER", (1, 4, 16, 16))


@pytest.mark.parametrize(
    ("inputs", "constants", "reads", "has_bias"),
    [
        ([value("W", [3, 4, 3, 3])], [], ["x", "W"], False),
        ([value("W", [3, 4, 3, 3])], [BIAS], ["x", "W", "B"], True),
        ([value("B", [4])], [W], ["x", "W", "B"], True),
        ([value("W", [3, 4, 3, 3]), value("B", [4])], [], ["x", "W", "B"], True),
    ],
)
def test_weights_and_bias_as_graph_inputs(
    rtx: Runtime, inputs: Any, constants: Any, reads: list[str], has_bias: bool
) -> None:
    layer = only_deconv(rtx, model([up(*reads)], [X, *inputs], [ANY], constants))
    assert (layer.kernel, layer.out_channels, layer.has_bias) == ((3, 3), 4, has_bias)


def test_quantised_weight(rtx: Runtime) -> None:
    scale, zero = const("s", np.full(4, 0.1, np.float32)), const("z", np.zeros(4, np.int8))
    quantised = [
        node("QuantizeLinear", ["W", "s", "z"], ["q"], axis=1, name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["dq"], axis=1, name="dq"),
    ]
    layer = only_deconv(rtx, model([*quantised, up("x", "dq", "B")], [X], [ANY], [W, BIAS, scale, zero]))
    assert (layer.kernel, layer.out_channels, layer.has_bias) == ((3, 3), 4, True)


def test_the_parsers_own_output_padding_takes_the_bias_out(rtx: Runtime) -> None:
    layer = only_deconv(rtx, model([up("x", "W", "B", strides=[2, 2], output_padding=[1, 1])], [X], [ANY], [W, BIAS]))
    assert (layer.has_bias, layer.output_shape) == (False, (1, 4, 17, 17))


def test_names_in_branches_functions_and_loops(rtx: Runtime) -> None:
    then = graph([up("x", "W", out="t")], "then", [], [value("t", [1, 4, 10, 10])])
    other = graph([up("x", "W", out="e")], "else", [], [value("e", [1, 4, 10, 10])])
    branches = node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other)
    layers = accepted(rtx, model([branches], [X, value("c", [], BOOL)], [ANY], [W])).deconvolutions
    assert [(layer.onnx_node, layer.inside) for layer in layers] == [
        ("up", ("if (If)", "then (then_branch)")),
        ("up", ("if (If)", "else (else_branch)")),
    ]

    function = onnx.helper.make_function(
        "local", "Up", ["a", "w"], ["b"], [up("a", "w", out="b")], [onnx.helper.make_opsetid("", 17)]
    )
    calls = [node("Up", ["x", "W"], [out], name=f"call_{out}", domain="local") for out in ("y", "z")]
    outputs = [ANY, value("z", ["a", "b", "c", "d"])]
    layers = accepted(rtx, model(calls, [X], outputs, [W], [function])).deconvolutions
    assert [(layer.onnx_node, layer.inside) for layer in layers] == [("up", ("call_y (Up)",)), ("up", ("call_z (Up)",))]

    body = graph(
        [node("Identity", ["go"], ["still"], name="id"), up("v", "V", out="u", pads=[1, 1, 1, 1])],
        "body",
        [value("i", [], INT64), value("go", [], BOOL), value("v", [1, 3, 8, 8])],
        [value("still", [], BOOL), value("u", [1, 3, 8, 8])],
    )
    constants = [weight(3, 3, 3, 3, name="V"), const("trips", np.int64(3)), const("true", np.bool_(True))]
    loop = node("Loop", ["trips", "true", "x"], ["y"], name="loop", body=body)
    layer = only_deconv(rtx, model([loop], [X], [ANY], constants))
    assert layer.inside == ()


def test_a_node_without_a_name_is_named_after_its_output(rtx: Runtime) -> None:
    (layer,) = accepted(rtx, model([up("x", "W", name="")], [X], [ANY], [W])).deconvolutions
    assert layer.onnx_node == "node_of_y"


# Parsing.


def test_external_data_is_found_beside_the_model(rtx: Runtime, tmp_path: Path) -> None:
    proto = onnx.load_model_from_string(model([up("x", "W")], [X], [ANY], [W]))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    assert (tmp_path / "model.onnx.data").exists()
    (layer,) = accepted(rtx, path.read_bytes(), path).deconvolutions
    assert layer.out_channels == 4
    assert accepted(rtx, path.read_bytes(), path).build(plan()).data.nbytes > 0


def test_missing_external_data_is_refused(rtx: Runtime, tmp_path: Path) -> None:
    proto = onnx.load_model_from_string(model([up("x", "W")], [X], [ANY], [W]))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    (tmp_path / "model.onnx.data").unlink()
    issues = rtx.parse(path.read_bytes(), path)
    assert isinstance(issues, tuple)
    assert issues[0].message


@pytest.mark.parametrize("data", [b"", b"\x00no model at all", b"<html>"])
def test_bytes_that_are_no_model_are_refused(rtx: Runtime, data: bytes) -> None:
    (issue,) = refused(rtx, data)
    assert issue.node_index == -1
    assert issue.message


def test_io_has_the_types_of_the_engine(rtx: Runtime) -> None:
    dtypes = {"f": (FLOAT, "float32"), "h": (onnx.TensorProto.FLOAT16, "float16"), "i": (INT64, "int64")}
    dtypes |= {"b": (BOOL, "bool"), "d": (onnx.TensorProto.DOUBLE, "float32"), "j": (onnx.TensorProto.INT32, "int32")}
    dtypes |= {"g": (onnx.TensorProto.BFLOAT16, "bfloat16")}
    nodes = [node("Identity", [name], [f"{name}_out"]) for name in dtypes]
    inputs = [value(name, [2, "n"], dtype) for name, (dtype, _) in dtypes.items()]
    outputs = [value(f"{name}_out", [2, "n"], dtype) for name, (dtype, _) in dtypes.items()]
    network = accepted(rtx, model(nodes, inputs, outputs))
    assert {t.name: t.dtype for t in network.inputs} == {name: dtype for name, (_, dtype) in dtypes.items()}
    assert network.outputs[0].name == "f_out"
    assert network.outputs[0].shape == (2, -1)
    assert network.shape_inputs == ()


def test_all_refused_nodes_are_listed(rtx: Runtime) -> None:
    nodes = [
        node("NonZero", ["x"], ["nz"], name="nz"),
        node("Relu", ["x"], ["r"], name="relu"),
        node("Foo", ["r"], ["f"], name="foo", domain="cust"),
        node("Bar", ["f"], ["g"], name="bar", domain="cust"),
        node("Sigmoid", ["g"], ["y"], name="fine"),
        node("NonZero", ["r"], ["nz2"], name="nz2"),
        node("MatMul", ["v", "v"], ["mm"], name="mm"),
    ]
    outputs = [value("nz", [4, None], INT64), value("nz2", [4, None], INT64), ANY, value("mm", [1, 3])]
    issues = refused(rtx, model(nodes, [X, value("v", [1, 3])], outputs))
    assert [(i.node_index, i.node_name, i.op) for i in issues] == [
        (0, "nz", "NonZero"),
        (2, "foo", "Foo"),
        (3, "bar", "Bar"),
        (5, "nz2", "NonZero"),
        (6, "mm", "MatMul"),
    ]
    assert all("\n" not in i.message and ".cpp" not in i.message for i in issues)


def test_a_node_behind_a_refused_one_is_looked_at_where_its_input_is_known(rtx: Runtime) -> None:
    nodes = [
        node("Foo", ["x"], ["f"], name="foo", domain="cust"),
        node("MatMul", ["f", "v"], ["mm"], name="mm"),
        node("Relu", ["mm"], ["y"], name="relu"),
    ]
    data = model(nodes, [X, value("v", [3, 3])], [ANY])
    assert [i.node_name for i in refused(rtx, data)] == ["foo"]
    proto = onnx.load_model_from_string(data)
    proto.graph.value_info.append(value("f", [1, 3, 8, 8]))
    assert [i.node_name for i in refused(rtx, bytes(proto.SerializeToString()))] == ["foo", "mm"]


def test_a_node_is_not_blamed_for_a_constant_that_was_taken_away(rtx: Runtime) -> None:
    nodes = [
        node("Foo", ["k"], ["axes"], name="foo", domain="cust"),
        node("ReduceMean", ["x", "axes"], ["y"], name="mean"),
    ]
    proto = onnx.load_model_from_string(model(nodes, [X], [ANY], [const("k", np.array([2], np.int64))], opset=18))
    proto.graph.value_info.append(value("axes", [1], INT64))
    assert [i.node_name for i in refused(rtx, bytes(proto.SerializeToString()))] == ["foo"]


def test_refused_nodes_in_branches_and_functions_say_where(rtx: Runtime) -> None:
    then = graph([node("Foo", ["x"], ["t"], name="foo", domain="cust")], "then", [], [value("t", [1, 3, 8, 8])])
    other = graph(
        [node("NonZero", ["x"], ["n"], name="nz"), node("Bar", ["x"], ["e"], name="bar", domain="cust")],
        "else",
        [],
        [value("e", [1, 3, 8, 8])],
    )
    nodes = [node("Relu", ["x"], ["r"], name="relu")]
    nodes += [node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other)]
    issues = refused(rtx, model(nodes, [X, value("c", [], BOOL)], [ANY]))
    assert {(i.node_index, i.node_name, i.inside) for i in issues} == {
        (1, "foo", ("if (If)", "then (then_branch)")),
        (1, "bar", ("if (If)", "else (else_branch)")),
    }

    body = [node("Relu", ["a"], ["q"], name="inner"), node("NonZero", ["q"], ["b"], name="nz")]
    function = onnx.helper.make_function("local", "Up", ["a"], ["b"], body, [onnx.helper.make_opsetid("", 17)])
    nodes = [node("Relu", ["x"], ["r"]), node("Relu", ["r"], ["s"])]
    nodes += [node("Up", ["s"], ["y"], name="call", domain="local")]
    (issue,) = refused(rtx, model(nodes, [X], [value("y", [4, None], INT64)], functions=[function]))
    assert (issue.node_index, issue.node_name, issue.inside) == (2, "nz", ("call (Up)",))


# Building. A U-Net of one level: H and W must be even.

EVEN = ((1, 3, 8, 8), (1, 3, 16, 16), (2, 3, 32, 32))


@pytest.fixture(scope="module")
def unet(rtx: Runtime) -> ParsedNetwork:
    nodes = [
        node("Conv", ["x", "C"], ["e"], pads=[1] * 4, name="enc"),
        node("MaxPool", ["e"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        up("p", "U", out="u", strides=[2, 2]),
        node("Concat", ["e", "u"], ["y"], axis=1, name="cat"),
    ]
    constants = [weight(3, 3, 3, 3, name="C"), weight(3, 3, 2, 2, name="U")]
    return accepted(rtx, model(nodes, [value("x", ["N", 3, "H", "W"])], [value("y", ["a", 6, "b", "c"])], constants))


def test_a_dynamic_engine_is_built(unet: ParsedNetwork) -> None:
    blob = unet.build(plan(EVEN, ((1, 3, 32, 32), (1, 3, 32, 32), (1, 3, 64, 64))))
    assert isinstance(blob.data, memoryview)
    assert len(blob.data) > 1000


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ([((1, 3, 9, 8), *EVEN[1:])], "the min sizes of profile 0"),
        ([EVEN, ((1, 3, 9, 8), *EVEN[1:])], "the min sizes of profile 1"),
        ([((1, 3, 9, 8), *EVEN[1:]), EVEN], "the min sizes of profile 0"),
        ([EVEN, (*EVEN[:2], (2, 3, 33, 32))], "the max sizes of profile 1"),
        ([EVEN, (EVEN[0], (1, 3, 17, 16), EVEN[2])], "the opt sizes of profile 1"),
    ],
)
def test_sizes_that_do_not_fit_are_an_error(unet: ParsedNetwork, profiles: list[Any], message: str) -> None:
    findings, error = failure(unet, plan(*profiles))
    assert [(f.code, f.name, f.location.node) for f in findings] == [("TC404", "profile-inconsistent", "cat")]
    assert message in error.message
    assert 'layer "cat": axis 2' in error.message
    assert "!=" in error.message
    assert "trtconv sizes" in error.hint


def test_a_profile_with_other_channels_is_an_error(unet: ParsedNetwork) -> None:
    findings, _ = failure(unet, plan(((1, 5, 8, 8),) * 3))
    assert findings[0].code == "TC404"
    assert "min=5" in findings[0].message


def test_a_refused_build_gives_the_reason(rtx: Runtime) -> None:
    network = accepted(rtx, model([up("x", "W", strides=[2, 2], dilations=[2, 2])], [X], [ANY], [W]))
    findings, error = failure(network, plan())
    assert [(f.code, f.name) for f in findings] == [("TC403", "builder-refused")]
    assert error.message == "Strided & Dilated Deconv are currently not supported"


def test_inputs_that_are_shapes_are_named(rtx: Runtime) -> None:
    data = model([node("Reshape", ["x", "sh"], ["y"])], [X, value("sh", [2], INT64)], [value("y", ["a", "b"])])
    network = accepted(rtx, data)
    assert network.shape_inputs == ("sh",)
    findings, _ = failure(network, plan())
    assert [(f.code, f.location.tensor) for f in findings] == [("TC205", "sh")]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_precision_is_the_graphs(unet: ParsedNetwork, precision: str) -> None:
    with pytest.raises(EnvironmentMissing, match=precision):
        unet.build(plan(EVEN, precision=precision))


def test_a_monitor_sees_phases(unet: ParsedNetwork) -> None:
    seen: list[tuple[str, int, int]] = []

    def monitor(phase: str, step: int, steps: int) -> bool:
        seen.append((phase, step, steps))
        return True

    unet.build(plan(EVEN), monitor)
    assert seen[0][0] == "Building engine"
    assert all(0 <= step <= steps for _, step, steps in seen)


def test_a_monitor_cancels(unet: ParsedNetwork) -> None:
    calls: list[str] = []

    def monitor(phase: str, step: int, steps: int) -> bool:
        calls.append(phase)
        return len(calls) < 4

    with pytest.raises(BuildFailed, match="cancelled"):
        unet.build(plan(EVEN), monitor)
    assert len(calls) == 4
    assert unet.build(plan(EVEN)).data.nbytes > 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_a_monitor_raises_comes_out(unet: ParsedNetwork, error: type[BaseException]) -> None:
    def monitor(*_: object) -> bool:
        raise error

    with pytest.raises(error):
        unet.build(plan(EVEN), monitor)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way on Windows")
def test_ctrl_c_during_a_build_is_not_lost(unet: ParsedNetwork) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive in the main thread only")
    started = threading.Event()

    def monitor(*_: object) -> bool:
        if not started.is_set():
            started.set()
            os.kill(os.getpid(), signal.SIGINT)
        return True

    with pytest.raises(KeyboardInterrupt):
        unet.build(plan(EVEN), monitor)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_builds_in_threads_keep_their_messages_apart(rtx: Runtime, unet: ParsedNetwork) -> None:
    results: dict[int, str] = {}

    def run(number: int) -> None:
        bad = (*EVEN[:2], (2, 3, 33, 32))
        try:
            unet.build(plan(bad if number % 2 else EVEN))
            results[number] = "built"
        except BuildFailed as error:
            results[number] = error.message

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[2] == "built"
    assert all("max sizes" in results[i] for i in (1, 3))


def test_nothing_is_printed(unet: ParsedNetwork, capfd: pytest.CaptureFixture[str]) -> None:
    unet.build(plan(EVEN))
    failure(unet, plan(((1, 3, 9, 8), *EVEN[1:])))
    assert capfd.readouterr() == ("", "")
