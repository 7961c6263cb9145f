"""All URLs of the web process."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from webapp.api.errors import events_are_elsewhere
from webapp.api.views import DocsView, SchemaView
from webapp.core.health import healthz, metrics, readyz

urlpatterns = [
    path("api/v1/", include("webapp.api.urls")),  # first: by far the most requests
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("admin/", admin.site.urls),
    path("login", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("api/schema", SchemaView.as_view(), name="schema"),
    path("api/docs", DocsView.as_view(url_name="schema"), name="docs"),
    path("events/<path:rest>", events_are_elsewhere, name="events"),
    path("", include("webapp.dashboard.urls")),
]

handler400 = "webapp.api.errors.bad_request"
handler404 = "webapp.api.errors.not_found"
handler500 = "webapp.api.errors.server_error"
