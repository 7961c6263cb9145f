"""The tables: Tidegauge's own, and one per state."""
