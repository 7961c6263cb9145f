"""Schema registries, and messages in their wire format."""
