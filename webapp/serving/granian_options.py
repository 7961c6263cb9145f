"""Options of `python -m granian` for the web and the events process, except for host, port and workers.

`Procfile`, the image and the manifests have the same options. Of HTTP/1 alone, because granian limits the time in which
a client sends its headers only there. `--backpressure` is the number of clients that a worker accepts at once. A worker
that is killed is started again, because otherwise granian stops the others, too.
"""

WEB = (
    *("--interface", "asginl", "--http", "1", "--no-ws", "--backlog", "2048", "--backpressure", "8192"),
    *("--http1-header-read-timeout", "10000", "--workers-kill-timeout", "20", "--respawn-failed-workers"),
    "tidegauge.webapp.web:application",
)
EVENTS = (
    *("--interface", "asgi", "--http", "1", "--no-ws", "--backlog", "2048", "--backpressure", "8192"),
    *("--http1-header-read-timeout", "10000", "--workers-kill-timeout", "10", "--respawn-failed-workers"),
    "tidegauge.webapp.asgi:application",
)
