"""The web half: the API, the pages, the admin, and the tasks that keep states small. Never loads Spark."""

from webapp.celery import app as celery_app

__all__ = ["celery_app"]
