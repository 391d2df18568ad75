"""The version, where setuptools can read it."""

__version__ = "0.1.0"
