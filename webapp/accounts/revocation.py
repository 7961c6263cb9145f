"""The confirmation before API keys are revoked, in the dashboard and the admin."""

from collections.abc import Sequence

from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.queries import describe_key_scope
from tidegauge.webapp.core.confirmation import Confirmation

REVOKED = "Requests with this key and its tokens are refused from then on; event streams end. This cannot be undone."


def revocation(keys: Sequence[ApiKey], *, cancel_url: str, hidden: Sequence[tuple[str, str]] = ()) -> Confirmation:
    """Return the page that says who uses the keys. It is shown again if a key was rotated or revoked meanwhile."""
    return Confirmation(
        title=f"Revoke {keys[0]}?" if len(keys) == 1 else f"Revoke {len(keys)} API keys?",
        button="Revoke",
        cancel_url=cancel_url,
        notes=[REVOKED],
        headers=["key", "status", "scopes", "access to", "last used"],
        rows=[
            [str(key), key.status, ", ".join(key.scopes), describe_key_scope(key) or "all states", _last_used(key)]
            for key in keys
        ],
        danger=True,
        hidden=hidden,
        seen={f"API key {key}": {"status": key.status, "secret": _secret_of(key)} for key in keys},
    )


def _last_used(key: ApiKey) -> str:
    return f"{key.last_used_at:%Y-%m-%d %H:%M} UTC" if key.last_used_at else "never"


def _secret_of(key: ApiKey) -> str:
    """Return a text that identifies the key's secret without revealing it."""
    return f"of {(key.rotated_at or key.created_at).isoformat()}"
