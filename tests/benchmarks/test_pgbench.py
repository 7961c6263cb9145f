"""pgbench runs scripts with the options that our own sessions have, and gives its rate without the time to connect."""

import pytest

from benchmarks.pgbench import Pgbench, pgbench_program
from benchmarks.servers import database


@pytest.fixture(scope="module")
def program():
    return pgbench_program() or pytest.skip("pgbench is not installed")


def test_it_runs_each_script_prepared_with_its_variables(program):
    with database() as conn:
        conn.execute("CREATE TABLE seen (number bigint, work_mem text, name text)")
        insert = "INSERT INTO seen SELECT :number::bigint, current_setting('work_mem'), '{}';\n"

        done = Pgbench(program, conn, clients=2, variables={"number": "7"}).run([insert.format("a")], count=10)

        rows = conn.execute("SELECT DISTINCT number, work_mem, name FROM seen").fetchall()
        assert rows == [(7, conn.execute("SHOW work_mem").fetchone()[0], "a")]
        assert done.done == 10 == conn.execute("SELECT count(*) FROM seen").fetchone()[0]
        assert 0 < done.seconds < 60
