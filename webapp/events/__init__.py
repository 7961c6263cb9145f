"""Event streams: server-sent events for every committed batch, from their own process. See docs/events.md."""
