"""The push: server-sent events for every committed batch, from a process of its own. See docs/events.md."""
