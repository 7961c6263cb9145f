"""Who may ask: API keys with scopes, for programs that have no session."""
