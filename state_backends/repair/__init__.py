"""Find and repair differences between a state and its ledger: audit, rebuild, resume, rewind."""
