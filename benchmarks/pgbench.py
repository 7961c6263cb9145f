"""Runs statements without our code: with pgbench, PostgreSQL's own client in C, over a few connections."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.cases import Timed
from benchmarks.servers import database_url
from tidegauge.pipelines.connections import session_options

RATE = re.compile(r"^tps = ([\d.]+) \(without initial connection time\)", re.MULTILINE)
VARIABLES = {
    "host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE",
    "options": "PGOPTIONS",
}  # fmt: skip


@dataclass(frozen=True)
class Pgbench:
    program: str
    conn: psycopg.Connection  # to the database
    clients: int
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, scripts: Sequence[str], count: int) -> Timed:
        """Run about `count` transactions with prepared statements; each runs one of the scripts at random."""
        each = max(count // self.clients, 1)
        command = [self.program, "--no-vacuum", "--protocol=prepared", "--jobs=1", f"--client={self.clients}"]
        command += [f"--define={name}={value}" for name, value in self.variables.items()]
        with tempfile.TemporaryDirectory() as folder:
            for number, text in enumerate(scripts):
                script = Path(folder) / f"{number}.sql"
                script.write_text(text)
                command.append(f"--file={script}")
            command.append(f"--transactions={each}")
            environ = os.environ | self._login()
            printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout
        [rate] = RATE.findall(printed)
        return Timed(each * self.clients, each * self.clients / float(rate))

    def _login(self) -> dict[str, str]:
        """Return libpq's variables, with the session options that tasks use as well.

        Variables and not arguments, because all users of the machine can read arguments.
        """
        url = database_url(self.conn)
        parts = conninfo_to_dict(url) | {"options": session_options(url)}
        return {variable: str(parts[part]) for part, variable in VARIABLES.items() if parts.get(part)}


def pgbench_program() -> str | None:
    """Return the path of pgbench; None, and a message, if it is not installed."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
    found = shutil.which("pgbench") or (str(installed[-1]) if installed else None)
    if found is None:
        print("pgbench is not installed, so there is no figure for only the database", file=sys.stderr)
    return found
