"""`manage.py audit`: says how many keys were compared, and fails where one deviates."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.recovery_page import arguments, commands, message_of
from tests.webapp.flights import BY_CARRIER

CARRIERS = BY_CARRIER.name


def called(*words):
    out, err = StringIO(), StringIO()
    call_command(*words, stdout=out, stderr=err)
    return out.getvalue()


def test_a_state_that_agrees_is_said_to(lasting):
    assert called("audit", CARRIERS, "--sample", "1000").endswith("none deviates\n")


def test_a_deviation_fails_the_command_is_logged_and_mended_by_a_rebuild(lasting, caplog):
    lasting.die()
    lasting.conn.execute(f"DELETE FROM tidemark_state.{CARRIERS} WHERE carrier = 'C05' AND origin = 'JFK'")

    audit, rebuild, _reprocess = commands("An audit found a deviation")

    with pytest.raises(CommandError, match=message_of("An audit found a deviation")):
        called(*arguments(audit, STATE=CARRIERS))
    assert "keys that deviate, the first 10: [['JFK', 'C05']]" in caplog.text

    called(*arguments(rebuild, STATE=CARRIERS))
    assert called(*arguments(audit, STATE=CARRIERS)).endswith("none deviates\n")


def test_an_unknown_state_is_named(lasting):
    with pytest.raises(CommandError, match="state 'nothing' does not exist"):
        called("audit", "nothing")
