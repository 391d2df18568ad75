"""What `--precision` makes of a model."""
