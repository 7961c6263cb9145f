"""Shared code that imports no other part of webapp: configuration, headers, logs, metrics, poolers, admin pages."""
