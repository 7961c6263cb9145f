"""Django, set up for the tests of the web half: the servers have an address by now (see tests/conftest.py)."""

import os

import django
from django.conf import settings

# All tests come from one address, and those of the limits say what they want.
os.environ["TIDEMARK_WRONG_KEY_RATE_PER_MINUTE"] = os.environ["TIDEMARK_ANONYMOUS_RATE_PER_MINUTE"] = "0"

django.setup()
# A password that is hard to guess takes half a second to make, in every test that signs somebody in.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
