"""API keys, users and groups, permissions, rate limits, the audit log."""
