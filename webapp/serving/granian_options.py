"""Options of `python -m granian` for the web and the events process, except for host, port and workers.

`Procfile`, the image and the manifests have the same options. Only HTTP/1 is served, because only there granian limits
the time in which a client sends its headers. `--backpressure` is the number of clients that a worker accepts at once.
"""

WEB = (
    *("--interface", "asginl", "--http", "1", "--no-ws", "--backlog", "2048", "--backpressure", "8192"),
    *("--http1-header-read-timeout", "10000", "--workers-kill-timeout", "20", "tidegauge.webapp.web:application"),
)
EVENTS = (
    *("--interface", "asgi", "--http", "1", "--no-ws", "--backlog", "2048", "--backpressure", "8192"),
    *("--http1-header-read-timeout", "10000", "--workers-kill-timeout", "10", "tidegauge.webapp.asgi:application"),
)
