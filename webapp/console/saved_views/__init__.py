"""Saved views: questions of the explorer that people have named, each at an address of its own."""
