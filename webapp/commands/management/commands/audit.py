"""Compare keys of a state, chosen at random, with the values that its source or its changelog gives for them."""

from argparse import ArgumentTypeError
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.errors import PipelineError, RecountError, RuntimeSetupError
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.repair.audit import Audit
from tidegauge.webapp.commands.management.spark_conf import add_conf_option, conf_of

SHOWN = 20


class Command(BaseCommand):
    help = (
        "Compare keys of a state, chosen at random, with a recount of its source, or with its changelog. This changes "
        "nothing; readers and the pipeline may continue."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("state", metavar="STATE", help="which state")
        parser.add_argument("--sample", metavar="N", type=number, default=1000, help="how many keys (default: 1000)")
        parser.add_argument(
            "--from",
            dest="by",
            choices=["source", "changelog"],
            help="what to compare with (default: the source if it can be read again, else the changelog)",
        )
        parser.add_argument("--input", type=Path, help="input folder (default: DATA/input/PIPELINE)")
        parser.add_argument("--checkpoint", help="checkpoint folder, or its URI (default: DATA/checkpoints/PIPELINE)")
        add_conf_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.maintenance.runner import report

        state = options["state"]
        try:
            found = self._audit(state, options)
        except (TidegaugeError, RuntimeSetupError) as error:
            raise CommandError(str(error)) from error
        report(state, found)
        for line in [*found.remarks, *found.losses]:
            self.stderr.write(f"{state}: {line}")
        for each in found.deviations[:SHOWN]:
            stored, counted = _shown(each.stored, each.counted), _shown(each.counted, each.stored)
            self.stderr.write(f"{state}: {each.place} of key {each.key!r} holds {stored}, counted {counted}")
        compared = f"{found.keys} keys compared with {found.by} as of batch {found.txid}"
        if not found.is_exact:
            raise CommandError(f"{state}: {compared}, {len(found.deviations)} deviate; see docs/recovery.md")
        self.stdout.write(f"{state}: {compared}, none deviates")

    def _audit(self, state: str, options: Mapping[str, Any]) -> Audit:
        from tidegauge.webapp.maintenance.operations import audit_state

        if options["by"] != "changelog":
            try:
                return _recounted(state, options)
            except (RecountError, PipelineError) as error:
                if options["by"] == "source":
                    raise
                self.stderr.write(f"not compared with the source: {error}")
        return audit_state(state=state, sample=options["sample"])


def number(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a number of keys; give 1 or more")
    return int(text)


def _recounted(state: str, options: Mapping[str, Any]) -> Audit:
    # Imported here, because a comparison with the changelog should not load Spark.
    from tidegauge.pipelines.driver.discovery import find
    from tidegauge.pipelines.repair.recount import Recount
    from tidegauge.pipelines.spark.session import start_session
    from tidegauge.pipelines.spark.user_conf import check_conf
    from tidegauge.webapp.catalog import queries, readers

    name = queries.state(state).pipeline
    declared = find(name)
    pipeline = declared.pipeline(options["input"])
    checkpoint = options["checkpoint"] or data_dir() / "checkpoints" / name
    with readers.own_connection() as conn:
        conf = check_conf(conf_of(options["conf"]))
        how: dict[str, Any] = {"packages": pipeline.packages, "modules": [declared.module], "conf": conf}
        spark = partial(start_session, f"{name} audit", **how)
        return Recount(pipeline, state, conn, spark, checkpoint).audit(options["sample"])


def _shown(value: Any, other: Any) -> Any:
    """Return a value without the parts that are equal in the other one, and without the bytes of sketches."""
    if not isinstance(value, dict) or not isinstance(other, dict):
        return value if not isinstance(value, dict) else _readable(value)
    return _readable({name: part for name, part in value.items() if part != other.get(name)})


def _readable(value: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in value.items() if not isinstance(part, bytes)}
