"""The admin's looks."""

from django.templatetags.static import static

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
    "STYLES": [
        lambda request: static("dashboard/shell.css"),
        lambda request: static("dashboard/fonts.css"),
        lambda request: static("dashboard/opened.css"),
        lambda request: static("dashboard/admin.css"),
    ],
    "SCRIPTS": [lambda request: static("dashboard/shell.js"), lambda request: static("dashboard/admin.js")],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": True,
    "BORDER_RADIUS": "8px",
    # Those of the dashboard (shell.css), light to dark.
    "COLORS": {
        "base": {
            "50": "#f5f4ef",
            "100": "#edebe3",
            "200": "#e2dfd5",
            "300": "#cfcbbf",
            "400": "#92a8ab",
            "500": "#586669",
            "600": "#34555e",
            "700": "#27454e",
            "800": "#1e3840",
            "900": "#0f2229",
            "950": "#08171c",
        },
        "font": {
            "subtle-light": "#586669",
            "subtle-dark": "#92a8ab",
            "default-light": "#0c1e26",
            "default-dark": "#e6f0ef",
            "important-light": "#0c1e26",
            "important-dark": "#e6f0ef",
        },
        "primary": {
            "50": "#eef7f7",
            "100": "#dcebec",
            "200": "#b7dadd",
            "300": "#8cc4c9",
            "400": "#58c3c9",
            "500": "#3c9aa2",
            "600": "#0b6e78",
            "700": "#0a5b64",
            "800": "#094a52",
            "900": "#083c43",
            "950": "#04262b",
        },
    },
    "SIDEBAR": {"navigation": "tidegauge.webapp.core.admin_pages.sidebar"},
}
