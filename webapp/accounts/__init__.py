"""Who may ask: API keys, people, rate limits, the audit."""
