"""The admin: what there is, to look at; and what people may do to it, once a page has said what that will do."""

from django.contrib import admin

from webapp.states.admin import batches, maintenance, pipelines, schedule, states

__all__ = ["batches", "maintenance", "pipelines", "schedule", "states"]

admin.site.index_title = "Administration"
admin.site.index_template = "admin/states/index.html"
