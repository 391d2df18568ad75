"""The ONNX file: the ways to write one, which of them is right, and what is made of it."""
