"""Set Django up by importing this module, so that the fork server can do it once for all commands."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tidegauge.webapp.settings")
django.setup()
