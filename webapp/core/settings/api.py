"""The REST API and its description."""

from tidegauge.webapp.core.settings.access import PROXIES

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
    "is committed. Every answer is of one batch and names it: `txid` is its number, `batch_time` its time.\n"
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
        {
            "name": "saved queries",
            "description": "Saved queries: reads that an administrator has published under a name",
        },
        {"name": "pipelines", "description": "The pipelines that feed states: their status and batches"},
        {"name": "maintenance", "description": "Compaction and expiry of states, done by workers"},
        {"name": "access", "description": "Short-lived tokens, and the usage of API keys"},
        {"name": "events", "description": "Server-sent events: batches as soon as they are committed"},
    ],
    "OAS_VERSION": "3.1.0",
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
