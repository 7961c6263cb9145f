"""The web process: `granian --interface asginl --http 1 tidegauge.webapp.web:application`. See serving/front.py.

A client costs a file descriptor, and systems start a process with as few as 1,024 of those that it may have.
"""

import resource

from tidegauge.webapp.wsgi import application as handler  # first: it sets up Django

from tidegauge.webapp.serving.front import Front  # isort: skip

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

application = Front(handler)
