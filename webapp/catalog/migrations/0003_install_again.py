"""Installed the library's tables again; 0006_numbered_schema does so for all versions."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("states", "0002_schedule")]
    operations = []
