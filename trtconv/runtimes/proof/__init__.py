"""Proof that a parsed network computes what its model means: both are run, and compared tensor by tensor."""

SERVE = "trtconv.runtimes.proof.reference:serve"
"""What the process calls that runs the model."""
