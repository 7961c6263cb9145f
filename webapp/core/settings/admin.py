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
