from tests.webapp.committed_flights import no_database


def test_a_process_with_a_database_is_well(client, db):
    response = client.get("/healthz")

    assert (response.status_code, response.json()) == (200, {"status": "ok", "database": "ok"})


def test_a_process_without_a_database_is_not(client, transactional_db):
    with no_database():
        response = client.get("/healthz")

    assert (response.status_code, response.json()["database"]) == (503, "does not answer")
