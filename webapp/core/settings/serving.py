"""What a web process answers at most, and for how many at once."""

from tidegauge.webapp.core.settings.environment import env

# Keys per lookup request.
TIDEGAUGE_LOOKUP_MAX_KEYS = env.int("TIDEGAUGE_LOOKUP_MAX_KEYS", default=1_000)
# The longest time that a lookup waits for its `min_txid`.
TIDEGAUGE_MAX_WAIT_MS = env.int("TIDEGAUGE_MAX_WAIT_MS", default=5_000)
# Of each SQL statement of the web and events processes.
TIDEGAUGE_STATEMENT_TIMEOUT_MS = env.int("TIDEGAUGE_STATEMENT_TIMEOUT_MS", default=15_000)
# Keys of a state, or of a range of it, that entries may be sorted by a measure; 0: no limit.
TIDEGAUGE_SORT_MAX_KEYS = env.int("TIDEGAUGE_SORT_MAX_KEYS", default=1_000_000)
TIDEGAUGE_GROUP_MAX_KEYS = env.int("TIDEGAUGE_GROUP_MAX_KEYS", default=50_000)

# Threads, each with a database connection: of lookups and other calls of the API, of pages, of searches and sorted
# entries, and of exports. A quarter of the first are connections of the event loop instead, which answers most lookups.
TIDEGAUGE_LOOKUP_THREADS = env.int("TIDEGAUGE_LOOKUP_THREADS", default=16)
TIDEGAUGE_PAGE_THREADS = env.int("TIDEGAUGE_PAGE_THREADS", default=6)
TIDEGAUGE_SEARCH_THREADS = TIDEGAUGE_EXPORT_THREADS = 1

# What may be under way at once in a process: exports, each with a database connection and a snapshot; requests that
# wait for their `min_txid`; searches, filters and sorted entries. A share of it is the most of one API key or user (or
# address), so that one caller leaves room for others.
TIDEGAUGE_EXPORTS = env.int("TIDEGAUGE_EXPORTS", default=8)
TIDEGAUGE_EXPORTS_EACH = max(1, TIDEGAUGE_EXPORTS // 2)
TIDEGAUGE_WAITS = env.int("TIDEGAUGE_WAITS", default=1_000)
TIDEGAUGE_WAITS_EACH = max(1, TIDEGAUGE_WAITS // 10)
TIDEGAUGE_SEARCHES = env.int("TIDEGAUGE_SEARCHES", default=16)
TIDEGAUGE_SEARCHES_EACH = max(1, TIDEGAUGE_SEARCHES // 4)
# 1: exports and searches of one API key or user count over all processes with the same Redis.
TIDEGAUGE_SHARED_LIMITS = env.bool("TIDEGAUGE_SHARED_LIMITS", default=False)

# The longest time in which the body of a request arrives.
TIDEGAUGE_REQUEST_SECONDS = env.float("TIDEGAUGE_REQUEST_SECONDS", default=20.0)
# The size of one body: room for the keys of a lookup, 2,048 bytes each, with JSON escapes.
TIDEGAUGE_REQUEST_MAX_BYTES = max(4 * 1024 * 1024, TIDEGAUGE_LOOKUP_MAX_KEYS * 4 * 1024)
# The size of all bodies that a web process holds at once.
TIDEGAUGE_REQUESTS_MAX_BYTES = 128 * 1024 * 1024

# A streamed answer ends if its client reads nothing for this long, because it keeps a database snapshot open.
TIDEGAUGE_STREAM_IDLE_MS = 60_000
# It also ends if its client reads fewer bytes per second, or takes longer in all.
TIDEGAUGE_STREAM_MIN_BYTES_PER_SECOND = 4_096
TIDEGAUGE_STREAM_MAX_SECONDS = env.float("TIDEGAUGE_STREAM_MAX_SECONDS", default=3_600.0)
