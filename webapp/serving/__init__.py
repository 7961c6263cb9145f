"""Serving of requests: the front that reads them, request ids and log lines, health checks, stored metrics."""
