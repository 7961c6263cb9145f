"""`--conf`: settings of Spark on the command line."""

from argparse import ArgumentParser

from tidegauge.pipelines.errors import PipelineError


def add_conf_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, such as spark.driver.memory=4g; may be repeated",
    )


def conf_of(settings: list[str]) -> dict[str, str]:
    """Return the settings of `--conf`, name to value. Raises PipelineError for one without a value."""
    for setting in settings:
        if "=" not in setting:
            raise PipelineError(f"--conf {setting!r} is not NAME=VALUE")
    return dict(setting.split("=", 1) for setting in settings)
