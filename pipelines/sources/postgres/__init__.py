"""Tables of PostgreSQL, as streams of their changes."""
