"""What whoever comes from trtexec or Polygraphy types, and what is said of it."""

from __future__ import annotations

import pytest

from trtconv.cli.process.other_flags import FLAGS


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_of_other_tools_name_ours(call, flag: str) -> None:
    ended = call("build", "m.onnx", flag if "=" in flag else f"{flag}=x")
    name = flag.partition("=")[0]
    assert ended.code == 2
    if f"There is no option {name}." in ended.err:
        assert f"hint: {FLAGS[flag]}. 'trtconv build --help-all' lists all." in ended.err
    else:
        # Our own, which takes no value.
        assert f"error: Option {name!r} does not take a value." in ended.err
        assert name == "--sparsity"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("convert", "m.onnx", "m.engine"), "No such command 'convert'. Did you mean build?"),
        (("m.onnx",), "No such command 'm.onnx'. Did you mean trtconv build m.onnx?"),
        (("built", "m.onnx"), "Did you mean build?"),
        (("frobnicate",), "No such command 'frobnicate'."),
        (("build", "m.onnx", "m.engine"), "hint: The engine's path goes behind -o: -o m.engine"),
        (("build", "m.onnx", "--dim", "batch", "1"), "hint: Join the two by an equals sign: --dim batch=1"),
        (("build", "--dim", "batch", "1:2:4", "m.onnx"), "hint: Join the two by an equals sign: --dim batch=1:2:4"),
        (("check", "m.onnx", "--dim", "batch"), "hint: Write --dim batch=64:256:512."),
        (("check", "m.onnx", "--target", "trt10"), "hint: Did you mean tensorrt-10?"),
        (("check", "m.onnx", "--target", "tensort"), "hint: Did you mean tensorrt?"),
        (("build", "m.onnx", "--precision", "half"), "hint: Did you mean fp16?"),
        (("build", "a.onnx", "b.onnx"), "hint: For several models: list them in trtconv.toml"),
        (("build", "m.onnx", "--presicion", "fp16"), "--precision"),
    ],
)
def test_other_habits(call, arguments: tuple[str, ...], said: str) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("check", ""), "MODEL"),
        (("check", "m.onnx", ""), "MODEL"),
        (("build", "m.onnx", "-o", ""), "--output"),
        (("build", "m.onnx", "--dim", ""), "--dim"),
        (("verify", "m.engine", "m.onnx", "--report", ""), "--report"),
        (("inspect", ""), "FILE"),
        (("check", "--config", ""), "--config"),
        (("init", ""), "FOLDER"),
    ],
)
def test_empty_arguments_are_named(call, arguments: tuple[str, ...], name: str) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert f"error: {name} is empty\nhint: Give {name} a value" in ended.err


@pytest.mark.parametrize("arguments", [("build", "."), ("reduce", "/"), ("build", "m.onnx", "-o", "."), ("build", "/")])
def test_a_folder_has_no_name_to_write_beside(call, arguments: tuple[str, ...]) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert "is a folder\nhint: Give the " in ended.err
