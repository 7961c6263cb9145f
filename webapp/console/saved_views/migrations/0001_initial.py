import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import tidegauge.webapp.console.saved_views.models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        # If the database user is called `tidegauge`, these tables are in the schema that states creates.
        ("states", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SavedView",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=tidegauge.webapp.console.saved_views.models.new_id,
                        editable=False,
                        max_length=20,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=80)),
                ("state", models.TextField()),
                (
                    "page",
                    models.CharField(
                        choices=[("explore", "Explore"), ("compare", "Compare")], default="explore", max_length=10
                    ),
                ),
                ("question", models.JSONField(default=dict)),
                ("is_shared", models.BooleanField(default=False, verbose_name="shared")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_views",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name", "id"],
                "default_permissions": ("view", "delete"),
                "indexes": [models.Index(fields=["state"], name="views_of_a_state")],
                "constraints": [models.UniqueConstraint(fields=("owner", "name"), name="one_view_of_a_name")],
            },
        ),
    ]
