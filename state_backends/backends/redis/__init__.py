"""States in Redis, beside a ledger in PostgreSQL."""
