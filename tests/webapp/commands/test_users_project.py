"""Every command that takes a pipeline's name knows those of a user's project, and one process runs several of them."""

import json
import re
import signal
import time
import urllib.request

import pytest
from django.core.management import CommandError, call_command

from tests.users_project import CLICKS
from tidegauge.pipelines.embedded.data_dir import free_port

pytestmark = pytest.mark.spark

ENDED = re.compile(r"pipeline (\w+) ended cleanly")
WRONG_CLICKS = CLICKS.replace('group_by("page")', 'group_by(page="nope")')


def ordered(conn):
    return conn.execute("SELECT article, orders, articles FROM tidegauge_live.ordered ORDER BY article").fetchall()


def clicked(conn):
    return conn.execute("SELECT page, clicks FROM tidegauge_live.clicked ORDER BY page").fetchall()


ORDERED = [("bread", 2, 5), ("milk", 1, 1)]


def test_two_run_in_one_process_each_with_its_own_ledger_and_checkpoint_and_all_lines_are_json(project, conn):
    out, said = project.command("run_pipeline", "orders", "clicks", "--once", LOG_FORMAT="")

    assert (ordered(conn), clicked(conn)) == (ORDERED, [("/", 1)])
    assert conn.execute(
        "SELECT name, description, committed_txid FROM tidegauge.pipeline ORDER BY name"
    ).fetchall() == [
        ("clicks", "Clicks per page.", 1),
        ("orders", "Orders per article.", 2),
    ]
    assert {path.name for path in (project.folder / "home" / "checkpoints").iterdir()} == {"orders", "clicks"}
    assert conn.execute("SELECT DISTINCT pid FROM tidegauge.driver").rowcount == 1
    assert out == ""
    lines = [json.loads(line) for line in said.splitlines()]
    batches = [(line["pipeline"], line["event"]) for line in lines if "committed (" in line["event"]]
    assert sorted(batches) == [
        ("clicks", "batch 1 committed (attempt 1)"),
        ("orders", "batch 1 committed (attempt 1)"),
        ("orders", "batch 2 committed (attempt 1)"),
    ]
    assert any(line["logger"].startswith("spark") for line in lines)
    assert [found[1] for line in lines if (found := ENDED.fullmatch(line["event"]))] == ["orders", "clicks"]


def test_one_that_fails_leaves_the_other_running_and_the_exit_code_tells(project, conn):
    project.write("acme/clicks.py", WRONG_CLICKS)

    _, said = project.command("run_pipeline", "orders", "clicks", "--once", code=1)

    assert ordered(conn) == ORDERED
    assert re.search(r"error .* pipeline clicks has ended, the others go on: .*`nope` cannot be resolved", said)
    assert ENDED.findall(said) == ["orders"]
    assert "CommandError: 1 of 2 pipelines failed:\n  clicks: " in said


def test_with_fail_fast_it_stops_the_other(project, conn):
    project.write("acme/clicks.py", WRONG_CLICKS)

    # Without --once, so that `orders` would go on without end.
    _, said = project.command("run_pipeline", "orders", "clicks", "--fail-fast", code=1)

    assert "pipeline clicks has ended, the others are stopped: " in said
    assert ENDED.findall(said) == ["orders"]


def test_ctrl_c_stops_all_after_their_batches_and_spark_shows_its_pages_meanwhile(project, conn):
    words = ["--trigger", "1 second", "--conf", "spark.sql.ui.retainedExecutions=7", "--ui", "0"]
    process = project.start("run_pipeline", "orders", "acme.clicks:CLICKS", *words)
    said = [process.stderr.readline() for _ in range(1)]
    while "Spark's pages are at" not in said[-1] and process.poll() is None:
        said.append(process.stderr.readline())
    settings = spark_settings(re.search(r"http://\S+", said[-1])[0])
    wait_until(process, lambda: committed(conn) == {"orders": 2, "clicks": 1})

    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=120)

    assert process.returncode == 0, rest
    assert ENDED.findall(rest) == ["orders", "clicks"]
    assert (settings["spark.sql.ui.retainedExecutions"], settings["spark.scheduler.mode"]) == ("7", "FAIR")


def test_reprocess_rewind_and_audit_know_its_pipelines(project, conn):
    project.command("run_pipeline", "orders", "--once")
    conn.execute("UPDATE tidegauge_state.ordered SET orders = 7 WHERE article = 'bread'")

    _, deviates = project.command("audit", "ordered", "--from", "source", code=1)
    out, said = project.command("pipelines", "rewind", "orders", "--to", "1")
    before = ordered(conn)
    project.command("run_pipeline", "orders", "--reprocess", "--once")

    assert "ordered: 2 keys compared with the source as of batch 2, 1 deviate" in deviates
    assert "orders: from batch 2 back to batch 1" in out.splitlines()
    assert before == [("bread", 1, 2), ("milk", 1, 1)]
    assert "not in the audit log: pipeline.rewind of pipeline orders" in said  # this project has not migrated
    assert ordered(conn) == ORDERED


def test_the_demo_runs_its_pipelines_and_the_api_knows_them(project, conn):
    port = free_port()
    process = project.start("demo", "orders", "acme.clicks:CLICKS", "--port", str(port), LOG_FORMAT="")
    wait_until(process, lambda: committed(conn) == {"orders": 2, "clicks": 1})
    key = json.loads((project.folder / "home" / "demo.json").read_text())["api_key"]

    shown = fetched(f"http://127.0.0.1:{port}/api/v1/pipelines", Authorization=f"Bearer {key}")
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=120)

    assert process.returncode == 0, said
    assert [(each["name"], each["committed_txid"]) for each in shown["pipelines"]] == [("clicks", 1), ("orders", 2)]
    assert "stopped." in out
    assert "Look up two routes" not in out


def test_the_demo_recounts_its_own_flights_alone():
    with pytest.raises(CommandError, match=r"^--once recounts the demo's flights, so it takes no NAME$") as refused:
        call_command("demo", "orders", "--once")

    assert refused.value.returncode == 2


def test_what_is_declared_is_listed_with_its_place(project):
    out, _ = project.command("pipelines", "declared")
    place = f"by [tool.tidegauge] of '{project.folder}/pyproject.toml'"

    # Without Django's notice that its own tables are not in this database.
    listed = [line for line in out.splitlines() if ", by " in line]
    assert listed[:2] == [f"orders: acme.orders:orders, {place}", f"clicks: acme.clicks:CLICKS, {place}"]
    assert "word_count: tidegauge.pipelines.jobs.word_count:word_count, by Tidegauge's examples" in listed


def test_a_module_that_cannot_be_read_is_told_after_the_others(project):
    out, said = project.command("pipelines", "declared", code=1, TIDEGAUGE_PIPELINES="acme.nope")

    assert "orders: acme.orders:orders, " in out
    assert "CommandError: TIDEGAUGE_PIPELINES: module 'acme.nope' not found" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("order", "pipeline 'order' not found; did you mean 'orders'? looked in TIDEGAUGE_PIPELINES (names none), "),
        ("orders orders", "pipeline 'orders' is named twice"),
        (
            "orders clicks --reprocess",
            "--reprocess works for one pipeline, but orders, clicks were named; run it for each",
        ),
        ("orders clicks --checkpoint there", "--checkpoint works for one pipeline, "),
        ("clicks --input there", "pipeline 'clicks': acme.clicks:CLICKS takes no parameter 'folder'"),
        ("orders --once --trigger 5s", "trigger '5s' is not an interval; write `5 seconds` or `1 minute`"),
        ("orders --conf spark.sql.ansi.enabled", "--conf 'spark.sql.ansi.enabled' is not NAME=VALUE"),
        (
            "orders --conf spark.sql.ansi.enabled=false",
            "'spark.sql.ansi.enabled' cannot be set, because Tidegauge relies on it: a value that does not fit its ",
        ),
        ("orders --conf executor.memory=1g", "'executor.memory' is not a setting of Spark, whose names begin with "),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(working_directory, words, message):
    with pytest.raises(CommandError) as refused:
        call_command("run_pipeline", *words.split(" "))

    assert str(refused.value).startswith(message)
    assert refused.value.returncode == 2


def test_a_usage_error_of_the_project_is_written_to_standard_error(project):
    out, said = project.command("run_pipeline", "clicks", "--input", "there", code=2)

    assert (out, said) == ("", "CommandError: pipeline 'clicks': acme.clicks:CLICKS takes no parameter 'folder'\n")


def test_a_module_that_needs_django_is_read_once_that_is_set_up(project):
    project.write("acme/clicks.py", "import tidegauge.webapp.catalog.models\n" + CLICKS)

    _, said = project.command("run_pipeline", "click", code=2)

    assert "CommandError: pipeline 'click' not found; did you mean 'clicks' or 'ad_clicks'? " in said


def spark_settings(address):
    """Return the settings that Spark's pages show."""
    [application] = fetched(f"{address}/api/v1/applications")
    return dict(fetched(f"{address}/api/v1/applications/{application['id']}/environment")["sparkProperties"])


def fetched(url, **headers):
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (localhost)
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def committed(conn):
    if not conn.execute("SELECT to_regclass('tidegauge.pipeline')").fetchone()[0]:
        return {}
    return dict(conn.execute("SELECT name, committed_txid FROM tidegauge.pipeline").fetchall())


def wait_until(process, condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
