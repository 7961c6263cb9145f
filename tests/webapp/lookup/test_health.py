from django.db import connection


def test_a_process_with_a_database_is_well(client, db):
    response = client.get("/healthz")

    assert (response.status_code, response.json()) == (200, {"status": "ok", "database": "ok"})


def test_a_process_without_a_database_is_not(client, transactional_db, monkeypatch):
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")

    response = client.get("/healthz")

    assert (response.status_code, response.json()["database"]) == (503, "does not answer")
