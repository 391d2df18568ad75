"""Which sizes a network accepts."""
