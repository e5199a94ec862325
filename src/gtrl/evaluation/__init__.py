"""Evaluation: rolls out policies in worker processes that use NumPy and the simulator, not JAX."""
