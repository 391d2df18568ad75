"""A plain TensorRT script, as people write it: parse the ONNX file, set the profile and the flags, build. No trtconv.

    python bench/gpu/plain.py MODEL ENGINE PROFILES.json [--flags FP16,INT8] [--timing-cache FILE] [--family FAMILY]

PROFILES.json is a list of {input: {"min": [...], "opt": [...], "max": [...]}}. Ends with 1 where TensorRT refuses, and
says on stderr what it said.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    options = parse()
    trt: Any = importlib.import_module({"tensorrt": "tensorrt", "rtx": "tensorrt_rtx"}[options.family])
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    explicit = getattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
    network = builder.create_network(0 if explicit is None else 1 << int(explicit))
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.WARNING))
    if not parser.parse_from_file(str(options.model)):
        for index in range(parser.num_errors):
            print("parser:", parser.get_error(index).desc(), file=sys.stderr)
        return 1
    config = builder.create_builder_config()
    for name in filter(None, options.flags.split(",")):
        if hasattr(trt.BuilderFlag, name):
            config.set_flag(getattr(trt.BuilderFlag, name))
    for shapes in json.loads(options.profiles.read_text()):
        profile = builder.create_optimization_profile()
        for name, bounds in shapes.items():
            profile.set_shape(name, bounds["min"], bounds["opt"], bounds["max"])
        config.add_optimization_profile(profile)
    cache = options.timing_cache if options.family == "tensorrt" else None
    if cache is not None:
        config.set_timing_cache(config.create_timing_cache(cache.read_bytes() if cache.exists() else b""), False)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        print("builder: refused", file=sys.stderr)
        return 1
    options.engine.write_bytes(bytes(memoryview(plan)))
    if cache is not None:
        cache.write_bytes(bytes(memoryview(config.get_timing_cache().serialize())))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("engine", type=Path)
    parser.add_argument("profiles", type=Path)
    parser.add_argument("--flags", default="")
    parser.add_argument("--timing-cache", type=Path)
    parser.add_argument("--family", choices=("tensorrt", "rtx"), default="tensorrt")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
