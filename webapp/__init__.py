"""The Django project: API, dashboard, admin, event streams and maintenance tasks. Never loads Spark."""
