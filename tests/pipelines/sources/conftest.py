import psycopg
import pytest
from psycopg import sql


@pytest.fixture(scope="module")
def database_url(database_url):
    """The module's database, where every commit waits for the disk: what is not there yet cannot be decoded."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        name = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = on").format(name))
    return database_url
