"""The admin: lists of pipelines, states, batches and runs, and actions that are confirmed on a page of their own."""

from django.contrib import admin

from tidegauge.webapp.maintenance.admin import batches, limits, pipelines, runs, schedule, states

__all__ = ["batches", "limits", "pipelines", "runs", "schedule", "states"]

admin.site.index_title = "Administration"
admin.site.empty_value_display = "—"
admin.site.index_template = "admin/states/index.html"
