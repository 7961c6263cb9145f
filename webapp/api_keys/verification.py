"""Telling a right key from a wrong one, mostly from memory: a key costs one query every few seconds per process."""

import hashlib
import hmac
import re
import time
from datetime import timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from webapp.api_keys.models import ApiKey

MARK = "tmk"
FORM = re.compile(rf"{MARK}_(?P<prefix>[0-9a-f]{{8}})_(?P<secret>.+)")

# Often enough to tell a key in use from a forgotten one.
LAST_USED_EVERY = timedelta(minutes=1)

# Digest of the whole key -> when to ask the database again, and the key. Right keys only, so it stays small.
_seen: dict[bytes, tuple[float, ApiKey]] = {}


def verified(token: str) -> ApiKey | None:
    """Return the unrevoked key that `token` is the secret form of, else None."""
    digest = hashlib.sha512(token.encode()).digest()
    until, key = _seen.get(digest, (0.0, None))
    if time.monotonic() < until:
        return key
    key = _find(token)
    if key is None:
        _seen.pop(digest, None)
        return None
    _seen[digest] = (time.monotonic() + settings.TIDEMARK_API_KEY_CACHE_SECONDS, key)
    _note_use(key)
    return key


def forget() -> None:
    """Ask the database about every key again."""
    _seen.clear()


def _find(token: str) -> ApiKey | None:
    form = FORM.fullmatch(token)
    if form is None:
        return None
    key = ApiKey.objects.filter(prefix=form["prefix"], revoked_at=None).first()
    digest = hashlib.sha512(form["secret"].encode()).digest()
    return key if key is not None and hmac.compare_digest(digest, key.secret_sha512) else None


def _note_use(key: ApiKey) -> None:
    now = timezone.now()
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_EVERY)
    ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=now)
