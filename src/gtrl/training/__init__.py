"""Training: the loop, what it keeps, what it says."""
