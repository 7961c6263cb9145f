"""Django's settings, of which webapp/core/settings has those of each concern.

Values come from environment variables only. The defaults are safe for production; set DEBUG=1 for development.
"""

from tidegauge.webapp.core import logs
from tidegauge.webapp.core.settings.access import *
from tidegauge.webapp.core.settings.admin import *
from tidegauge.webapp.core.settings.api import *
from tidegauge.webapp.core.settings.databases import *
from tidegauge.webapp.core.settings.environment import *
from tidegauge.webapp.core.settings.environment import env
from tidegauge.webapp.core.settings.events import *
from tidegauge.webapp.core.settings.notify import *
from tidegauge.webapp.core.settings.pages import *
from tidegauge.webapp.core.settings.retention import *
from tidegauge.webapp.core.settings.serving import *
from tidegauge.webapp.core.settings.tasks import *

INSTALLED_APPS = [
    "unfold",  # before django.contrib.admin, whose templates it replaces
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "django_htmx",
    "drf_spectacular",
    "rest_framework",
    "tidegauge.webapp.accounts.audit",
    "tidegauge.webapp.catalog",
    "tidegauge.webapp.maintenance",
    "tidegauge.webapp.api.saved_queries",
    "tidegauge.webapp.console.saved_views",
    "tidegauge.webapp.console.boards",
    "tidegauge.webapp.notify.webhooks",
    "tidegauge.webapp.notify.alerts",
    "tidegauge.webapp.accounts",
    "tidegauge.webapp.api",
    "tidegauge.webapp.console.dashboard",
    "tidegauge.webapp.configuration",
    "tidegauge.webapp.commands",
]

MIDDLEWARE = [
    "tidegauge.webapp.serving.observer.RequestObserver",  # first, so that logs of the others belong to the request
    "tidegauge.webapp.core.cors.CrossOrigin",  # before a redirect to HTTPS, which no browser follows in a preflight
    "tidegauge.webapp.core.csp.ContentSecurityPolicy",
    "tidegauge.webapp.api.caching.PrivateAnswers",
    "django.middleware.security.SecurityMiddleware",
    "tidegauge.webapp.api.rendering.CompressedAnswers",
    "tidegauge.webapp.api.direct.DirectRequests",  # goes past what follows
    "tidegauge.webapp.core.static_files.CompressedStaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "tidegauge.webapp.accounts.known_sessions.KnownSessions",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tidegauge.webapp.accounts.sign_in.KnownDevices",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "tidegauge.webapp.core.unavailable.DatabaseUnavailableMiddleware",
]

ROOT_URLCONF = "tidegauge.webapp.urls"
WSGI_APPLICATION = "tidegauge.webapp.wsgi.application"

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-us"
USE_I18N = False
FORMAT_MODULE_PATH = ["tidegauge.webapp.formats"]
TIME_ZONE = "UTC"
USE_TZ = True

# To standard error. LOG_FORMAT: json or text; unset: text on a terminal, JSON elsewhere. LOG_REQUESTS: the level of the
# line of a request.
LOGGING = logs.configuration(env.str("LOG_LEVEL", default="INFO"), env.str("LOG_REQUESTS", default="NOTSET"))
