"""Spark's checkpoint folder: where it is, what is in it, and how it reaches the disk."""
