"""Shared by all web apps: configuration, middleware, logs, metrics, health, the Content-Security-Policy."""
