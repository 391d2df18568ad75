"""Renderers: pure functions of findings and reports to text."""
