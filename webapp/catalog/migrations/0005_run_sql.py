from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("states", "0004_tiles"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="state",
            options={
                "managed": False,
                "ordering": ["name"],
                "permissions": [("run_sql", "Can run SQL over the live views")],
            },
        ),
    ]
