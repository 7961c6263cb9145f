import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("prefix", models.CharField(editable=False, max_length=16, unique=True)),
                ("secret_sha512", models.BinaryField(max_length=64)),
                ("previous_sha512", models.BinaryField(max_length=64, null=True)),
                ("previous_until", models.DateTimeField(editable=False, null=True)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("read", "read: look values up"),
                                ("maintain", "maintain: compact, expire, cancel"),
                                ("issue_tokens", "issue_tokens: make short-lived tokens"),
                                ("dead_letters", "dead_letters: read the raw input of dead letters"),
                            ],
                            max_length=16,
                        ),
                        size=None,
                    ),
                ),
                (
                    "states",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("key_prefix", models.JSONField(blank=True, default=list)),
                (
                    "queries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("rate", models.PositiveIntegerField(blank=True, null=True)),
                ("burst", models.PositiveIntegerField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("rotated_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "API key",
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="RevokedToken",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("prefix", models.CharField(max_length=16, verbose_name="API key")),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["prefix"], name="revoked_tokens_of_a_key")],
            },
        ),
        migrations.CreateModel(
            name="UsageHour",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("hour", models.DateTimeField()),
                ("prefix", models.CharField(max_length=16, verbose_name="API key")),
                ("state", models.TextField(blank=True)),
                ("requests", models.BigIntegerField()),
                ("keys", models.BigIntegerField(verbose_name="keys looked up")),
                ("bytes", models.BigIntegerField(verbose_name="bytes sent")),
                ("refusals", models.BigIntegerField()),
            ],
            options={
                "verbose_name_plural": "usage",
                "ordering": ["-hour", "prefix", "state"],
                "indexes": [models.Index(fields=["prefix", "hour"], name="usage_of_a_key")],
                "constraints": [
                    models.UniqueConstraint(fields=("hour", "prefix", "state"), name="one_row_per_hour_and_state")
                ],
            },
        ),
        migrations.CreateModel(
            name="OidcIdentity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("issuer", models.TextField()),
                ("subject", models.TextField()),
                (
                    "user",
                    models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("issuer", "subject"), name="one_user_of_an_identity")],
            },
        ),
        migrations.CreateModel(
            name="Restriction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "states",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("key_prefix", models.JSONField(blank=True, default=list)),
                (
                    "group",
                    models.OneToOneField(
                        blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to="auth.group"
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("user", None), ("group", None), _connector="XOR"),
                        name="restriction_of_a_user_or_a_group",
                    )
                ],
            },
        ),
    ]
