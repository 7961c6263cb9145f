"""Backends: one folder or file per store, with everything that it owes to the rest."""
