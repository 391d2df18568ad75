"""What the tests of sizes share: running ONNX Runtime at many sizes, and networks to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime

from trtconv.core.dims import dynamic_dims
from trtconv.core.expressions import derived
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes, first_faults

MODELS = Path(__file__).parents[1] / "models"
HEADER = '<ir_version: 8, opset_import: ["": 17]>'


def parse(text: str, header: str = HEADER) -> OnnxModel:
    """Makes a model of ONNX's textual syntax."""
    return OnnxModel(onnx.parser.parse_model(header + text), Path("model.onnx"))


def save(text: str, path: Path, header: str = HEADER) -> Path:
    onnx.save(onnx.parser.parse_model(header + text), path)
    return path


class Brute:
    """Tells by running a model on ONNX Runtime which sizes it accepts."""

    def __init__(self, model: OnnxModel) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        # Declared sizes would only add warnings.
        for value in proto.graph.output:
            value.type.tensor_type.ClearField("shape")
        self.inputs = model.inputs
        self.session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.expressions = derived(list(dynamic_dims(model.inputs)))

    def shape(self, point: Mapping[str, int]) -> tuple[int, ...] | None:
        """Returns the shape of the first output, or None where the model fails."""
        sizes: dict[str, Any] = {**point, **{n: e.evaluate(point) for n, e in self.expressions.items()}}
        feeds = {}
        for spec in self.inputs:
            dtype = np.int64 if spec.dtype == "int64" else np.float32
            feeds[spec.name] = np.ones([d if isinstance(d, int) else sizes[d] for d in spec.dims], dtype)
        try:
            return tuple(self.session.run(None, feeds)[0].shape)
        except Exception:  # ONNX Runtime has an exception type for every status
            return None


def assert_exact(model: OnnxModel, points: Sequence[Mapping[str, int]]) -> int:
    """Compares the lattice with ONNX Runtime at every point; returns how many are valid."""
    sizes, brute = Sizes(model), Brute(model)
    trial = sizes.run(points)
    assert not trial.opaque
    faults = first_faults(trial.checks, len(points))
    output = trial.tensors[model.outputs[0]].shape
    valid = 0
    for row, point in enumerate(points):
        shape = brute.shape(point)
        said = f"at {dict(point)} ONNX Runtime says {shape}, the lattice {faults[row] and faults[row].evidence(row)}"  # type: ignore[union-attr]
        assert (shape is not None) == (faults[row] is None), said
        if shape is not None and output is not None:
            ours = tuple(int(n.value if n.constant else n.value[row]) for n in output)
            assert ours == shape, f"at {dict(point)}: {ours}, ONNX Runtime {shape}"
            valid += 1
    return valid
