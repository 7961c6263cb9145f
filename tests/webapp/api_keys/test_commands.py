from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from webapp.api_keys.models import ApiKey
from webapp.api_keys.verification import verified


def create(*words):
    out, err = StringIO(), StringIO()
    call_command("create_api_key", *words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_the_key_alone_is_on_standard_output(db):
    out, err = create("feed", "--scope", "read", "--scope", "maintain")

    key = verified(out.strip())
    assert (key.name, key.scopes) == ("feed", ["maintain", "read"])
    assert out == out.strip() + "\n"
    assert out.strip() not in err


def test_a_key_may_read_unless_told_otherwise(db):
    create("feed")

    assert ApiKey.objects.get().scopes == ["read"]


def test_an_unknown_scope_is_a_usage_error(db):
    with pytest.raises(CommandError, match="scope 'write' is none of read, maintain") as error:
        create("feed", "--scope", "write")

    assert error.value.returncode == 2
