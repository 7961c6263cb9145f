"""Remedies: type the command that a refusal names, as an operator does who has read the error."""

import re

from tests.recovery_page import arguments
from tests.soak.recovery import Remedy
from tests.soak.world import World

# As errors name commands: `tidegauge pipelines rewind NAME --to-checkpoint`.
COMMAND = re.compile(r"(tidegauge (?:pipelines|rebuild|run) [^`;,()]+?)(?:`|;|,|\)| to |$)")

# These take the folders as `run_pipeline` does.
OF_A_PIPELINE = ("pipelines", "run_pipeline")


def type_command(world: World, reason: str) -> str:
    """Run one of the commands that the error names, chosen by chance; return it and what it said if it failed."""
    named = [found.strip() for found in COMMAND.findall(reason)]
    words = arguments(world.chance.choice(named))
    folders = ["--input", str(world.feeder.folder), "--checkpoint", str(world.checkpoint)]
    more = folders if words[0] in OF_A_PIPELINE else []
    if words[0] == "run_pipeline":
        more = [*more, "--once"]
    done = world.commands.run("remedy", *words, *more, **world.release.environ)
    said = "" if done.exit_code() == 0 else f", which failed: {done.refusal()}"
    return " ".join(words) + said


def feed_again(world: World, reason: str) -> str:
    """Feed the states from the start of the input, and swap them in."""
    done = world.commands.run("remedy", *world.run_words("--reprocess", "--once"), **world.release.environ)
    return "run --reprocess" + ("" if done.exit_code() == 0 else f", which failed: {done.refusal()}")


def stop_evicting(world: World, reason: str) -> str:
    """Do what the error says of the server's settings."""
    redis = world.servers.redis.master
    redis.call("CONFIG", "SET", "maxmemory", 0)
    redis.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    return "maxmemory-policy noeviction"


# The first that matches.
REMEDIES = [
    Remedy("another driver has taken over", "started again", lambda world, reason: None),
    Remedy("evicts keys", "set", stop_evicting),
    Remedy(COMMAND.pattern, "typed", type_command),
    Remedy("run with --reprocess", "typed", feed_again),
]
