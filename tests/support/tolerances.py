"""How far two results may be apart: the largest difference over the largest magnitude of what is expected.

A rewrite changes the order of float sums and nothing else, so the limits stay close to the type's own precision.
"""

RELATIVE = {
    "float16": 4e-3,
    "float32": 2e-6,
    "float64": 1e-12,
}
"""NumPy type of the output to the accepted relative error of a rewritten model."""
