"""What a piece computes, written down from its nodes and from its layers in the same words: equal words, equal pieces.

A term is a tensor, a constant, or what an operator makes of terms. `of_model` writes down ONNX nodes by ONNX's
definition, `of_network` layers by TensorRT's; where both come to the same term, the piece is shown, for all values and
all sizes, and nothing has to be run. What has no words here, and what differs, says nothing: it is run.
"""
