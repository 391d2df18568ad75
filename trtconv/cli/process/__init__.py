"""The process that a command runs in: its boundary, signals, crashes and results."""
