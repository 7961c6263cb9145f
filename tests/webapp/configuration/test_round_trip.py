"""Random configurations: what is exported can be applied to an empty installation, and is exported again."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp.configuration.conftest import apply, differing, wipe
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.configuration import services
from tidegauge.webapp.configuration.notation import as_yaml, parse
from tidegauge.webapp.notify.alerts.rules import CHOICES

NAMES = st.text("abcNO 012:-_é", min_size=1, max_size=8).filter(lambda name: name == name.strip())
STATES = st.lists(st.sampled_from(["flights_by_carrier", "flights_by_hour", "totals"]), unique=True)
PARTS = st.lists(st.sampled_from(["JFK", "NO", 1, 2.5, True]), max_size=2)
SCOPES = st.lists(st.sampled_from(["read", "dead_letters"]), min_size=1, unique=True)


def objects(names: st.SearchStrategy[str], **fields: st.SearchStrategy) -> st.SearchStrategy:
    return st.dictionaries(names, st.fixed_dictionaries({}, optional=fields), max_size=2)


API_KEYS = objects(
    NAMES,
    scopes=SCOPES | st.just(list(Scope.values)),
    states=STATES,
    key_prefix=PARTS,
    rate=st.none() | st.integers(0, 9_000),
    burst=st.none() | st.integers(1, 99),
    expires_at=st.sampled_from([None, "2099-12-31T23:59:59.25Z", "2099-01-01T02:00:00+02:00"]),
).map(
    lambda keys: {
        name: {"rate": fields.get("rate")} if "configuration" in fields.get("scopes", []) else fields
        for name, fields in keys.items()
    }
)
WEBHOOKS = objects(NAMES, states=STATES, enabled=st.booleans()).map(
    lambda hooks: {name: fields | {"url": "https://hooks.example.com/a?b=c"} for name, fields in hooks.items()}
)
RULES = objects(
    NAMES,
    verdicts=st.lists(st.sampled_from(CHOICES), unique=True),
    pipelines=st.sampled_from([[], ["flights"]]),
    states=STATES,
    pending_input=st.none() | st.integers(0, 10**12),
    rejected_share=st.none() | st.floats(0, 0.99),
    after_seconds=st.integers(0, 10_000),
    enabled=st.booleans(),
)
LIMITS = st.dictionaries(
    st.just("flights"),
    st.fixed_dictionaries({"stale_seconds": st.floats(0.001, 1e9), "rejected_share": st.floats(0, 1)}),
)
RETENTION = objects(
    st.sampled_from(["flights_by_hour", "totals"]),
    retention=st.none() | st.just("unlimited") | st.builds("{} hours".format, st.integers(1, 10_000)),
    changelog=st.none() | st.booleans(),
)
CRONTAB = {"crontab": "*/5 3 * 1-6 mon", "timezone": "Europe/Rome"}
SCHEDULE = objects(NAMES, enabled=st.booleans(), description=NAMES).flatmap(
    lambda tasks: st.sampled_from([{"every": "90 minutes"}, {"every": "24 hours"}, CRONTAB]).map(
        lambda when: {name: fields | when | {"work": "audit"} for name, fields in tasks.items()}
    )
)


@given(
    st.fixed_dictionaries(
        {"api_keys": API_KEYS, "webhooks": WEBHOOKS, "alert_rules": RULES, "pipeline_limits": LIMITS,
         "states": RETENTION, "schedule": SCHEDULE}
    )
)  # fmt: skip
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_export_restores_what_was_wiped(filled, wanted):
    for rule in wanted["alert_rules"].values():
        rule |= {"lag_seconds": 300, "webhooks": ["always"]}
    wanted["webhooks"]["always"] = {"url": "https://hooks.example.com"}
    apply(wanted, prune=True)
    exported = services.export()
    assert differing(exported, prune=True) == []

    wipe()
    apply({kind: {} for kind in exported}, prune=True)
    apply(parse(as_yaml(exported)))

    assert services.export() == exported
