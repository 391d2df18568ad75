"""One ONNX model: read, looked at, edited and written."""
