"""Installed the library's tables again; 0006_numbered_schema does so for all versions."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("states", "0004_life_of_a_query")]
    operations = []
