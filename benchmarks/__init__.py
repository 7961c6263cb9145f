"""Benchmarks: Tidegauge's speed as ratios to a limit or an alternative, measured in one run on one machine."""
