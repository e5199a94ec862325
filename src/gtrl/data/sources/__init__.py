"""Where a dataset can be had."""
