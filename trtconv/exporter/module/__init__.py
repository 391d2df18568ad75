"""The module that is exported: where it comes from, its weights, and what it does in Python."""
