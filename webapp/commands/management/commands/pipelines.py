"""List pipelines, pause and resume them, and repair one after its ledger, checkpoint or source was set back."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.errors import PipelineError, RuntimeSetupError, failure_reason
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.ledger.driver_start import DriverStart, of_command
from tidegauge.webapp.commands.management.spark_conf import add_conf_option, conf_of

if TYPE_CHECKING:
    from tidegauge.webapp.catalog.pipeline_status import PipelineStatus

ACTIONS = ("pause", "resume")
RECOVERIES = ("rewind", "restore-checkpoint", "skip-lost")


class Command(BaseCommand):
    help = (
        "List the pipelines that have run, or with `declared` those that can be run, and where they are declared. Or "
        "pause or resume one; a pause takes effect after the current batch. Or recover one whose driver is stopped: "
        "`rewind` takes its states back to an earlier batch, `restore-checkpoint` rebuilds the checkpoint from the "
        "ledger's offsets, `skip-lost` continues after input that its source has lost. See docs/recovery.md."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        actions = ["list", "declared", *ACTIONS, *RECOVERIES]
        parser.add_argument("action", nargs="?", choices=actions, default="list", help="(default: list)")
        parser.add_argument("name", nargs="?", metavar="NAME", help="which pipeline (list: all by default)")
        parser.add_argument("--json", action="store_true", help="print one line of JSON per pipeline")
        target = parser.add_mutually_exclusive_group()
        target.add_argument("--to", type=int, metavar="TXID", help="rewind: the batch to go back to")
        target.add_argument("--to-checkpoint", action="store_true", help="rewind: to the checkpoint's last batch")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
        parser.add_argument("--input", type=Path, help="input folder (default: DATA/input/NAME)")
        parser.add_argument("--checkpoint", help="checkpoint folder, or its URI (default: DATA/checkpoints/NAME)")
        add_conf_option(parser)

    def check_options(self, options: dict[str, Any]) -> None:
        action, name = options["action"], options["name"]
        if action not in ("list", "declared") and not name:
            raise CommandError(f"pipelines {action} needs the NAME of a pipeline", returncode=2)
        if action == "rewind" and options["to"] is None and not options["to_checkpoint"]:
            raise CommandError("pipelines rewind needs --to TXID or --to-checkpoint", returncode=2)

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.catalog import queries
        from tidegauge.webapp.catalog.documents import PipelineSerializer
        from tidegauge.webapp.maintenance import operations

        self.check_options(options)
        action, name = options["action"], options["name"]
        acts = {"pause": operations.pause_pipeline, "resume": operations.resume_pipeline}
        try:
            if action == "declared":
                return self._print(_declared())
            if action in RECOVERIES:
                return self._recover(action, name, options)
            if action in acts:
                acts[action](name=name, requested_by=f"command pipelines {action}")
            found = [queries.pipeline(name)] if name else queries.pipelines()
        except (TidegaugeError, RuntimeSetupError) as error:
            raise CommandError(_start(options).spelled(str(error), elsewhere=False)) from error
        return self._print(
            json.dumps(PipelineSerializer(pipeline).data, default=str) if options["json"] else _sentence(pipeline)
            for pipeline in found
        )

    def _recover(self, action: str, name: str, options: dict[str, Any]) -> None:
        from tidegauge.webapp.accounts.audit.services import record_command

        try:
            self._print(_recovery(action, name, options))
            if not options["dry_run"]:
                to = "the checkpoint" if options["to_checkpoint"] else options["to"]
                record_command(f"pipeline.{action}", f"pipeline {name}", by=f"command pipelines {action}", to=to)
        except (TidegaugeError, RuntimeSetupError):
            raise
        except Exception as error:
            # Such as a source or a database that does not answer; the message is that of its client library.
            raise CommandError(f"pipelines {action} {name}: {failure_reason(error)}") from error

    def _print(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.stdout.write(line)


def _start(options: dict[str, Any]) -> DriverStart:
    """Return the options of this command as those of a driver, for the commands that errors print."""
    given = [("--input", options["input"]), ("--checkpoint", options["checkpoint"])]
    given += [("--conf", setting) for setting in options["conf"]]
    start = of_command("run", [(option, str(value)) for option, value in given if value])
    return replace(start, reference=options["name"] or "")


def _declared() -> Iterator[str]:
    """Yield a line for each pipeline that can be run, then raise PipelineError if modules cannot be read."""
    # Imported here, because the other actions should not load Spark.
    from tidegauge.pipelines.driver.discovery import Search, examples, places

    own = Search(places())
    names = {each.name for each in own.declarations}
    shown = [each for each in Search([examples()]).declarations if each.name not in names]
    for each in [*own.declarations, *shown]:
        yield f"{each.name}: {each}, by {each.place}"
    if own.failures:
        raise PipelineError("; ".join(own.failures))


def _recovery(action: str, name: str, options: dict[str, Any]) -> Iterator[str]:
    # Imported here, because the other actions should not load Spark.
    from tidegauge.pipelines.driver.discovery import find
    from tidegauge.pipelines.repair.recovery import Recovery
    from tidegauge.pipelines.spark.session import start_session
    from tidegauge.pipelines.spark.user_conf import check_conf

    declared = find(name)
    pipeline = declared.pipeline(options["input"])
    checkpoint = options["checkpoint"] or data_dir() / "checkpoints" / pipeline.name
    conf = check_conf(conf_of(options["conf"]))
    how: dict[str, Any] = {"packages": pipeline.packages, "modules": [declared.module], "conf": conf}
    spark = partial(start_session, f"{pipeline.name} recovery", **how)
    recovery = Recovery(pipeline, os.environ["DATABASE_URL"], checkpoint, spark)
    if action == "rewind":
        return recovery.rewind(options["to"], dry_run=options["dry_run"])
    if action == "restore-checkpoint":
        return recovery.restore_checkpoint(dry_run=options["dry_run"])
    return recovery.skip_lost(dry_run=options["dry_run"])


def _sentence(pipeline: "PipelineStatus") -> str:
    wanted = f", {pipeline.wanted} requested by {pipeline.wanted_by}" if pipeline.wanted_by else ""
    reason = f": {pipeline.message}" if pipeline.message else ""
    return f"{pipeline.name}: {pipeline.status}{wanted}, batch {pipeline.committed_txid} committed{reason}"
