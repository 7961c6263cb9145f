"""The commands apply, diff and export."""
