"""How a driver was started, and the commands about its pipeline as they work in a shell on its host.

Code writes commands in one notation, `tidegauge run NAME`. A driver that reads another folder, keeps its checkpoint
elsewhere or runs from a checkout needs more than that: without its `--input`, the same command is refused, because the
source has moved. So each driver records the words that it was started with, and `DriverStart.command` adds them to
every command that a page, an alert or an error prints.

Recorded are only options that a later start needs, too. Values of secret settings are left out.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

# Of the lock that a process holds from before it loads Spark until it drives the pipeline, see tidegauge.is_starting.
START_CLASS = 7103848

# Name the data of an embedded installation and the user's modules; without them a command would look elsewhere.
VARIABLES = ("TIDEGAUGE_HOME", "TIDEGAUGE_PIPELINES")

# The options of a driver that other commands about its pipeline take as well, by the words before the name.
EVERY = None
SHARED = ("--input", "--checkpoint", "--conf")
OPTIONS: Mapping[tuple[str, ...], Sequence[str] | None] = {
    ("run",): EVERY,
    ("pipelines", "rewind"): SHARED,
    ("pipelines", "restore-checkpoint"): SHARED,
    ("pipelines", "skip-lost"): SHARED,
    ("audit",): SHARED,
    ("retire",): ("--checkpoint",),
}
# Those that are about a state and not about a pipeline, which may be named by its reference.
OF_STATES = (("audit",), ("retire",))

# What Spark hides in its own logs, too (spark.redaction.regex).
SECRET = re.compile("(?i)secret|password|token|access[.]?key")
IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
HIDDEN = "***"

QUOTED = re.compile(r"`tidegauge ([^`]+)`")


@dataclass(frozen=True)
class DriverStart:
    """How the process of a driver was started.

    program: the words before the command, as `.venv/bin/tidegauge`. verb: `run` or `backfill`; empty for an application
    of a user's own, and `program` is then its file. reference: how the pipeline was named; empty: by its name. options:
    pairs of option and value, an empty value for an option without one. folder: the working directory; empty if it is
    not known. variables: those of VARIABLES that were set. unit: the systemd unit whose main process it is.
    """

    program: Sequence[str] = ("tidegauge",)
    verb: str = "run"
    reference: str = ""
    options: Sequence[Sequence[str]] = ()
    folder: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "DriverStart":
        """Read what `as_json` has written; fields of later releases are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in (stored or {}).items() if name in known})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def again(self, pipeline: str) -> str:
        """Return the command that starts the driver again; empty for an application of a user's own."""
        if self.unit:
            user = ["--user"] if self.unit.startswith("user:") else []
            return shlex.join(["systemctl", *user, "restart", self.unit.removeprefix("user:")])
        return self.command(self.verb, pipeline) if self.verb else ""

    def command(self, *words: str, elsewhere: bool = True) -> str:
        """Return a command with what the driver was started with. words: as in `tidegauge run NAME`, without the first.

        elsewhere: whether it is typed in another folder than the driver's, so that it has to change to that first.
        """
        verb = words[:2] if words[0] == "pipelines" else words[:1]
        given = self._options(verb, words)
        if given is None:
            return self._line(words, elsewhere)
        name, rest = words[len(verb)], words[len(verb) + 1 :]
        named = name if verb in OF_STATES else self.reference or name
        return self._line([*verb, named, *rest, *given], elsewhere)

    def spelled(self, message: str, *, elsewhere: bool = True) -> str:
        """Return a message with each of its commands, `tidegauge ..` between backticks, as `command` returns it."""
        return QUOTED.sub(lambda found: f"`{self._respelled(found, elsewhere)}`", message)

    def _respelled(self, found: re.Match[str], elsewhere: bool) -> str:
        try:
            return self.command(*shlex.split(found[1]), elsewhere=elsewhere)
        except (ValueError, IndexError):  # not a whole command
            return found[0].strip("`")

    def _options(self, verb: tuple[str, ...], words: Sequence[str]) -> list[str] | None:
        """Return the options to add to a command; None if it takes neither them nor a reference."""
        if verb == ("backfill",) and self.verb == "backfill":
            wanted = EVERY
        elif verb in OPTIONS and self.verb == "run":
            wanted = OPTIONS[verb]
        else:
            return None
        pairs = [pair for pair in self.options if (wanted is EVERY or pair[0] in wanted) and pair[0] not in words]
        return [word for pair in pairs for word in pair if word]

    def _line(self, words: Sequence[str], elsewhere: bool) -> str:
        if not self.verb:
            # Its folder and variables are those of the application and not of Tidegauge's commands.
            return shlex.join([*PLAIN.program, *words])
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in self.variables.items())
        move = f"cd {shlex.quote(self.folder)} && " if self.folder and elsewhere else ""
        return f"{move}{variables}{shlex.join([*self.program, *words])}"


# Of a pipeline that has had no driver yet, and for readers who may not know how it was started.
PLAIN = DriverStart()


def of_command(verb: str, options: Sequence[Sequence[str]]) -> DriverStart:
    """Return how this process was started, as a command of Tidegauge's."""
    shown = [(option, _without_secrets(option, value)) for option, value in options]
    return replace(_of_process(), program=_program(), verb=verb, options=shown)


def _of_process() -> DriverStart:
    variables = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    return DriverStart(folder=str(Path.cwd()), variables=variables, unit=_unit())


class _Known:
    """How this process was started, by the names of the pipelines that it drives."""

    starts: ClassVar[dict[str, DriverStart]] = {}


def remember(start: DriverStart, references: Mapping[str, str]) -> None:
    """Keep how this process was started, for the drivers in it. references: pipeline to how it was named."""
    _Known.starts = {name: replace(start, reference=reference) for name, reference in references.items()}


def of_pipeline(ledger: str) -> DriverStart:
    """Return how this process was started, for a pipeline or the one that `ledger` reprocesses."""
    known = _Known.starts.get(ledger.partition("@")[0])
    # Only the file of an application, because its arguments may be secrets.
    return known or replace(_of_process(), program=[Path(sys.argv[0]).name], verb="")


def _program() -> list[str]:
    """Return the words with which this process's command was typed, such that they work in its working directory."""
    script = sys.argv[0]
    if Path(script).name == "manage.py":
        return [_found(sys.executable), _within(script)]
    if os.sep in script:
        return [_found(script)]
    beside = Path(sys.executable).with_name(script)
    return [script] if shutil.which(script) == str(beside) else [_found(sys.executable), "-m", "tidegauge"]


def _found(program: str) -> str:
    """Return the name of a program that the path finds, else its address."""
    name = Path(program).name
    return name if shutil.which(name) == program else _within(program)


def _within(file: str) -> str:
    """Return a file's address, relative if it is in the working directory."""
    absolute = Path(file).absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def _unit() -> str:
    """Return the systemd unit that has executed this very process; empty if none has.

    A unit that a parent of this process belongs to, as cron's, must not be restarted instead.
    """
    if os.environ.get("SYSTEMD_EXEC_PID") != str(os.getpid()):
        return ""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    path = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), "")
    names = [name for name in path.split("/") if name.endswith(".service")]
    is_of_user = "/user.slice/" in path and len(names) > 1
    return f"user:{names[-1]}" if is_of_user else names[-1] if names else ""


def _without_secrets(option: str, value: str) -> str:
    name, equals, _ = value.partition("=")
    if option == "--conf" and SECRET.search(name):
        return f"{name}{equals}{HIDDEN}"
    return IN_ADDRESS.sub(f"{HIDDEN}@", value)
