"""Services: web, events and the Celery worker of a run, started again where they end, as a supervisor does."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.soak.processes import Process, Program, wait_until
from tidegauge.pipelines.embedded.data_dir import LOOPBACK, free_port
from tidegauge.webapp.serving import process_commands

START_SECONDS = 120.0


class Services:
    """The three services over the servers of a run. environ: of the servers."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        folder.mkdir()
        self._folder = folder
        settings = {"TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS": "1", "LOG_FORMAT": "text"}
        self._environ = dict(environ) | settings | {"TIDEGAUGE_HOME": str(folder / "home")}
        web, events = free_port(), free_port()
        self.web_url, self.events_url = (f"http://{LOOPBACK}:{port}" for port in (web, events))
        commands = {
            "web": process_commands.web(web),
            "events": process_commands.events(events),
            "worker": process_commands.worker(concurrency=2, name="soak@localhost", log_level="warning"),
        }
        self._words = {name: command[1:] for name, command in commands.items()}
        self._manage("migrate")
        named = self._manage("create_api_key", "soak", "--scope", "read", "--scope", "maintain", "--rate", "0")
        [self.api_key] = [line for line in named.splitlines() if line.startswith("tmk_")]
        self._running = {name: self._start(name) for name in self._words}
        if not wait_until(self._answer, START_SECONDS, 0.2):
            raise RuntimeError(f"no answer from {self.web_url} or {self.events_url}; see {folder}")

    def kill(self, name: str) -> None:
        """Kill a service with all its processes, and start it again."""
        self._running[name].kill_all()
        self._running[name] = self._start(name)

    def ensure_running(self) -> None:
        """Start what has ended by itself."""
        for name, process in self._running.items():
            if process.exit_code() is not None:
                self._running[name] = self._start(name)

    def ask_for(self, state: str, work: str) -> None:
        """Have the worker compact or expire a state. work: `compaction` or `expiry`. Raises OSError."""
        with suppress(urllib.error.HTTPError):  # there is such a run, or its state is not known yet
            self.request(self.web_url, f"/api/v1/states/{state}/{work}", {}).close()

    def request(self, url: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request with the API key; return the open answer. Raises OSError."""
        given = {"Content-Type": "application/json", "Authorization": f"Bearer {self.api_key}", **headers}
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.urlopen(urllib.request.Request(url + path, data, given), timeout=20)  # noqa: S310

    def close(self) -> None:
        for process in self._running.values():
            process.kill_all()

    def _start(self, name: str) -> Process:
        return Program(name, self._words[name], self._environ, self._folder / f"{name}.log")

    def _manage(self, *words: str) -> str:
        process = Program(words[0], ["manage.py", *words], self._environ, self._folder / f"{words[0]}.log")
        if not process.wait(START_SECONDS) or process.exit_code() != 0:
            raise RuntimeError(f"tidegauge {words[0]}: {process.output()[-1500:]}")
        return process.output()

    def _answer(self) -> bool:
        for url in (self.web_url, self.events_url):
            try:
                urllib.request.urlopen(f"{url}/healthz", timeout=2).close()  # noqa: S310
            except OSError:
                return False
        return True
