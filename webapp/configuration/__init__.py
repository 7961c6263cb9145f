"""Configuration as files: what people set in the admin, declared in YAML or JSON, compared and applied as a whole."""
