"""Exact values, for comparison with learned ones."""
