"""What TensorRT-RTX does with a plugin of one's own, which is why trtconv refuses any (docs/plugins.md, TensorRT-RTX).

Where a test here fails, RTX has learnt something: `takes_plugins` of runtimes/tensorrt/plugins.py is to be looked at.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

trt = pytest.importorskip("tensorrt_rtx")
if sys.platform == "win32":
    pytest.skip("a process ends otherwise there", allow_module_level=True)

PROGRAM = """
import numpy as np
import onnx.parser
import tensorrt_rtx as trt


class Shift(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    plugin_name, plugin_version, plugin_namespace, num_outputs = "Shift", "1", "", 1

    def __init__(self):
        for base in Shift.__bases__:
            base.__init__(self)

    def get_capability_interface(self, kind):
        return self

    def get_output_data_types(self, types):
        return [types[0]]

    def get_output_shapes(self, inputs, shapes, builder):
        return [inputs[0]]

    def supports_format_combination(self, at, tensors, inputs):
        return True

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])


class Creator(trt.IPluginCreatorV3One):
    def __init__(self):
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "Shift", "1", ""
        field = trt.PluginField("by", np.array([]), trt.PluginFieldType.FLOAT32)
        self.field_names = trt.PluginFieldCollection([field])

    def create_plugin(self, name, fields, phase):
        print("made", flush=True)
        return Shift()


registry = trt.get_plugin_registry()
print("registered", registry.register_creator(Creator(), ""), flush=True)
log = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(log)
network = builder.create_network(0)
model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17, "my": 1]>
g (float[2, 3] x) => (float[2, 3] y) { y = my.Shift <by = 2.0> (x) }''')
trt.OnnxParser(network, log).parse(model.SerializeToString())
print("parsed", flush=True)
"""


def test_a_network_has_no_way_to_a_plugin() -> None:
    assert [name for name in dir(trt.INetworkDefinition) if "plugin" in name] == []


def test_the_parser_ends_the_process_on_a_plugin_that_is_registered(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.stdout.split("\n")[:2] == ["registered True", "made"], ended
    assert "parsed" not in ended.stdout and ended.returncode == -signal.SIGABRT
