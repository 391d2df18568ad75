"""Proof that a parsed network computes what its model means: both are run, and compared tensor by tensor."""

SERVE = "trtconv.runtimes.proof.models:Models"
"""What runs the model, and pieces of it, in a process of its own."""
