"""One transposed convolution, explained."""
