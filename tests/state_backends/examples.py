"""How many examples a property gets whose examples cost statements of a server, or a state each."""

from hypothesis import HealthCheck, settings


def examples(number: int, **more: int) -> settings:
    """Return the settings for `number` examples under Hypothesis's default profile, and in proportion under another.

    A profile with `max_examples=1000`, ten times the default, runs ten times as many.
    """
    count = max(1, number * settings.default.max_examples // 100)
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), **more)
