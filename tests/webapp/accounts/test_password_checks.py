"""Password checks: one at a time, few of one address, fewer of those that guess, none refused without a reason."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from django.core.exceptions import PermissionDenied

from tests.harness.waiting import eventually
from tidegauge.webapp.accounts import password_checks as module
from tidegauge.webapp.accounts.password_checks import MOST_EACH, MOST_OF_SUSPECTS, PasswordChecks


@pytest.fixture
def checks() -> PasswordChecks:
    return PasswordChecks()


@pytest.fixture
def threads():
    with ThreadPoolExecutor(16) as pool:
        yield pool


def asked(checks, network, is_suspect, until):
    """Check a password until an event; return whether it was checked."""
    try:
        with checks.turn(network, is_suspect=is_suspect):
            return until.wait(10)
    except PermissionDenied:
        return False


@pytest.mark.parametrize(("is_suspect", "most"), [(False, MOST_EACH), (True, MOST_OF_SUSPECTS)])
def test_an_address_has_few_under_way_and_the_rest_is_refused_at_once(checks, threads, is_suspect, most):
    done = threading.Event()
    found = [threads.submit(asked, checks, "192.0.2.7", is_suspect, done) for _ in range(12)]

    eventually(lambda: sum(each.done() for each in found) == 12 - most)
    done.set()

    assert sorted(each.result() for each in found) == [False] * (12 - most) + [True] * most


def test_one_password_is_checked_at_a_time(checks, threads):
    under_way, seen = [], []

    def check(network):
        with checks.turn(network, is_suspect=False):
            under_way.append(network)
            seen.append(len(under_way))
            under_way.remove(network)

    list(threads.map(check, [f"192.0.2.{number}" for number in range(40)]))

    assert seen == [1] * 40


def test_addresses_that_guess_leave_room_for_others(checks, threads, monkeypatch):
    monkeypatch.setattr(module, "SUSPECT_WAIT_SECONDS", 0.05)
    done = threading.Event()
    guesses = [threads.submit(asked, checks, f"192.0.2.{number}", True, done) for number in range(10)]
    other = threads.submit(asked, checks, "198.51.100.1", False, done)

    eventually(lambda: sum(each.done() for each in guesses) >= 9)
    done.set()

    assert other.result()


def test_what_was_refused_or_has_failed_frees_its_place(checks):
    for _ in range(2 * MOST_EACH):
        with pytest.raises(ValueError, match="hasher"), checks.turn("192.0.2.7", is_suspect=False):
            raise ValueError("hasher")
    with ExitStack() as held:
        held.enter_context(checks.turn("192.0.2.7", is_suspect=False))
