"""Engines as servers run them: several requests at a time, each with an execution context and a stream of its own."""
