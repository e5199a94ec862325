"""Datasets: reading, checking, goals, batch sampling, collection and download."""
