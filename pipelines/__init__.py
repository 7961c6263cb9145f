"""Tidegauge's pipelines: what reads event streams and folds them into states."""
