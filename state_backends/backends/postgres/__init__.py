"""States as tables in the ledger's database."""
