"""Saved views: questions of the explorer that people have saved under a name, each with its own address."""
