from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.runtimes.tensorrt.layers import onnx_origin
from trtconv.runtimes.tensorrt.messages import Record, clean, profile_findings, refusal, refusal_findings

NO_GPU = (
    "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at "
    "/_src/common/dispatch/checkMacros.cpp:250 (cudaError 35: CUDA driver version is insufficient for CUDA runtime "
    "version))"
)
SHAPES = (
    "cat: axis 2 dimensions must be equal for concatenation on axis 1. Dimensions are H and (MUL_ADD 2 (CEIL_DIV "
    "(+ H -3) 2) 2). Condition '==' violated: 9 != 8. In operator() at /_src/runtime/core/shapeMachine.cpp:640"
)
KMIN = f"Profile kMIN values are not self-consistent. {SHAPES} Instruction: CHECK_EQUAL 9 8. In run at /_src/a.cpp:1103"
KOPT = (
    "IBuilder::buildSerializedNetwork: Error Code 4: Internal Error (kOPT values for profile 1 violate shape "
    f"constraints: {SHAPES} In evaluateShapeChecks at /_src/optimizer/common/shapeCompiler.cpp:1375)"
)
STARTS = Record("INFO", "Detected 1 inputs and 1 output network tensors.")
WHY = 'layer "cat": axis 2 dimensions must be equal for concatenation on axis 1 (9 != 8)'


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (
            "Assertion failed: creator && getPluginCreatorVersion(creator) == CreatorVersion::kV3ONE: NonZero plugin "
            "creator version 1 was not found in plugin registry.",
            "NonZero plugin creator version 1 was not found in plugin registry.",
        ),
        (
            'creator && "Plugin not found, are the plugin name, version, and namespace correct?"',
            "Plugin not found, are the plugin name, version, and namespace correct?",
        ),
        ('(mode == "a" || mode == "b") && "Only a " "and b!"', "Only a and b!"),
        (
            "Invalid Node - mm\nITensor::getDimensions: Error Code 4: API Usage Error (mm: last dimension of input0 = "
            "3 and second to last dimension of input1 = 1 but must match. In validate at /_src/optimizer/mm.cpp:192)\n"
            + NO_GPU,
            "mm: last dimension of input0 = 3 and second to last dimension of input1 = 1 but must match.",
        ),
        (
            "IBuilder::buildSerializedNetwork: Error Code 1: Myelin ([myelin_graph.h:1295: attachExceptionMsgToGraph] "
            "MyelinCheckException: cudnn_impl.cpp:294: CHECK(false) failed. Strided & Dilated Deconv are currently not "
            "supported In compileGraph at /_src/optimizer/myelin/codeGenerator.cpp:2012)",
            "Strided & Dilated Deconv are currently not supported",
        ),
        ("4: [network.cpp::validate::3062] Error Code 4: Internal Error (no profile)", "no profile"),
        ("something that nobody knows", "something that nobody knows"),
        (NO_GPU, NO_GPU),
    ],
)
def test_the_reason_is_kept_and_the_rest_dropped(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@given(st.text(alphabet=st.sampled_from("ab():[]&\"' \n.0")))
def test_something_is_left_of_any_text(text: str) -> None:
    assert bool(clean(text)) == bool(text.strip())


def test_an_operator_that_is_known_and_never_imported() -> None:
    assert refusal("false") == "the parser does not support this operator"


def test_a_violated_optimum_names_profile_layer_and_sizes() -> None:
    (finding,) = profile_findings([Record("ERROR", KOPT)], 2)
    assert finding.code == "TC404"
    assert finding.message == f"the opt sizes of profile 1 do not fit the network: {WHY}"
    assert finding.location.node == "cat"


@pytest.mark.parametrize(
    ("before", "profiles", "number"),
    [(0, 1, "profile 0"), (1, 1, "profile 0"), (1, 2, "profile 0"), (2, 2, "profile 1"), (3, 2, "a profile")],
)
def test_a_warning_belongs_to_the_profile_that_the_builder_is_at(before: int, profiles: int, number: str) -> None:
    (finding,) = profile_findings([STARTS] * before + [Record("WARNING", KMIN)] * 2, profiles)
    assert finding.message == f"the min sizes of {number} do not fit the network: {WHY}"


def test_a_size_that_the_input_cannot_have() -> None:
    reason = "Dimension mismatch for tensor x and profile 0. At dimension axis 1, no."
    text = f"Error Code 4: API Usage Error ({reason} In a at b:1)"
    (finding,) = profile_findings([Record("ERROR", text)], 1)
    assert (finding.code, finding.message) == ("TC404", reason)


def test_a_refusal_without_a_reason_is_still_a_finding() -> None:
    (finding,) = refusal_findings([Record("WARNING", "slow"), Record("ERROR", NO_GPU)])
    assert finding.code == "TC403"
    assert "without giving a reason" in finding.message


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("x: tensor volume exceeds 1099511627776, dimensions are [1,3,1000000,1000000]", "smaller sizes"),
        ("Assertion tScope.getType() != ScopeType::kUNDEFINED failed.", "trtconv rule TC619"),
        ("no tactics to implement the operation within workspace limit", "--workspace 4G"),
        (
            "Error during shape inference of\n/S_output_0 : f32[12, 32] = scatter_elements(/C, /E, /F), axis=0",
            "export with dynamo=True",
        ),
        ("something that nobody has seen yet", "trtconv reduce"),
    ],
)
def test_a_refusal_says_what_to_do(text: str, fix: str) -> None:
    (finding,) = refusal_findings([Record("ERROR", text)])
    assert fix in finding.fix


@pytest.mark.parametrize(
    ("metadata", "node", "inside"),
    [
        ("[ONNX Layer: up]", "up", ()),
        ("[ONNX Layer: up | then (then_branch) | if (If)]", "up", ("if (If)", "then (then_branch)")),
        ("[ONNX Layer: up | call1 (Up)]", "up", ("call1 (Up)",)),
        ("[ONNX Layer: a]\x1e[ONNX Layer: b]", "a", ()),
        ("[ONNX Layer: up[0]]", "up[0]", ()),
        ("", "layer", ()),
        ("something else", "layer", ()),
    ],
)
def test_the_onnx_node_of_a_layer(metadata: str, node: str, inside: tuple[str, ...]) -> None:
    assert onnx_origin(metadata, "layer") == (node, inside)
