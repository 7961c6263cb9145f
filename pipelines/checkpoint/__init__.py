"""Spark's checkpoint folder: its location, its contents, and how it is written to disk."""
