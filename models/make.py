"""Regenerates the .onnx files of this folder from their recipes, or checks them.

    python models/make.py [NAME...]          export, prove and replace NAME.onnx (all by default)
    python models/make.py --check [NAME...]  say whether the files still match their recipes

A recipe is a file NAME.py with `build(...)`, which returns the network in eval mode, and:

    INPUT, OUTPUT   names of the one input and the one output
    EXAMPLE         shape of the example input
    OTHER_SIZES     further valid input shapes, for the proof
    DYNAMIC_AXES    tensor name -> axis -> name of the dynamic dimension
    TOLERANCE       largest accepted difference, relative to the largest magnitude of the output

Every file is opset 17, IR version 8, in one piece, without doc strings and metadata. It is proved
with ONNX Runtime (graph optimisations off) against the eager network at every size of the recipe.
`--check` exports into a temporary folder, compares operators, names, attributes and shapes with the
stored file, and proves the stored file; weights are not compared bit by bit.

Needs torch, onnx and onnxruntime. Exit code 0: all well; 1: a file differs or fails its proof.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import torch

HERE = Path(__file__).resolve().parent
NAMES = ("unet", "unet3d", "super_resolution", "quantized_autoencoder", "vocoder", "gan_generator")
OPSET = 17
IR_VERSION = 8


def load_recipe(name: str) -> ModuleType:
    """Imports NAME.py of this folder."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    return recipe


def export(recipe: ModuleType, module: torch.nn.Module, path: Path) -> None:
    """Writes the network to `path`, without anything that depends on the machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            module,
            (torch.zeros(recipe.EXAMPLE),),
            path,
            input_names=[recipe.INPUT],
            output_names=[recipe.OUTPUT],
            dynamic_axes=recipe.DYNAMIC_AXES,
            opset_version=OPSET,
            dynamo=False,  # the only exporter that writes opset 17 and fake-quantised weights
        )
    model = onnx.load(path)
    model.ir_version = IR_VERSION
    for item in (model, model.graph, *model.graph.node):
        item.ClearField("doc_string")
        item.ClearField("metadata_props")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def prove(recipe: ModuleType, module: torch.nn.Module, path: Path) -> float:
    """Compares the file with the network at every size of the recipe.

    Returns:
        The largest difference over all sizes, relative to the largest magnitude of the output;
        infinity where a shape differs or a value is no number.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for size in (recipe.EXAMPLE, *recipe.OTHER_SIZES):
        x = torch.randn(size, generator=generator)
        with torch.no_grad():
            expected = module(x).numpy()
        (got,) = session.run([recipe.OUTPUT], {recipe.INPUT: x.numpy()})
        if got.shape != expected.shape or not np.isfinite(got).all():
            return float("inf")
        worst = max(worst, float(np.abs(got - expected).max() / np.abs(expected).max()))
    return worst


def structure(path: Path) -> list[str]:
    """Describes everything in a file but the values of its weights, one line an item."""
    model = onnx.load(path)
    lines = [f"ir_version {model.ir_version}"]
    lines += [f"opset {o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import]
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        lines += [f"{kind} {onnx.helper.printable_value_info(v)}" for v in values]
    lines += [f"weight {tuple(w.dims)} type {w.data_type}" for w in model.graph.initializer]
    for node in model.graph.node:
        values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        for key, value in values.items():
            if isinstance(value, onnx.TensorProto):
                values[key] = (tuple(value.dims), value.data_type)
        lines.append(f"node {node.op_type} {node.name} {sorted(values.items())}")
    return lines


def differences(stored: list[str], fresh: list[str]) -> list[str]:
    """Lists the lines that only one of two descriptions has, marked with - and +."""
    return [d for d in difflib.ndiff(stored, fresh) if d[0] in "-+"]


def make(name: str, check: bool) -> bool:
    """Regenerates or checks one file; prints one line and returns whether all is well."""
    recipe = load_recipe(name)
    module = recipe.build()
    target = HERE / f"{name}.onnx"
    with tempfile.TemporaryDirectory(dir=None if check else HERE) as folder:
        fresh = Path(folder) / target.name
        export(recipe, module, fresh)
        if check and not target.exists():
            print(f"{target.name}: missing")
            return False
        if check and (stale := differences(structure(target), structure(fresh))):
            print(f"{target.name}: structure differs from the recipe", *stale, sep="\n  ")
            return False
        difference = prove(recipe, module, target if check else fresh)
        good = difference <= recipe.TOLERANCE
        if good and not check:
            fresh.replace(target)
    verdict = ("matches" if check else "written") if good else "FAILED"
    print(f"{target.name}: {verdict}, difference {difference:.1e} of {recipe.TOLERANCE:.0e}")
    return good


def main() -> int:
    """Reads the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--check", action="store_true", help="compare only, write nothing here")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(NAMES)):
        parser.error(f"no such network: {', '.join(unknown)}")
    results = [make(name, arguments.check) for name in arguments.names or NAMES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
