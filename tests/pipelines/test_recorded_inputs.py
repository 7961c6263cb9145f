"""A driver records what its states are computed from; what people set for a state leaves that as it is."""

from pathlib import Path

import psycopg

from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends import Catalog

RECORDED = "SELECT declared -> 'inputs', xmin::text FROM tidegauge.state ORDER BY name LIMIT 1"


def start(folder: Path, url: str) -> None:
    with DriverSession(word_count(folder), url):
        pass


def test_a_driver_records_the_inputs_and_an_edit_keeps_them(database_url: str, conn: psycopg.Connection, tmp_path):
    start(tmp_path, database_url)
    [(inputs, _)] = conn.execute(RECORDED).fetchall()
    assert inputs == {"sources": [f"folder '{tmp_path}'"], "states": [], "lookups": []}

    name = Catalog(conn).names()[0]
    Catalog(conn).edit(name, changelog=False)
    Catalog(conn).edit(name, ttl=None)

    assert conn.execute(RECORDED).fetchall()[0][0] == inputs


def test_the_next_driver_records_another_folder(database_url: str, conn: psycopg.Connection, tmp_path):
    start(tmp_path / "one", database_url)
    start(tmp_path / "two", database_url)

    assert conn.execute(RECORDED).fetchall()[0][0]["sources"] == [f"folder '{tmp_path / 'two'}'"]
