"""Webhooks: signed messages about commits, pipelines, maintenance and alerts, sent to URLs of other systems."""
