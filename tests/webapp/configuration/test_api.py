import json

import pytest
from django.test import Client

from tests.webapp.configuration.conftest import EVERY_KIND, HOOK
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.key_options import KeyOptionError, Scope
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.configuration.notation import parse
from tidegauge.webapp.notify.webhooks.models import Webhook

CONFIGURATION, DIFF = "/admin/v1/configuration", "/admin/v1/configuration/diff"
SMALL = {"webhooks": {"ops": HOOK}}


class Caller:
    def __init__(self, *scopes: str) -> None:
        self.client = Client(headers={"Authorization": f"Bearer {create_api_key('ci', scopes)[1]}"})

    def get(self, **headers: str):
        return self.client.get(CONFIGURATION, headers=headers)

    def put(self, document, query: str = "", kind: str = "application/json"):
        body = document if isinstance(document, str | bytes) else json.dumps(document)
        return self.client.put(CONFIGURATION + query, body, content_type=kind)

    def diff(self, document, query: str = ""):
        return self.client.post(DIFF + query, json.dumps(document), content_type="application/json")


@pytest.fixture
def ci(filled) -> Caller:
    return Caller("configuration", "read")


class TestAccess:
    def test_a_request_without_a_key_is_a_401(self, db):
        answers = [Client().get(CONFIGURATION), Client().put(CONFIGURATION), Client().post(DIFF)]

        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(401, "unauthenticated")}

    def test_a_key_without_the_scope_is_a_403(self, filled):
        caller = Caller(*(scope for scope in Scope.values if scope != "configuration"))

        answers = [caller.get(), caller.put(SMALL), caller.diff(SMALL)]

        assert [answer.status_code for answer in answers] == [403, 403, 403]
        assert "lacks the scope 'configuration'" in answers[0].json()["detail"]
        assert not Webhook.objects.exists()

    def test_a_person_is_sent_to_the_admin(self, admin_client):
        answer = admin_client.get(CONFIGURATION)

        assert (answer.status_code, "people use the admin" in answer.json()["detail"]) == (403, True)

    @pytest.mark.parametrize("restriction", [{"states": ["totals"]}, {"key_prefix": ["JFK"]}, {"queries": ["busiest"]}])
    def test_a_restricted_key_is_refused_the_scope_by_name(self, db, restriction):
        with pytest.raises(KeyOptionError, match="API key 'ci': configuration files concern all states"):
            create_api_key("ci", ["configuration"], **restriction)

    @pytest.mark.parametrize("restriction", [{"states": ["totals"]}, {"key_prefix": ["JFK"]}])
    def test_a_key_that_was_restricted_otherwise_is_a_403(self, ci, restriction):
        ApiKey.objects.update(**restriction)

        assert ci.get().status_code == 403

    def test_a_key_gives_no_scope_that_it_lacks(self, ci):
        answer = ci.put({"api_keys": {"feed": {"scopes": ["read", "maintain"]}}})

        assert answer.status_code == 400
        assert answer.json()["detail"] == (
            "the body: API key 'feed': scopes: you may not give the scope 'maintain': you lack the scope 'maintain'"
        )
        assert not ApiKey.objects.filter(name="feed").exists()

    def test_a_key_does_not_change_one_to_a_scope_that_it_lacks(self, ci):
        ci.put({"api_keys": {"feed": {}}})

        assert ci.diff({"api_keys": {"feed": {"scopes": ["maintain"]}}}).status_code == 400

    def test_a_key_does_not_revoke_itself(self, ci):
        answer = ci.put({"api_keys": {}}, "?prune=true")

        assert (answer.status_code, "may not revoke itself" in answer.json()["detail"]) == (400, True)


class TestCalls:
    def test_a_document_is_applied_and_exported(self, ci):
        answer = ci.put(EVERY_KIND)

        assert answer.status_code == 200, answer.content
        assert len(answer.json()["changes"]) == len(EVERY_KIND)
        exported = ci.get().json()
        assert exported["alert_rules"] == EVERY_KIND["alert_rules"]
        assert ci.put(exported).json() == {"changes": [], "secrets": {}}

    def test_the_export_is_yaml_for_those_who_accept_it(self, ci):
        ci.put(SMALL)

        answer = ci.get(Accept="application/yaml")

        assert answer["Content-Type"].startswith("application/yaml")
        assert parse(answer.content.decode()) == ci.get().json()

    def test_the_export_is_for_its_caller_alone_and_has_an_etag(self, ci):
        answer = ci.get()

        assert answer["Cache-Control"] == "private, no-cache"
        assert "Authorization" in answer["Vary"]
        assert ci.get(If_None_Match=answer["ETag"]).status_code == 304

    def test_the_rate_of_the_key_applies(self, ci):
        ApiKey.objects.update(rate=1, burst=1)

        assert [ci.get().status_code, ci.get().status_code] == [200, 429]

    def test_the_body_may_be_yaml(self, ci):
        answer = ci.put("webhooks:\n  ops:\n    url: https://hooks.example.com\n", kind="application/yaml")

        assert (answer.status_code, Webhook.objects.get().name) == (200, "ops")

    def test_a_diff_stores_nothing_and_shows_what_an_apply_changes(self, ci):
        shown = ci.diff(EVERY_KIND)

        assert (shown.status_code, Webhook.objects.exists()) == (200, False)
        assert not AuditEntry.objects.filter(actor="API key ci").exists()
        assert shown.json()["changes"] == ci.put(EVERY_KIND).json()["changes"]

    def test_secrets_are_in_the_answer_to_put_alone_which_nobody_stores(self, ci):
        answer = ci.put(EVERY_KIND)

        secrets = answer.json()["secrets"]
        assert (secrets["api_keys"]["board"][:4], secrets["webhooks"]["ops"][:6]) == ("tmk_", "whsec_")
        assert answer["Cache-Control"] == "no-store"
        others = [ci.get().content, ci.diff(EVERY_KIND).content, ci.put(EVERY_KIND).content]
        assert not any(b"whsec_" in other or b"tmk_" in other for other in others)

    def test_the_audit_log_names_the_key(self, ci):
        ci.put(EVERY_KIND)

        acts = set(AuditEntry.objects.filter(actor="API key ci").values_list("action", flat=True))
        assert acts >= {
            "key.create",
            "query.publish",
            "admin.add",
            "pipeline.limits_add",
            "state.edit",
            "schedule.change",
        }

    def test_without_prune_the_rest_stays(self, ci):
        ci.put(SMALL)

        ci.put({"webhooks": {}}, "?prune=false")
        assert Webhook.objects.exists()

        ci.put({"webhooks": {}}, "?prune=true")
        assert not Webhook.objects.exists()


class TestErrors:
    @pytest.mark.parametrize(
        ("body", "detail"),
        [
            ('{"webhook": {}}', "unknown kind 'webhook'"),
            ('{"webhooks": {"ops": {"uri": "x"}}}', "unknown field 'uri'"),
            ('{"webhooks": {"ops": {"url": "ftp://x"}}}', "webhook 'ops': url: "),
            ('{"webhooks": {"ops": {}, "ops": {}}}', "'ops' is there twice"),
            ("[]", "must be a mapping"),
            (b'{"webhooks": "\xff"}', "utf-8"),
        ],
    )
    def test_a_wrong_document_is_a_problem_that_names_the_place(self, ci, body, detail):
        answer = ci.put(body)

        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
        assert detail in answer.json()["detail"]

    def test_an_unknown_parameter_is_refused(self, ci):
        assert ci.put(SMALL, "?purge=true").json()["code"] == "unknown_parameter"
        assert ci.put(SMALL, "?prune=yes").status_code == 400

    def test_another_media_type_is_a_415(self, ci):
        assert ci.put("a", kind="text/plain").status_code == 415

    def test_another_path_is_a_problem_and_not_the_page_to_sign_in(self, db):
        answer = Client().get("/admin/v1/configurations")

        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
