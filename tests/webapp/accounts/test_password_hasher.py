"""Passwords are hashed in a thread of low priority, with the hashes of Django."""

import os
import threading

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher

from tidegauge.webapp.accounts import password_hasher
from tidegauge.webapp.accounts.password_hasher import NICENESS, LowPriorityHasher
from tidegauge.webapp.core.settings import access


def test_its_hashes_are_those_of_django():
    made = LowPriorityHasher().encode("secret", "salt", 1_000)

    assert made == PBKDF2PasswordHasher().encode("secret", "salt", 1_000)
    assert LowPriorityHasher().verify("secret", made)
    assert not LowPriorityHasher().verify("other", made)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only on Linux has a thread a priority of its own")
def test_only_its_thread_has_a_low_priority():
    found = password_hasher._thread().submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    assert found.result() == NICENESS
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) < NICENESS


def test_it_is_the_hasher_of_the_settings():
    assert access.PASSWORD_HASHERS[0].endswith(".LowPriorityHasher")
