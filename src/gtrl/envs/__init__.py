"""Environments: construction, goal conventions, seeding, and the geometry of mazes."""
