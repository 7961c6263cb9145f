"""Templates and static files, which the web process serves, collected or not."""

import warnings
from pathlib import Path

from tidegauge.webapp.core.settings.environment import BASE_DIR, DEBUG, env

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before those of Unfold.
        "DIRS": [Path(__file__).parents[1] / "templates"],
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

STATIC_URL = "/static/"
STATIC_ROOT = Path(env.str("STATIC_ROOT", default="") or BASE_DIR / "staticfiles")
WHITENOISE_USE_FINDERS = DEBUG or not (STATIC_ROOT / "staticfiles.json").exists()
WHITENOISE_AUTOREFRESH = DEBUG
warnings.filterwarnings("ignore", "No directory at", UserWarning)  # WhiteNoise warns before collectstatic has run
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "tidegauge.webapp.core.static_files.CollectedOrNotStorage"},
}

# Style sheets that pages contain at a browser's first visit; see webapp/core/first_paint.py.
TIDEGAUGE_FIRST_STYLES = ["dashboard/shell.css", "dashboard/tidegauge.css", "dashboard/health.css"]

# Where the site of the documentation is, whose sections the search then finds, such as https://docs.example/tidegauge.
TIDEGAUGE_DOCS_URL = env.str("TIDEGAUGE_DOCS_URL", default="").rstrip("/")
