"""The web console: the dashboard and saved views."""
