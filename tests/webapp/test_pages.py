import pytest


def test_answers_have_security_headers(client, db):
    headers = client.get("/login").headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"


def test_another_host_name_is_refused(client, db):
    assert client.get("/healthz", headers={"Host": "elsewhere.example"}).status_code == 400


@pytest.mark.django_db
def test_a_sign_in_leads_to_the_dashboard_and_a_sign_out_ends_the_session(client, django_user_model):
    django_user_model.objects.create_user("ann", password="let me in, please")

    signed_in = client.post("/login", {"username": "ann", "password": "let me in, please"})

    assert signed_in.headers["Location"] == "/"
    assert client.get("/login").headers["Location"] == "/"
    assert client.post("/logout").status_code == 302
    assert "_auth_user_id" not in client.session


def test_static_files_are_served_before_collectstatic(client, db):
    response = client.get("/static/unfold/css/styles.css")

    assert response.status_code == 200
    assert b"".join(response.streaming_content)
