"""The settings, by concern; webapp/settings.py puts them together. docs/settings.md lists those of the environment."""
