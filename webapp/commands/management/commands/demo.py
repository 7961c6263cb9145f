"""Run the whole system on this machine, with a year of flights as input."""

import io
import json
import logging
import os
import signal
import sys
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.commands.management.child_process import Child

WELCOME = """
  Tidegauge is running.

    dashboard   {url}/
    admin       {url}/admin/
    API docs    {url}/api/docs
    user        {admin_user}
    password    {admin_password}
    API key     {api_key}

{examples}  Ctrl-C stops everything; the next run continues from there. Logs: {logs}
"""

# For the demo's flights. `{{` becomes one brace, because this is formatted once.
EXAMPLES = """\
  Look up two routes:

    curl -fsS {url}/api/v1/states/routes/lookup -H 'Authorization: Bearer {api_key}' \\
      -H 'Content-Type: application/json' -d '{{"keys": [["JFK", "LAX"], ["EWR", "SFO"]]}}'

  Watch two keys change, batch by batch:

    curl -NG {events_url}/events/states/flights_by_carrier -H 'Authorization: Bearer {api_key}' \\
      --data-urlencode 'keys=[["JFK","AA"],["EWR","UA"]]'

"""

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Run web, events, worker and pipelines on this machine until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help="pipelines to run (default: the demo's flights)")
        parser.add_argument("--port", type=int, default=8000, help="port of the web server (default: 8000)")
        parser.add_argument(
            "--once", action="store_true", help="process all input, compare the states with a recount, then end"
        )
        parser.add_argument("--json", action="store_true", help="with --once: print the result as one JSON object")

    def check_options(self, options: dict[str, Any]) -> None:
        if options["json"] and not options["once"]:
            raise CommandError("--json requires --once", returncode=2)
        if options["names"] and options["once"]:
            raise CommandError("--once recounts the demo's flights, so it takes no NAME", returncode=2)

    def handle(self, *args: Any, **options: Any) -> None:
        self.check_options(options)
        # Imported here, because it loads Spark.
        from tidegauge.webapp.commands.management import demonstration

        # Line buffering, so that each line is visible at once in a pipe or a file.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        try:
            with demonstration.only_demo():
                self._once(options["json"]) if options["once"] else self._serve(options["port"], options["names"])
        except (TidegaugeError, RuntimeSetupError) as error:
            raise CommandError(str(error)) from error

    def _once(self, as_json: bool) -> None:
        from tidegauge.webapp.commands.management import demonstration
        from tidegauge.webapp.commands.management.progress import is_wanted, live_progress

        logger.info("preparing tables and input")
        demonstration.prepare()
        with live_progress([demonstration.PIPELINE], wanted=is_wanted()):
            result = demonstration.run_whole_input()
        if as_json:
            self.stdout.write(json.dumps(result))
        else:
            self.stdout.write("{events} events in {batches} batches, {seconds} s".format(**result))
            for name, state in result["states"].items():
                self.stdout.write(f"{name}: {state['keys']} keys, {'exact' if state['exact'] else 'NOT EXACT'}")
        if not all(state["exact"] for state in result["states"].values()):
            raise CommandError("a state differs from the recount")

    def _serve(self, port: int, references: list[str]) -> None:
        from tidegauge.webapp.commands.management import demonstration
        from tidegauge.webapp.commands.management.progress import is_wanted

        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        on_terminal = is_wanted()  # before the children's variables are set
        demonstration.check_port(port)
        names = demonstration.names_of(references)
        self.stdout.write("preparing tables and input ..")
        demonstration.prepare(with_flights=not references)
        access = demonstration.grant_access(port)
        children = demonstration.start_children(port, references, demonstration.set_up_roles())
        try:
            demonstration.wait_until_healthy(access.url, children[0])
            demonstration.wait_until_announced(names, children[-1])
            values = {**vars(access), "events_url": os.environ["TIDEGAUGE_EVENTS_URL"], "logs": data_dir() / "logs"}
            examples = "" if references else EXAMPLES.format(**values)
            self.stdout.write(WELCOME.format(**values, examples=examples))
            self._watch(children, stop, names, on_terminal)
        finally:
            self.stdout.write("\nstopping ..")
            for child in reversed(children):
                child.stop()
        self.stdout.write("stopped.")

    def _watch(self, children: list[Child], stop: threading.Event, names: list[str], on_terminal: bool) -> None:
        from tidegauge.webapp.commands.management.progress import Progress, live_progress

        progress = Progress(names)
        logged = ""
        with live_progress(names, wanted=on_terminal):
            while not stop.wait(1.0 if on_terminal else 5.0):
                for child in children:
                    if child.exit_code() is not None:
                        raise CommandError(
                            f"{child.name} has ended (exit code {child.exit_code()}); the end of {child.log}:\n"
                            f"{child.last_lines()}"
                        )
                if not on_terminal and (line := progress.line()) != logged:
                    logger.info("progress: %s", line)
                    logged = line
