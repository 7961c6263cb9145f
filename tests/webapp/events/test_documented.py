"""The consumer in docs/events.md follows and resumes, as the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.webapp.events.follower import commit, views_feed

PAGE = Path(__file__).parents[3] / "docs" / "events.md"


def test_the_consumer_follows_and_resumes(transactional_db, api_key, server):
    script = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    with views_feed() as feed:
        commit(feed, a=1)
        url = f"{server.url}/events/states/{feed.specs[0].name}?keys=%5B%22a%22%5D"
        environ = {"PATH": os.environ["PATH"], "EVENTS_URL": url, "TIDEGAUGE_API_KEY": api_key}
        consumer = subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE, text=True)
        assert consumer.stdout is not None
        try:
            assert consumer.stdout.readline() == "1 {('a',): {'n': 1}}\n"
            commit(feed, a=2)
            assert consumer.stdout.readline() == "2 {('a',): {'n': 3}}\n"
            with server.stopped():
                commit(feed, a=4)
            lines = (line for line in consumer.stdout if "retrying" not in line)
            assert [next(lines), next(lines)][-1] == "3 {('a',): {'n': 7}}\n"
        finally:
            consumer.kill()
            consumer.wait()
