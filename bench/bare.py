"""The least that a script can do: `python bench/bare.py parse|build MODEL [ENGINE]`, with TensorRT-RTX.

`parse` reads the model with onnx, as scripts that look at it do, and parses it; `build` parses the file and builds.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    import tensorrt_rtx as trt

    what, model = sys.argv[1], sys.argv[2]
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if what == "parse":
        import onnx

        accepted = parser.parse(onnx.load(model).SerializeToString(), model)
    else:
        accepted = parser.parse_from_file(model)
    if not accepted:
        raise SystemExit(str(parser.get_error(0)))
    if what == "build":
        engine = builder.build_serialized_network(network, builder.create_builder_config())
        Path(sys.argv[3]).write_bytes(engine)


if __name__ == "__main__":
    main()
