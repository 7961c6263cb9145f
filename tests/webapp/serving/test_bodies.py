"""The bytes of bodies: what strangers hold leaves room for keys, and what one caller holds leaves room for others."""

import pytest

from tidegauge.webapp.accounts.callers import Caller
from tidegauge.webapp.serving.bodies import HeldBytes, TooManyBytesError

STRANGERS = [Caller(f"address 192.0.2.{number}", is_verified=False) for number in range(3)]
KEYS = [Caller(f"key {number}", is_verified=True) for number in range(8)]


@pytest.fixture
def held(settings) -> HeldBytes:
    settings.TIDEGAUGE_REQUESTS_MAX_BYTES = 800
    return HeldBytes()


def test_one_caller_has_an_eighth(held):
    held.hold(KEYS[0], 100)

    with pytest.raises(TooManyBytesError, match="of yours"):
        held.hold(KEYS[0], 1)
    held.hold(KEYS[1], 100)


def test_strangers_have_a_quarter_together_and_keys_the_rest(held):
    for stranger in STRANGERS[:2]:
        held.hold(stranger, 100)

    with pytest.raises(TooManyBytesError, match="too many large requests at once"):
        held.hold(STRANGERS[2], 1)
    for key in KEYS[:5]:
        held.hold(key, 100)


def test_what_is_freed_can_be_held_again(held):
    held.hold(STRANGERS[0], 100)
    with pytest.raises(TooManyBytesError):
        held.hold(STRANGERS[0], 1)

    held.free(STRANGERS[0], 101)

    held.hold(STRANGERS[0], 100)
