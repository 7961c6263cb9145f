"""The tables: Tidemark's own, and one per state."""
