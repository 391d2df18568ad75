"""What runs a model: TensorRT, and ONNX Runtime as the reference."""
