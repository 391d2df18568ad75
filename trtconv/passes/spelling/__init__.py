"""Operators that a target lacks, or lacks in one form, written in those that it has."""
