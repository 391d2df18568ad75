"""References of NVIDIA's standard plugins, one module a family, as NVIDIA documents them.

Each module has `REFERENCES`: name of the plugin to its function. Values are computed in float32, and returned in the
type of the first input. Source: the plugins' pages and sources in NVIDIA/TensorRT, release 8.6 where nothing else is
said.
"""
