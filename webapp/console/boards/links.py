"""The addresses of links to boards: signed ids, so that a stranger can neither guess nor make one.

The id is random and stored, the signature needs SECRET_KEY: a copy of the database or the key alone opens no board.
Each request checks that the link has neither ended nor been revoked, and that the owner may still share the board.
"""

from django.core import signing
from django.utils import timezone

from tidegauge.webapp.accounts.permissions import SHARE_BOARDS
from tidegauge.webapp.console.boards.models import BoardLink


class LinkError(Exception):
    """The link shows no board. The text is for the reader who opened it. status: of the answer."""

    status = 410


class UnknownLinkError(LinkError):
    """It was not made here, or its board no longer exists."""

    status = 404


class ExpiredLinkError(LinkError):
    """Its time is over."""


class RevokedLinkError(LinkError):
    """It was revoked."""


class WithdrawnLinkError(LinkError):
    """Who shared the board may no longer do so."""


def token_of(link: BoardLink) -> str:
    """Return the part of an address that stands for the link."""
    return _signer().sign(link.pk)


def opened(token: str, kind: BoardLink.Kind) -> BoardLink:
    """Return the link with its board and owner. A token that was not signed here costs no query. Raises LinkError."""
    try:
        pk = _signer().unsign(token)
    except signing.BadSignature:
        raise UnknownLinkError("this link is not valid; ask for a new one") from None
    link = BoardLink.objects.select_related("board__owner").filter(pk=pk, kind=kind).first()
    if link is None:
        raise UnknownLinkError("the board of this link no longer exists")
    if link.revoked_at is not None:
        raise RevokedLinkError(f"this link was revoked on {link.revoked_at:%Y-%m-%d %H:%M} UTC; ask for a new one")
    if timezone.now() >= link.expires_at:
        raise ExpiredLinkError(f"this link expired on {link.expires_at:%Y-%m-%d %H:%M} UTC; ask for a new one")
    if not link.board.owner.has_perm(SHARE_BOARDS):  # no one who is deactivated has a permission
        raise WithdrawnLinkError("the person who shared this board may no longer do so")
    return link


def _signer() -> signing.Signer:
    return signing.Signer(sep=".", salt="tidegauge.board")
