import re
import secrets
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import ImproperlyConfigured

from tidegauge.webapp.core.installation import database, stored_secret_key, strong_secret_key
from tidegauge.webapp.core.static_files import CollectedOrNotStorage

NAMED = {"NAME": "tidegauge", "USER": "ann", "PASSWORD": "s p@ce", "HOST": "db.example", "PORT": "5433"}


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s%20p%40ce@db.example:5433/tidegauge?sslmode=require",
        "postgres://ann:s%20p%40ce@db.example:5433/tidegauge?sslmode=require",
        "host=db.example port=5433 user=ann password='s p@ce' dbname=tidegauge sslmode=require",
    ],
)
def test_a_url_or_conninfo_string_gives_a_database(address):
    assert database(address) == {
        "ENGINE": "django.db.backends.postgresql",
        **NAMED,
        "OPTIONS": {"sslmode": "require"},
    }


def test_no_address_gives_a_dummy_database():
    assert database("") == {"ENGINE": "django.db.backends.dummy"}


def test_a_wrong_address_is_refused_without_its_password():
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL is not a PostgreSQL address") as error:
        database("mysql://ann:secret@db/tidegauge")

    assert "secret" not in str(error.value)


def test_a_secret_key_is_created_once_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "data" / "secret_key"

    first = stored_secret_key(path)

    assert stored_secret_key(path) == first
    assert len(first) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret_key"]


def test_processes_that_start_at_the_same_time_get_the_same_key(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(stored_secret_key, [tmp_path / "secret_key"] * 8))

    assert len(keys) == 1


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ImproperlyConfigured, match="set SECRET_KEY, or TIDEGAUGE_HOME"):
        stored_secret_key(tmp_path / "file" / "secret_key")


@pytest.mark.parametrize("given", ["x", "django-insecure", "a" * 50, "0123456" * 8])
def test_a_secret_key_that_can_be_guessed_is_refused_and_not_quoted(given):
    with pytest.raises(ImproperlyConfigured, match="openssl rand -hex 32") as error:
        strong_secret_key(given)

    assert given not in str(error.value) or given == "x"


def test_a_secret_key_of_random_digits_is_accepted():
    for digits in (secrets.token_hex(16), secrets.token_hex(24), ""):
        assert strong_secret_key(digits) == digits


@pytest.fixture
def storage(tmp_path):
    (tmp_path / "page.css").write_text("body { color: navy }")
    return CollectedOrNotStorage(location=tmp_path, base_url="/static/")


def test_static_urls_have_no_digest_until_files_are_collected(storage):
    assert storage.url("page.css") == "/static/page.css"


def test_urls_of_collected_files_have_a_digest(storage, tmp_path):
    list(storage.post_process({"page.css": (storage, "page.css")}))

    collected = CollectedOrNotStorage(location=tmp_path, base_url="/static/")
    assert re.fullmatch(r"/static/page\.[0-9a-f]{12}\.css", collected.url("page.css"))
