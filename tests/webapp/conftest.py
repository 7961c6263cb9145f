"""Django, set up for the tests of the web half: the servers have an address by now (see tests/conftest.py)."""

import django

django.setup()
