"""Evaluation: policies as plain arrays, rolled out in worker processes without JAX."""
