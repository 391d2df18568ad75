"""`trtconv explain` on real models."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from support.onnx_models import Layer, make
from support.paths import MODELS

UNET = str(MODELS / "unet.onnx")
TARGET = ("--target", "tensorrt-8.6")


def test_several_are_listed(call) -> None:
    ended = call("explain", UNET, *TARGET)
    assert (ended.code, ended.err) == (0, "")
    rows = [re.split(r"  +", line.strip()) for line in ended.out.splitlines()[3:]]
    assert rows == [
        ["graph/node[19]", "/up3/ConvTranspose", "3x3", "2x2", "0,0,0,0", "1,1", "in -> 2*in + 2"],
        ["graph/node[26]", "/up2/ConvTranspose", "3x3", "2x2", "1,1,1,1", "1,1", "in -> 2*in"],
        ["graph/node[32]", "/up1/ConvTranspose", "3x3", "2x2", "1,1,1,1", "1,1", "in -> 2*in"],
    ]


@pytest.mark.parametrize("asked", ["/up3/ConvTranspose", "19", "graph/node[19]", "/up3/ConvTranspose_output_0"])
def test_one_is_explained(call, asked: str) -> None:
    ended = call("explain", UNET, asked, *TARGET)
    assert (ended.code, ended.err) == (0, "")
    text = " ".join(ended.out.split())
    for said in (
        'graph/node[19] ConvTranspose "/up3/ConvTranspose"',
        "axes H and W, alike",
        "= (in - 1)*2 + 1*(3 - 1) + 1 - 0 - 0 + 1 = 2*in + 2",
        "out 0 1 2 3 4 5 6 +7",
        "warning TC101",
        "make-deconv-explicit: output_padding [1, 1] put into the input as [1, 1] zeros, pads [0, 0, 1, 1]",
        "H, W: the input is lengthened by zeros, 1 at the high end",
        "H, W: checkerboard: stride 2 does not divide kernel 3",
    ):
        assert said in text


def test_the_kernel_takes_the_zeros_on_rtx(call) -> None:
    ended = call("explain", UNET, "19", "--target", "rtx")
    assert "H, W: the kernel is zero-extended from 3 to 4 taps, 1 at the high end" in " ".join(ended.out.split())


def test_json(call) -> None:
    ended = call("explain", UNET, "19", *TARGET, "--format", "json")
    document = json.loads(ended.out)
    assert (ended.code, document["exit_code"], document["schema"]) == (0, 0, 1)
    assert document["target"] == "tensorrt-8.6"
    assert [each["place"] for each in document["deconvolutions"]] == [f"graph/node[{n}]" for n in (19, 26, 32)]
    node = document["explanation"]
    assert [axis["name"] for axis in node["axes"]] == ["H", "W"]
    assert node["axes"][0]["out_formula"] == "2*in + 2"
    assert (node["axes"][0]["begin"], node["axes"][0]["end"], node["axes"][0]["taps"]) == (0, -1, [2, 1])
    assert [finding["code"] for finding in node["parser"]["findings"]] == ["TC101"]
    assert node["rewrite"]["edits"][0]["pass"] == "make-deconv-explicit"
    assert node["rewrite"]["attributes"]["kernel_shape"] == [3, 3]
    assert node["rewrite"]["attributes"]["pads"] == [0, 0, 1, 1]
    listed = json.loads(call("explain", UNET, *TARGET, "--format", "json").out)
    assert listed["explanation"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("/up4/ConvTranspose",), "Did you mean /up3/ConvTranspose or"),
        (("18",), 'graph/node[18] Relu "/bottom/bottom.3/Relu" is not a ConvTranspose'),
        (("1000",), "has no node '1000'"),
        (("19", "--target", "tensort"), "--target 'tensort' is unknown"),
    ],
)
def test_a_bad_call_ends_with_2(call, arguments: tuple[str, ...], said: str) -> None:
    ended = call("explain", UNET, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    failed = json.loads(call("explain", UNET, *arguments, "--format", "json").out)
    assert failed["exit_code"] == 2


def test_no_model(call) -> None:
    ended = call("explain", "nothing.onnx")
    assert (ended.code, ended.out) == (2, "")
    assert "nothing.onnx: no such file" in ended.err


def test_plain_ascii_in_the_c_locale(spawn, tmp_path: Path) -> None:
    proto, _ = make(Layer(sizes=(3, 4), kernel=(3, 2), strides=(2, 3), output_padding=(1, 2)))
    proto.graph.node[0].name = "h\u00f6her"
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    code = "import sys; from trtconv.cli import main; sys.exit(main(sys.argv[1:]))"
    plain = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    texts = []
    for _ in range(2):
        process = spawn(code, "explain", str(path), *TARGET, env=plain)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        texts.append(out)
    assert texts[0] == texts[1]
    assert texts[0].isascii()
    assert 'ConvTranspose "h\\xf6her"' in texts[0]
    assert "gaps: 1 of every 3" in texts[0]
