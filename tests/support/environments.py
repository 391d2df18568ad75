"""Environments with another TensorRT: a Python that changes the one that is installed before trtconv sees it."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

HERE = Path(sys.executable)
SAMPLED = """
<ir_version: 8, opset_import: ["" : 20]>
g (float[1,2,6,6] x, float[1,5,5,2] grid) => (float[1,2,5,5] y)
{ y = GridSample <mode = "linear"> (x, grid) }
"""
PLAIN = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,6,6] x) => (float[1,2,6,6] y) { y = Relu (x) }
"""
_SCRIPT = """#!/bin/sh
for last; do :; done
exec "{python}" -I -c "import sys; sys.path[:] = {path!r}; exec(open('{patch}').read()); exec(sys.argv[1])" "$last"
"""

VERSION = """
import tensorrt_rtx as trt
trt.__version__ = "1.5.0.0"
"""
NEAREST = (
    VERSION
    + """
class Parser(trt.OnnxParser):
    def __init__(self, network, logger):
        super().__init__(network, logger)
        self.network = network
    def parse(self, *asked):
        done = super().parse(*asked)
        for index in range(self.network.num_layers):
            layer = self.network.get_layer(index)
            if layer.type == trt.LayerType.GRID_SAMPLE:
                layer.__class__ = trt.IGridSampleLayer
                layer.interpolation_mode = trt.InterpolationMode.NEAREST
        return done
trt.OnnxParser = Parser
"""
)
"""Reads every GridSample as one of the nearest neighbour, as TensorRT-RTX 1.5 does."""
DIES = (
    VERSION
    + """
import os
class Parser(trt.OnnxParser):
    def parse(self, *asked):
        os.kill(os.getpid(), 11)
trt.OnnxParser = Parser
"""
)


def environment(folder: Path, patch: str) -> Path:
    """Makes an environment.

    Args:
        folder: Where it goes.
        patch: What its Python runs first.
    """
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    code = folder / "patch.py"
    code.write_text(patch)
    path = [each for each in sys.path if "site-packages" in each or each.startswith(sys.base_prefix)]
    python.write_text(_SCRIPT.format(python=sys.executable, path=path, patch=code))
    python.chmod(0o755)
    return folder


def saved(folder: Path, text: str, name: str) -> Path:
    """Writes a model whose first node has the model's name."""
    model = onnx.parser.parse_model(text)
    model.graph.node[0].name = name
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path
