"""Replay dead letters: input that could not be read is processed again with the pipeline's present code, once."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from tidegauge.state_backends.dead_letters.replay import Choice
from tidegauge.state_backends.errors import TidegaugeError


class Command(BaseCommand):
    help = (
        "Replay dead letters of a pipeline's sources, after a fix: their raw records go through the pipeline's present "
        "code in a batch of their own, and each is counted exactly once. Records that still cannot be read stay dead "
        "letters, with the new reason. A running driver takes them at once, otherwise the next driver does. See "
        "docs/dead_letters.md."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="PIPELINE", help="which pipeline")
        parser.add_argument("--reason", metavar="TEXT", help="only those whose reason has this text")
        parser.add_argument("--group", metavar="REASON", help="only those of the group with this reason, … included")
        parser.add_argument("--since", type=_time, metavar="TIME", help="only those written since, as 2026-01-31T12:00")
        parser.add_argument("--ids", type=int, nargs="+", metavar="ID", help="only those with these ids")
        parser.add_argument("--dry-run", action="store_true", help="say how many there are, and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.catalog import queries
        from tidegauge.webapp.maintenance import replay

        name, dry_run = options["name"], options["dry_run"]
        choice = Choice(options["reason"], options["since"], options["ids"], options["group"])
        try:
            found = replay.replay_dead_letters(
                name=name, choice=choice, requested_by="command replay_dead_letters", dry_run=dry_run
            )
            runs = queries.pipeline(name).is_driven
        except TidegaugeError as error:
            raise CommandError(str(error)) from error
        when = "by the running driver" if runs else "when its driver starts"
        said = "would be replayed" if dry_run else f"are replayed {when}, in a batch of their own"
        self.stdout.write(f"{name}: {found.letters} dead letters {said}")
        if found.without_record:
            self.stdout.write(f"{name}: {found.without_record} cannot be replayed: no raw record of them was kept")
        if found.counted:
            self.stdout.write(
                f"{name}: {found.counted} are not replayed, because states that were reprocessed since have read them "
                "from the source; reprocess the whole pipeline to count them in the other states"
            )


def _time(text: str) -> datetime:
    """Return a time; without a zone it is read as UTC."""
    time = parse_datetime(text if "T" in text or " " in text else f"{text}T00:00")
    if time is None:
        raise ValueError(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
