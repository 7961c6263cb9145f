import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp.core.installation import database

NAMED = {"NAME": "tidemark", "USER": "ann", "PASSWORD": "s p@ce", "HOST": "db.example", "PORT": "5433"}


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s%20p%40ce@db.example:5433/tidemark?sslmode=require",
        "postgres://ann:s%20p%40ce@db.example:5433/tidemark?sslmode=require",
        "host=db.example port=5433 user=ann password='s p@ce' dbname=tidemark sslmode=require",
    ],
)
def test_an_address_is_read_as_libpq_reads_it(address):
    assert database(address) == {
        "ENGINE": "django.db.backends.postgresql",
        **NAMED,
        "OPTIONS": {"sslmode": "require"},
    }


def test_no_address_gives_no_database():
    assert database("") == {"ENGINE": "django.db.backends.dummy"}


def test_a_wrong_address_is_refused_without_its_password():
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL is no PostgreSQL address") as error:
        database("mysql://ann:secret@db/tidemark")

    assert "secret" not in str(error.value)
