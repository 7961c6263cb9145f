"""The Django project: API, dashboard, admin, event streams and maintenance tasks. Never loads Spark."""

from webapp.celery import app as celery_app

__all__ = ["celery_app"]
