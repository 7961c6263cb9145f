"""Settings, read from environment variables only. The defaults are safe for production; set DEBUG=1 for development."""

import warnings
from datetime import timedelta
from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static

from tidegauge.state_backends.session import CLIENT
from tidegauge.webapp.core import logs
from tidegauge.webapp.core.installation import (
    checked_origins,
    database,
    networks,
    replicas,
    stored_secret_key,
    strong_secret_key,
)

env = environ.Env()

# The checkout, or the working folder where pip has installed the packages: pipelines' project_dir, without pipelines.
BASE_DIR = Path(__file__).absolute().parents[2]  # links are not resolved: in a checkout tidegauge/webapp is one
if not (BASE_DIR / "manage.py").exists():
    BASE_DIR = Path.cwd()
DATA_DIR = Path(env.str("TIDEGAUGE_HOME", default="") or BASE_DIR / ".tidegauge").resolve()

# --- Tidegauge's own -------------------------------------------------------------------------------------------------

# How far back histories and as-of reads reach; compaction deletes older changelog entries.
TIDEGAUGE_CHANGELOG_KEEP_HOURS = env.int("TIDEGAUGE_CHANGELOG_KEEP_HOURS", default=168)
# Retention of finished maintenance runs.
TIDEGAUGE_RUNS_KEEP_DAYS = env.int("TIDEGAUGE_RUNS_KEEP_DAYS", default=30)
# Keys that a scheduled audit compares, of each state: some of its changelog and as many of its table.
TIDEGAUGE_AUDIT_KEYS = env.int("TIDEGAUGE_AUDIT_KEYS", default=1_000)
# Retention of the audit log.
TIDEGAUGE_AUDIT_KEEP_DAYS = env.int("TIDEGAUGE_AUDIT_KEEP_DAYS", default=400)
# Keys per lookup request.
TIDEGAUGE_LOOKUP_MAX_KEYS = env.int("TIDEGAUGE_LOOKUP_MAX_KEYS", default=1_000)
# The longest time that a lookup waits for its `min_txid`.
TIDEGAUGE_MAX_WAIT_MS = env.int("TIDEGAUGE_MAX_WAIT_MS", default=5_000)
# A streamed answer ends if its client reads nothing for this long, because it keeps a database snapshot open.
TIDEGAUGE_STREAM_IDLE_MS = env.int("TIDEGAUGE_STREAM_IDLE_MS", default=60_000)
# .. and if it reads fewer bytes per second than this, or takes longer than this in all.
TIDEGAUGE_STREAM_MIN_BYTES_PER_SECOND = env.int("TIDEGAUGE_STREAM_MIN_BYTES_PER_SECOND", default=4_096)
TIDEGAUGE_STREAM_MAX_SECONDS = env.float("TIDEGAUGE_STREAM_MAX_SECONDS", default=3_600.0)
# Threads of a web process, each with a database connection: of lookups and other calls of the API, pages, searches and
# sorted entries, and exports.
TIDEGAUGE_LOOKUP_THREADS = env.int("TIDEGAUGE_LOOKUP_THREADS", default=16)
TIDEGAUGE_PAGE_THREADS = env.int("TIDEGAUGE_PAGE_THREADS", default=6)
TIDEGAUGE_SEARCH_THREADS = env.int("TIDEGAUGE_SEARCH_THREADS", default=1)
TIDEGAUGE_EXPORT_THREADS = env.int("TIDEGAUGE_EXPORT_THREADS", default=1)
# What may be under way at once in a process, in all and of one API key or user (or address): exports, each with a
# database connection and a snapshot; requests that wait for their `min_txid`; searches, filters and sorted entries.
TIDEGAUGE_EXPORTS = env.int("TIDEGAUGE_EXPORTS", default=8)
TIDEGAUGE_EXPORTS_EACH = env.int("TIDEGAUGE_EXPORTS_EACH", default=4)
TIDEGAUGE_WAITS = env.int("TIDEGAUGE_WAITS", default=1_000)
TIDEGAUGE_WAITS_EACH = env.int("TIDEGAUGE_WAITS_EACH", default=100)
TIDEGAUGE_SEARCHES = env.int("TIDEGAUGE_SEARCHES", default=16)
TIDEGAUGE_SEARCHES_EACH = env.int("TIDEGAUGE_SEARCHES_EACH", default=4)
# 1: exports and searches of one API key or user count over all processes with the same Redis.
TIDEGAUGE_SHARED_LIMITS = env.bool("TIDEGAUGE_SHARED_LIMITS", default=False)
# The longest time in which the body of a request arrives.
TIDEGAUGE_REQUEST_SECONDS = env.float("TIDEGAUGE_REQUEST_SECONDS", default=20.0)
# Of all requests that a web process holds at once.
TIDEGAUGE_REQUESTS_MAX_BYTES = env.int("TIDEGAUGE_REQUESTS_MAX_BYTES", default=128 * 1024 * 1024)
# Of one request. Enough for TIDEGAUGE_LOOKUP_MAX_KEYS keys of 2,048 bytes each, with JSON escapes.
TIDEGAUGE_REQUEST_MAX_BYTES = env.int("TIDEGAUGE_REQUEST_MAX_BYTES", default=4 * 1024 * 1024)
# How long a process caches a checked API key, so how long other processes may still accept a revoked one.
TIDEGAUGE_API_KEY_CACHE_SECONDS = env.float("TIDEGAUGE_API_KEY_CACHE_SECONDS", default=5.0)
# The issuer in short-lived tokens. Installations that share SECRET_KEY and a copy of the database need different ones.
TIDEGAUGE_TOKEN_ISSUER = env.str("TIDEGAUGE_TOKEN_ISSUER", default="tidegauge")
# How often the usage of API keys is stored, and how long; 0 seconds: it is not counted.
TIDEGAUGE_USAGE_FLUSH_SECONDS = env.float("TIDEGAUGE_USAGE_FLUSH_SECONDS", default=10.0)
TIDEGAUGE_USAGE_KEEP_DAYS = env.int("TIDEGAUGE_USAGE_KEEP_DAYS", default=400)
# Requests per minute: of an API key without a rate of its own, of a user's session, of an address with wrong API keys
# or passwords, and of an unauthenticated address. 0: no limit.
TIDEGAUGE_API_RATE_PER_MINUTE = env.int("TIDEGAUGE_API_RATE_PER_MINUTE", default=60_000)
TIDEGAUGE_SESSION_RATE_PER_MINUTE = env.int("TIDEGAUGE_SESSION_RATE_PER_MINUTE", default=6_000)
TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = env.int("TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE", default=30)
TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE = env.int("TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE", default=120)
# Of each SQL statement of the web and events processes.
TIDEGAUGE_STATEMENT_TIMEOUT_MS = env.int("TIDEGAUGE_STATEMENT_TIMEOUT_MS", default=15_000)
# Keys of a state, or of a range of it, that entries may be sorted by a measure; 0: no limit.
TIDEGAUGE_SORT_MAX_KEYS = env.int("TIDEGAUGE_SORT_MAX_KEYS", default=1_000_000)
TIDEGAUGE_GROUP_MAX_KEYS = env.int("TIDEGAUGE_GROUP_MAX_KEYS", default=50_000)
# URL of the events process, for the dashboard; empty: the same origin, where a proxy routes /events/ to it.
TIDEGAUGE_EVENTS_URL = env.str("TIDEGAUGE_EVENTS_URL", default="").rstrip("/")
# Where the site of the documentation is, whose sections the search then finds, such as https://docs.example/tidegauge.
TIDEGAUGE_DOCS_URL = env.str("TIDEGAUGE_DOCS_URL", default="").rstrip("/")
# Other origins whose pages may open event streams with the user's session, such as https://tidegauge.example.
TIDEGAUGE_EVENTS_ORIGINS = env.list("TIDEGAUGE_EVENTS_ORIGINS", default=[])
# Other origins whose pages may call the API and open event streams with a token or API key, without the session.
TIDEGAUGE_CORS_ORIGINS = checked_origins("TIDEGAUGE_CORS_ORIGINS", env.list("TIDEGAUGE_CORS_ORIGINS", default=[]))
# Interval of comments on an idle stream, so that proxies keep it open.
TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS = env.float("TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS", default=15.0)
# A client that reads nothing for this long is disconnected.
TIDEGAUGE_EVENTS_SLOW_SECONDS = env.float("TIDEGAUGE_EVENTS_SLOW_SECONDS", default=20.0)
# Clients per process, and per API key or user.
TIDEGAUGE_EVENTS_MAX_CLIENTS = env.int("TIDEGAUGE_EVENTS_MAX_CLIENTS", default=4_000)
TIDEGAUGE_EVENTS_MAX_CLIENTS_EACH = env.int("TIDEGAUGE_EVENTS_MAX_CLIENTS_EACH", default=200)
# Changes sent per batch, and missed batches sent to a client that reconnects; beyond these it reads the state again.
TIDEGAUGE_EVENTS_MAX_CHANGES = env.int("TIDEGAUGE_EVENTS_MAX_CHANGES", default=1_000)
TIDEGAUGE_EVENTS_MAX_BATCHES = env.int("TIDEGAUGE_EVENTS_MAX_BATCHES", default=1_000)
# Token that /metrics requires; empty: only clients on this machine may read it. See docs/operations.md.
TIDEGAUGE_METRICS_TOKEN = env.str("TIDEGAUGE_METRICS_TOKEN", default="")
# Whether /readyz shows pipeline names and reasons to unauthenticated clients, or only the number of stale pipelines.
TIDEGAUGE_READYZ_NAMES = env.bool("TIDEGAUGE_READYZ_NAMES", default=False)
# A pipeline is stale if its oldest unread input is older than this.
TIDEGAUGE_STALE_AFTER_SECONDS = env.float("TIDEGAUGE_STALE_AFTER_SECONDS", default=300.0)
# A pipeline is rejecting if more than this share of the rows of recent batches are dead letters; 0 to 1.
TIDEGAUGE_REJECTED_SHARE = env.float("TIDEGAUGE_REJECTED_SHARE", default=0.05)

# Networks beside the public addresses that webhooks may be sent to, such as 10.1.0.0/16, also by http://.
TIDEGAUGE_WEBHOOK_NETWORKS = networks("TIDEGAUGE_WEBHOOK_NETWORKS", env.list("TIDEGAUGE_WEBHOOK_NETWORKS", default=[]))
# The longest time that one attempt to send a webhook takes.
TIDEGAUGE_WEBHOOK_SECONDS = env.float("TIDEGAUGE_WEBHOOK_SECONDS", default=10.0)
# Retention of messages that were delivered or given up.
TIDEGAUGE_WEBHOOK_KEEP_DAYS = env.int("TIDEGAUGE_WEBHOOK_KEEP_DAYS", default=14)

# Retention of the history of verdicts, of alerts and of what was sent about them.
TIDEGAUGE_ALERTS_KEEP_DAYS = env.int("TIDEGAUGE_ALERTS_KEEP_DAYS", default=90)
# Where people reach the dashboard, for the links in mails, such as https://tidegauge.example; empty: no links.
TIDEGAUGE_PUBLIC_URL = env.str("TIDEGAUGE_PUBLIC_URL", default="").rstrip("/")

# --- Django ---------------------------------------------------------------------------------------------------------

DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = strong_secret_key(env.str("SECRET_KEY", default="")) or stored_secret_key(DATA_DIR / "secret_key")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

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
    "tidegauge.webapp.notify.webhooks",
    "tidegauge.webapp.notify.alerts",
    "tidegauge.webapp.accounts",
    "tidegauge.webapp.api",
    "tidegauge.webapp.console.dashboard",
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
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
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

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before those of Unfold.
        "DIRS": [Path(__file__).parent / "core" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-us"
USE_I18N = False
FORMAT_MODULE_PATH = ["tidegauge.webapp.formats"]
TIME_ZONE = "UTC"
USE_TZ = True

# --- Mail: the server, such as smtp+tls://user:password@mail.example:587; without one alerts are not sent by mail -----

TIDEGAUGE_MAIL = bool(env.str("EMAIL_URL", default=""))
if TIDEGAUGE_MAIL:
    globals().update(env.email_url("EMAIL_URL"))
DEFAULT_FROM_EMAIL = env.str("EMAIL_FROM", default="tidegauge@localhost")
# Of each step of a conversation with the mail server.
EMAIL_TIMEOUT = env.float("TIDEGAUGE_MAIL_SECONDS", default=10.0)

# --- Databases ------------------------------------------------------------------------------------------------------

# psycopg prepares a statement after this many executions, which saves a quarter of a lookup's time. 0 turns it off, for
# a connection pooler in transaction mode without support for prepared statements.
TIDEGAUGE_PREPARE_AFTER = env.int("TIDEGAUGE_PREPARE_AFTER", default=3)

# Through a connection pooler nothing is prepared unless that is asked for: PgBouncer can since 1.21.
TIDEGAUGE_POOLED_PREPARE_AFTER = env.int("TIDEGAUGE_PREPARE_AFTER", default=0)
# The server itself, where DATABASE_URL leads to a connection pooler: for maintenance and event streams.
DATABASE_DIRECT_URL = env.str("DATABASE_DIRECT_URL", default="")

DATABASES = {
    "default": database(
        env.str("DATABASE_URL", default=""), prepare_threshold=TIDEGAUGE_PREPARE_AFTER or None, **CLIENT
    )
    | {
        "CONN_MAX_AGE": env.int("CONN_MAX_AGE", default=600),
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
}

# Streaming standbys that answer lookups, entries, histories and exports; separated by commas. See docs/replicas.md.
DATABASE_REPLICA_URLS = replicas(env.list("DATABASE_REPLICA_URLS", default=[]))
# A replica that may lack what was committed so long ago is left out.
TIDEGAUGE_REPLICA_MAX_LAG_SECONDS = env.float("TIDEGAUGE_REPLICA_MAX_LAG_SECONDS", default=10.0)

REDIS_URL = env.str("REDIS_URL", default="")
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "tidegauge",
    }
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}

# --- Static files: served by the web process, collected or not ------------------------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = Path(env.str("STATIC_ROOT", default="") or BASE_DIR / "staticfiles")
WHITENOISE_USE_FINDERS = DEBUG or not (STATIC_ROOT / "staticfiles.json").exists()
WHITENOISE_AUTOREFRESH = DEBUG
warnings.filterwarnings("ignore", "No directory at", UserWarning)  # WhiteNoise warns before collectstatic has run
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "tidegauge.webapp.core.static_files.CollectedOrNotStorage"},
}

# --- Authentication and HTTPS ---------------------------------------------------------------------------------------

# ModelBackend stays so that sessions created before PasswordBackend existed remain valid.
AUTHENTICATION_BACKENDS = [
    "tidegauge.webapp.accounts.sign_in.PasswordBackend",
    "django.contrib.auth.backends.ModelBackend",
]
# Signing in at an identity provider (extra `oidc`): see docs/access.md. OIDC_GROUPS: names of its groups to ours.
OIDC_ISSUER = env.str("TIDEGAUGE_OIDC_ISSUER", default="")
OIDC_RP_CLIENT_ID = env.str("TIDEGAUGE_OIDC_CLIENT_ID", default="")
OIDC_RP_CLIENT_SECRET = env.str("TIDEGAUGE_OIDC_CLIENT_SECRET", default="")
OIDC_RP_SCOPES = env.str("TIDEGAUGE_OIDC_SCOPES", default="openid profile email")
OIDC_RP_SIGN_ALGO = env.str("TIDEGAUGE_OIDC_ALGORITHM", default="RS256")
OIDC_USERNAME_CLAIM = env.str("TIDEGAUGE_OIDC_USERNAME_CLAIM", default="preferred_username")
OIDC_GROUPS_CLAIM = env.str("TIDEGAUGE_OIDC_GROUPS_CLAIM", default="groups")
OIDC_GROUPS = env.dict("TIDEGAUGE_OIDC_GROUPS", default={})
OIDC_STAFF_GROUPS = env.list("TIDEGAUGE_OIDC_STAFF_GROUPS", default=[])
OIDC_ALLOWED_GROUPS = env.list("TIDEGAUGE_OIDC_ALLOWED_GROUPS", default=[])
OIDC_GROUP_REQUIRED = env.bool("TIDEGAUGE_OIDC_GROUP_REQUIRED", default=True)
OIDC_SESSION_HOURS = env.float("TIDEGAUGE_OIDC_SESSION_HOURS", default=12.0)
OIDC_BACKEND = "tidegauge.webapp.accounts.oidc.OidcBackend"
OIDC_USE_PKCE, OIDC_PKCE_CODE_CHALLENGE_METHOD, OIDC_TIMEOUT = True, "S256", 10.0
OIDC_MAX_STATES = 5  # sign-ins under way in one browser; more do not fit into a cookie
PASSWORD_SIGN_IN = env.bool("TIDEGAUGE_PASSWORD_SIGN_IN", default=True)
if not PASSWORD_SIGN_IN:
    AUTHENTICATION_BACKENDS = []
if OIDC_ISSUER:
    AUTHENTICATION_BACKENDS = [*AUTHENTICATION_BACKENDS, OIDC_BACKEND]
if not AUTHENTICATION_BACKENDS:
    raise ImproperlyConfigured("TIDEGAUGE_PASSWORD_SIGN_IN=0 without TIDEGAUGE_OIDC_ISSUER: nobody could sign in")
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"

# Set if clients connect by HTTPS (here or at a proxy): cookies and browsers are then restricted to it.
HTTPS = env.bool("TIDEGAUGE_HTTPS", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = int(timedelta(days=30).total_seconds()) if HTTPS else 0
# How many proxies add to X-Forwarded-For, each the address of its client. Too many: a client can choose its address.
PROXIES = env.int("TIDEGAUGE_PROXIES", default=int(env.bool("TIDEGAUGE_BEHIND_PROXY", default=False)))
BEHIND_PROXY = PROXIES > 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]
CSRF_FAILURE_VIEW = "tidegauge.webapp.api.errors.csrf_failure"
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# --- The API --------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tidegauge.webapp.accounts.authentication.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tidegauge.webapp.accounts.permissions.HasScope"],
    "DEFAULT_THROTTLE_CLASSES": ["tidegauge.webapp.accounts.throttling.RateLimit"],
    # The client's address is taken from X-Forwarded-For only behind a proxy.
    "NUM_PROXIES": PROXIES,
    # Times stay times until orjson writes them, because it writes those of all answers in one way.
    "DATETIME_FORMAT": None,
    "DEFAULT_RENDERER_CLASSES": ["tidegauge.webapp.api.rendering.OrjsonRenderer"],
    "DEFAULT_PARSER_CLASSES": ["tidegauge.webapp.api.rendering.OrjsonParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "tidegauge.webapp.api.rendering.Negotiation",
    "DEFAULT_SCHEMA_CLASS": "tidegauge.webapp.api.calls.CallSchema",
    "EXCEPTION_HANDLER": "tidegauge.webapp.api.errors.problem_response",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Tidegauge",
    "DESCRIPTION": "Tidegauge keeps aggregates of event streams, and this API reads them.\n\n"
    "- A **state** is a table of aggregates, with a name. A **key** identifies an entry of it: one part per key "
    "column. A **measure** is an aggregated value of a key, such as a count or a mean.\n"
    "- A **pipeline** feeds states in **batches**, numbered from 1. A batch is visible to readers as a whole, once it "
    "is committed. Every answer is of one batch and names it: `txid` is its number, `as_of` its time.\n"
    "- An **epoch** is one incarnation of the ledger, which numbers the batches. It changes if the database was "
    "restored; the same `txid` is another batch then.\n"
    "- Send an **API key** as `Authorization: Bearer tmk_..`. Reads need its scope `read`; other scopes are named "
    "where they are needed.\n"
    "- **Errors** are problem documents (RFC 9457). `code` is for programs; the page `/problems` says what each means "
    "and what to do. Unknown parameters and members of bodies are refused with a 400.\n"
    "- **Times** are text with an offset (RFC 3339). Numbers that JSON lacks are text: `NaN`, `Infinity`, `-Infinity`. "
    "Answers may have further members later.",
    "TAGS": [
        {"name": "states", "description": "States, and their values: lookups, pages, files, histories"},
        {"name": "queries", "description": "Saved queries: reads that an administrator has published under a name"},
        {"name": "pipelines", "description": "The pipelines that feed states: their status and batches"},
        {"name": "maintenance", "description": "Compaction and expiry of states, done by workers"},
        {"name": "access", "description": "Short-lived tokens, and the usage of API keys"},
        {"name": "events", "description": "Server-sent events: batches as soon as they are committed"},
    ],
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "ENFORCE_NON_BLANK_FIELDS": True,
    "COMPONENT_SPLIT_REQUEST": True,
    # They would repeat each name: `open` - open.
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVERS": [{"url": "/", "description": "This server"}],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "tidegauge.webapp.api.openapi.describe_everywhere",
        "tidegauge.webapp.api.event_paths.describe_events",
    ],
    # Shared by a pipeline and its reprocess; other resources have their own status values.
    "ENUM_NAME_OVERRIDES": {
        "DriverStatusEnum": "tidegauge.webapp.catalog.documents.DRIVER_STATUSES",
        "ProblemCode": "tidegauge.webapp.api.problems.CODES",
    },
}

# --- The admin ------------------------------------------------------------------------------------------------------

UNFOLD = {
    "SITE_TITLE": "Tidegauge",
    "SITE_HEADER": "Tidegauge",
    "SITE_SUBHEADER": "Live aggregates that stay exact",
    "SITE_URL": "/",
    "SITE_SYMBOL": "waves",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("dashboard/favicon.svg")},
    ],
    "ENVIRONMENT_TITLE_PREFIX": "tidegauge.webapp.console.dashboard.strip.title_prefix",
    "STYLES": [lambda request: static("dashboard/shell.css"), lambda request: static("dashboard/admin.css")],
    "SCRIPTS": [lambda request: static("dashboard/shell.js"), lambda request: static("dashboard/admin.js")],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": True,
    "BORDER_RADIUS": "8px",
    # Those of the dashboard (shell.css), light to dark.
    "COLORS": {
        "base": {
            "50": "#f5f7f8",
            "100": "#eef2f4",
            "200": "#dde4e8",
            "300": "#b9c6cd",
            "400": "#93a7b2",
            "500": "#566873",
            "600": "#3b4f5b",
            "700": "#2f414c",
            "800": "#213039",
            "900": "#111c23",
            "950": "#0b1318",
        },
        "font": {
            "subtle-light": "#566873",
            "subtle-dark": "#93a7b2",
            "default-light": "#10212b",
            "default-dark": "#e4ecf0",
            "important-light": "#10212b",
            "important-dark": "#e4ecf0",
        },
        "primary": {
            "50": "#eff8fa",
            "100": "#dcedf1",
            "200": "#b9dbe3",
            "300": "#8cc3d0",
            "400": "#58a3b5",
            "500": "#3a9fb8",
            "600": "#0b6378",
            "700": "#0a5366",
            "800": "#094453",
            "900": "#083845",
            "950": "#04232c",
        },
    },
    "SIDEBAR": {"navigation": "tidegauge.webapp.core.admin_pages.sidebar"},
}

# --- Tasks ----------------------------------------------------------------------------------------------------------

CELERY_BROKER_URL = REDIS_URL or "redis://127.0.0.1:6379/0"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Timeouts in seconds, so that a web request that enqueues a task does not hang if the broker is unavailable.
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 3, "socket_timeout": 10, "visibility_timeout": 6 * 3600}
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_TASK_IGNORE_RESULT = True
# A task is acknowledged when it is done, so that the task of a killed worker is delivered again.
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = TIME_ZONE
CELERY_ENABLE_UTC = True

# --- Logs: one line each, to standard error -------------------------------------------------------------------------

# LOG_FORMAT: json or text; unset: text on a terminal, JSON elsewhere. LOG_REQUESTS: level of the line per request.
LOGGING = logs.configuration(env.str("LOG_LEVEL", default="INFO"), env.str("LOG_REQUESTS", default="NOTSET"))
