"""Proof that a parsed network computes what its model means: both are run, and compared tensor by tensor."""
