"""The database, its replicas, and Redis."""

from tidegauge.state_backends.session import CLIENT
from tidegauge.webapp.core.installation import database, replicas, sql_address
from tidegauge.webapp.core.settings.environment import env

# psycopg prepares a statement after this many executions, which saves a quarter of a lookup's time. 0 turns it off, for
# a connection pooler in transaction mode without support for prepared statements.
TIDEGAUGE_PREPARE_AFTER = env.int("TIDEGAUGE_PREPARE_AFTER", default=3)

# Through a connection pooler nothing is prepared unless that is asked for: PgBouncer can since 1.21.
TIDEGAUGE_POOLED_PREPARE_AFTER = env.int("TIDEGAUGE_PREPARE_AFTER", default=0)
# The server itself, where DATABASE_URL leads to a connection pooler: for maintenance and event streams.
DATABASE_DIRECT_URL = env.str("DATABASE_DIRECT_URL", default="")

DATABASES = {
    "default": database(
        env.str("DATABASE_URL", default=""), prepare_threshold=TIDEGAUGE_PREPARE_AFTER or None, **CLIENT
    )
    | {
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
}

# Streaming standbys that answer lookups, entries, histories and exports; separated by commas. See docs/replicas.md.
DATABASE_REPLICA_URLS = replicas(env.list("DATABASE_REPLICA_URLS", default=[]))
# A replica that may lack what was committed so long ago is left out.
TIDEGAUGE_REPLICA_MAX_LAG_SECONDS = env.float("TIDEGAUGE_REPLICA_MAX_LAG_SECONDS", default=10.0)

# The server, as the role that runs SQL of people over the live views; unset: there is no such page. It is made by the
# command `sql_role`. See docs/dashboard.md.
TIDEGAUGE_SQL = sql_address(env.str("TIDEGAUGE_SQL_URL", default=""))

REDIS_URL = env.str("REDIS_URL", default="")
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "tidegauge",
    }
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}
