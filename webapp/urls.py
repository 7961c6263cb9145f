"""All URLs of the web process."""

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path

from tidegauge.state_backends.extras import naming_the_extra
from tidegauge.webapp.api import urls as lookups
from tidegauge.webapp.api.errors import events_are_elsewhere
from tidegauge.webapp.api.views.reference import DocsView, SchemaView
from tidegauge.webapp.configuration.views import ConfigurationDiffView, ConfigurationView
from tidegauge.webapp.core.admin import sign_in
from tidegauge.webapp.notify.alerts.api import AlertsView
from tidegauge.webapp.serving.health import healthz, metrics, readyz

# What the page offers.
SIGN_IN = {"passwords": settings.PASSWORD_SIGN_IN, "oidc": bool(settings.OIDC_ISSUER)}


def page_not_found(request: HttpRequest, rest: str) -> HttpResponse:
    raise Http404  # because the admin would ask programs to sign in


API = [*lookups.urlpatterns, path("alerts", AlertsView.as_view(), name="alerts")]

urlpatterns = [
    path("api/v1/", include((API, "lookup"))),  # first: by far the most requests
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("admin/v1/configuration", ConfigurationView.as_view(), name="configuration"),
    path("admin/v1/configuration/diff", ConfigurationDiffView.as_view(), name="configuration_diff"),
    path("admin/v1/<path:rest>", page_not_found),
    path("admin/login/", sign_in),
    path("admin/logout/", LogoutView.as_view()),
    path("admin/", admin.site.urls),
    path("login", LoginView.as_view(redirect_authenticated_user=True, extra_context=SIGN_IN), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("api/schema", SchemaView.as_view(), name="schema"),
    path("api/docs", DocsView.as_view(), name="docs"),
    path("api/docs/<slug:operation_id>", DocsView.as_view(), name="docs_call"),
    path("events/<path:rest>", events_are_elsewhere, name="events"),
    path("", include("tidegauge.webapp.console.dashboard.urls")),
]

if settings.OIDC_ISSUER:
    with naming_the_extra():
        from tidegauge.webapp.accounts.oidc_views import CallbackView, SignInView, SignOutView

    urlpatterns[:0] = [
        path("logout", SignOutView.as_view()),
        path("admin/logout/", SignOutView.as_view()),
        path("oidc/sign-in", SignInView.as_view(), name="oidc_authentication_init"),
        path("oidc/callback", CallbackView.as_view(), name="oidc_authentication_callback"),
    ]

handler400 = "tidegauge.webapp.api.errors.bad_request"
handler403 = "tidegauge.webapp.api.errors.permission_denied"
handler404 = "tidegauge.webapp.api.errors.not_found"
handler500 = "tidegauge.webapp.api.errors.server_error"
