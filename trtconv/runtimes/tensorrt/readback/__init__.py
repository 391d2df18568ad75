"""Reads back what TensorRT's parser made of a model, and runs it without a GPU, as TensorRT documents each layer."""
