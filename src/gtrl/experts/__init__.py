"""Experts: policies that walk or dribble, which collecting ant, humanoid and soccer data needs, and their training."""
