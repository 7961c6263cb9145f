"""Who does something, as the audit log names them: a person, an API key, or the command line."""

from django.contrib.auth.models import User

from tidegauge.webapp.accounts.models import ApiKey

# None is the command line.
Actor = User | ApiKey | None

# The actor of management commands in the audit log.
SHELL = "the command line"


def name_of(actor: Actor) -> str:
    if actor is None:
        return SHELL
    return f"API key {actor.name}" if isinstance(actor, ApiKey) else actor.get_username()
