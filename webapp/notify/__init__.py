"""Notifications: alerts, which rules find, and webhooks, which send messages to other systems."""
