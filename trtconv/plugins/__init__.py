"""Operators beyond ONNX's own: NVIDIA's plugins, as far as known, and references, which say in NumPy what one does."""
