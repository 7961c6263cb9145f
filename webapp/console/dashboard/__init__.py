"""The dashboard: its views and templates, and what its pages show."""
