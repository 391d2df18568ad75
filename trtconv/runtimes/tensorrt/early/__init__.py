"""A network parsed and built before anybody has asked for it, in a process of its own.

Most models reach TensorRT's parser as they lie in their files, and what the builder is told follows from the command
line. So a fork of the command parses the file and builds while the command still loads onnx, judges the model and
prepares it. Where the model is then what was parsed, and the plan what was built, network and engine are taken over;
else, and whatever goes wrong here, the process is ended and all goes on as if it had never been. It has no verdicts.
"""
