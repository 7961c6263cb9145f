"""`manage.py audit`: says how many keys were compared, and fails where one deviates."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.webapp.flights import BY_CARRIER

CARRIERS = BY_CARRIER.name


def called(*words):
    out, err = StringIO(), StringIO()
    call_command("audit", *words, stdout=out, stderr=err)
    return out.getvalue()


def test_a_state_that_agrees_is_said_to(lasting):
    assert called(CARRIERS, "--sample", "1000").endswith("none deviates\n")


def test_a_deviation_fails_the_command_is_logged_and_mended_by_a_rebuild(lasting, caplog):
    lasting.die()
    lasting.conn.execute(f"DELETE FROM tidemark_state.{CARRIERS} WHERE carrier = 'C05' AND origin = 'JFK'")

    with pytest.raises(CommandError, match=r"1 deviate; see docs/recovery\.md$"):
        called(CARRIERS)
    assert "keys that deviate, the first 10: [['JFK', 'C05']]" in caplog.text

    call_command("rebuild", CARRIERS, stdout=StringIO(), stderr=StringIO())
    assert called(CARRIERS).endswith("none deviates\n")


def test_an_unknown_state_is_named(lasting):
    with pytest.raises(CommandError, match="state 'nothing' does not exist"):
        called("nothing")
