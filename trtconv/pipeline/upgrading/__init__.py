"""Models on two TensorRTs, each in an environment of its own."""
