"""Collectors: our own data where OGBench's cannot be downloaded, by OGBench's protocols."""
