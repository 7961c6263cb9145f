import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import tidegauge.webapp.console.saved_views.models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tidegauge_saved_views", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Board",
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
                ("is_shared", models.BooleanField(default=False, verbose_name="shared")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="boards", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["name", "id"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="BoardLink",
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
                ("kind", models.CharField(choices=[("link", "Link"), ("frame", "Frame")], max_length=10)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(null=True)),
                (
                    "board",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="links", to="tidegauge_boards.board"
                    ),
                ),
            ],
            options={
                "verbose_name": "board link",
                "ordering": ["-created_at", "id"],
                "default_permissions": ("add", "view", "delete"),
            },
        ),
        migrations.CreateModel(
            name="Tile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.PositiveSmallIntegerField()),
                ("is_wide", models.BooleanField(default=False, verbose_name="wide")),
                (
                    "form",
                    models.CharField(
                        choices=[("chart", "Chart or bars"), ("table", "Table")],
                        default="chart",
                        max_length=10,
                    ),
                ),
                (
                    "board",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tiles", to="tidegauge_boards.board"
                    ),
                ),
                (
                    "view",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tiles",
                        to="tidegauge_saved_views.savedview",
                    ),
                ),
            ],
            options={
                "ordering": ["place", "id"],
                "default_permissions": (),
            },
        ),
        migrations.AddConstraint(
            model_name="board",
            constraint=models.UniqueConstraint(fields=("owner", "name"), name="one_board_of_a_name"),
        ),
    ]
