"""Parts of a model that a plugin of TensorRT's own computes too, known by what they compute, however they are written.

`parts` cuts a part out between tensors; `detections` and `attention` say between which, and what the plugin would be
given; `trial` runs part and plugin at random inputs, in a process of its own; `passes` puts the plugin in its place.
"""
