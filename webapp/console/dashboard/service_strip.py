"""The services that pipelines and pages need: database, Redis, worker and events, and whether each one works now.

Only what has just answered, or has just sent a heartbeat, is shown as working.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge.state_backends.synchronizer.membership import Member
from tidegauge.webapp.accounts.rate_limits import is_available
from tidegauge.webapp.core.cached import Cached
from tidegauge.webapp.notify.alerts.history import silent_since

# As long as a time-out of Redis, so that an outage slows at most one page in that time.
REDIS_SECONDS = 2.0

redis_answers = Cached(is_available, REDIS_SECONDS)


@dataclass(frozen=True)
class Service:
    """says: what is wrong, and what that means; empty if it works."""

    name: str
    tone: str
    says: str = ""


def services(members: Sequence[Member]) -> list[Service]:
    """Return the state of each service. The database has answered, because the page could be read."""
    return [
        Service("Database", "good"),
        Service("Redis", "good") if redis_answers() else Service("Redis", "bad", REDIS),
        _worker(members),
        _process("Events", "events", members, "watch", EVENTS),
    ]


REDIS = "does not answer: states in Redis are not served, nothing is rate limited, and no maintenance can be requested"
WORKER = "no maintenance, no alerts and no history"
EVENTS = "pages ask for changes every few seconds, and event streams are interrupted"


def _worker(members: Sequence[Member]) -> Service:
    found = _process("Worker", "worker", members, "bad", WORKER)
    if found.says or not silent_since():
        return found
    return Service("Worker", "watch", f"does not run the schedule: {WORKER}")


def _process(name: str, role: str, members: Sequence[Member], tone: str, means: str) -> Service:
    own = [member for member in members if member.role == role]
    if any(member.healthy for member in own):
        return Service(name, "good")
    return Service(name, tone, f"{'does not respond' if own else 'is not running'}: {means}")
