"""Sizes that an exporter wrote into a model as constants."""
