"""Bringing a state and its ledger together again: audit, rebuild, resume, rewind."""
