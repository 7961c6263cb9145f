"""One table of problems: every error that reaches a client has a code, and every code a text and a page."""

import importlib
import pkgutil
import re

import pytest
from django.core.exceptions import PermissionDenied
from rest_framework.exceptions import APIException

from tidegauge import webapp
from tidegauge.webapp.api.errors import CODE_OF, code_of
from tidegauge.webapp.api.problems import CODES, PROBLEMS, by_status, markdown

# Answered by code of their own, without an exception of ours.
WITHOUT_CLASS = {
    "database_unavailable", "events_elsewhere", "internal_error", "shutting_down", "time_limit_exceeded",
    "request_too_slow", "too_many_clients", "too_many_streams",
}  # fmt: skip

# Django's refusals for pages: no call of the API raises them.
OF_OTHERS = ("django.", "rest_framework.", "drf_spectacular.", "django_celery_beat.", "unfold.")


def subclasses(kind: type) -> set[type]:
    return {each for child in kind.__subclasses__() for each in {child} | subclasses(child)}


@pytest.fixture(scope="module")
def classes() -> set[type[Exception]]:
    """The errors of webapp that Django and DRF answer as they are."""
    for module in pkgutil.walk_packages(webapp.__path__, "tidegauge.webapp."):
        if not re.search(r"\.(management|migrations|celery|asgi|wsgi)\b", module.name):
            importlib.import_module(module.name)
    return {
        kind
        for base in (APIException, PermissionDenied)
        for kind in subclasses(base)
        if kind.__module__.startswith("tidegauge.webapp.")
    }


def test_every_error_class_of_ours_or_its_base_has_a_code(classes):
    assert {kind for kind in classes if not any(each in CODE_OF for each in kind.__mro__)} == set()


def test_an_error_has_the_status_of_its_code(classes):
    differing = {
        kind: (kind.status_code, code_of(kind))
        for kind in classes
        if issubclass(kind, APIException) and PROBLEMS[code_of(kind)].status != kind.status_code
    }

    assert differing == {}


def test_every_code_is_raised_and_every_raised_code_is_in_the_table():
    assert set(CODE_OF.values()) | WITHOUT_CLASS == set(PROBLEMS)


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_a_text(code):
    problem = PROBLEMS[code]

    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
    assert 400 <= problem.status < 600
    for text in (problem.meaning, problem.remedy):
        assert text.endswith(".")
        assert text.count("`") % 2 == 0


def test_the_page_lists_all_without_a_login(client, db):
    page = client.get("/problems")

    assert page.status_code == 200
    assert re.findall(r'<tr id="(\w+)"', page.content.decode()) == [code for code, _ in by_status()]


def test_the_page_of_the_documentation_lists_all():
    assert re.findall(r"<span id='(\w+)'>", markdown()) == [code for code, _ in by_status()]


def test_the_schema_has_the_codes(client, db):
    schema = client.get("/api/schema", headers={"Accept": "application/json"}).json()["components"]["schemas"]

    assert schema["ProblemCode"]["enum"] == CODES
    assert "code" in schema["Problem"]["required"]


def test_an_error_of_a_library_has_the_first_code_of_its_status():
    class Teapot(APIException):
        status_code = 409

    assert code_of(Teapot) == "not_committed"
    assert code_of(RuntimeError) is None
