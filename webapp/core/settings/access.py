"""Who may sign in and call, how often, and from where."""

from datetime import timedelta

from django.conf import global_settings
from django.core.exceptions import ImproperlyConfigured

from tidegauge.webapp.core.installation import checked_origins, stored_secret_key, strong_secret_key
from tidegauge.webapp.core.settings.environment import DATA_DIR, env

SECRET_KEY = strong_secret_key(env.str("SECRET_KEY", default="")) or stored_secret_key(DATA_DIR / "secret_key")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

# How long a process caches a checked API key, so how long other processes may still accept a revoked one.
TIDEGAUGE_API_KEY_CACHE_SECONDS = env.float("TIDEGAUGE_API_KEY_CACHE_SECONDS", default=5.0)
# The issuer in short-lived tokens. Installations that share SECRET_KEY and a copy of the database need different ones.
TIDEGAUGE_TOKEN_ISSUER = env.str("TIDEGAUGE_TOKEN_ISSUER", default="tidegauge")
# How often the usage of API keys is stored; 0 seconds: it is not counted.
TIDEGAUGE_USAGE_FLUSH_SECONDS = env.float("TIDEGAUGE_USAGE_FLUSH_SECONDS", default=10.0)
# Requests per minute: of an API key without a rate of its own, of a user's session, of an address with wrong API keys
# or passwords, and of an unauthenticated address. 0: no limit.
TIDEGAUGE_API_RATE_PER_MINUTE = env.int("TIDEGAUGE_API_RATE_PER_MINUTE", default=60_000)
TIDEGAUGE_SESSION_RATE_PER_MINUTE = 6_000
TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE = env.int("TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE", default=30)
TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE = env.int("TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE", default=120)
# Other origins whose pages may call the API and open event streams with a token or API key, without the session.
TIDEGAUGE_CORS_ORIGINS = checked_origins("TIDEGAUGE_CORS_ORIGINS", env.list("TIDEGAUGE_CORS_ORIGINS", default=[]))
# Other origins whose pages may show frames of boards; empty: there are none. See docs/dashboard.md.
TIDEGAUGE_FRAME_ORIGINS = checked_origins("TIDEGAUGE_FRAME_ORIGINS", env.list("TIDEGAUGE_FRAME_ORIGINS", default=[]))
# Token that /metrics requires; empty: only clients on this machine may read it. See docs/operations.md.
TIDEGAUGE_METRICS_TOKEN = env.str("TIDEGAUGE_METRICS_TOKEN", default="")
# Whether /readyz shows pipeline names and reasons to unauthenticated clients, or only the number of stale pipelines.
TIDEGAUGE_READYZ_NAMES = env.bool("TIDEGAUGE_READYZ_NAMES", default=False)

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
PASSWORD_HASHERS = [
    "tidegauge.webapp.accounts.password_hasher.LowPriorityHasher",
    *global_settings.PASSWORD_HASHERS[1:],  # for passwords that another one has hashed
]
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
# How many proxies are in front and add to X-Forwarded-For, each the address of its client. If the number is too large,
# a client can choose its address.
PROXIES = env.int("TIDEGAUGE_PROXIES", default=0)
BEHIND_PROXY = PROXIES > 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]
CSRF_FAILURE_VIEW = "tidegauge.webapp.api.errors.csrf_failure"
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
