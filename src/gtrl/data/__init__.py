"""Datasets: read, check, slice goals, sample batches, collect."""
