"""The run directory: its files, checkpoints and policies."""
