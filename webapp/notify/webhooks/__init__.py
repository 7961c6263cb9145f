"""Webhooks: signed messages about commits, pipelines and maintenance, sent to addresses of others."""
