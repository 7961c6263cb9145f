"""Every call of the OpenAPI document has an example of its answer, which fits its schema."""

import pytest
from django.test import Client
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

# OpenAPI documents.
WITHOUT = {"get_saved_query_openapi", "get_saved_query_version_openapi", "get_state_openapi"}


@pytest.fixture(scope="module")
def document():
    return Client().get("/api/schema", headers={"Accept": "application/json"}).json()


@pytest.fixture(scope="module")
def contents(document):
    """What a success of each call has, by media type."""
    return {
        call["operationId"]: content
        for item in document["paths"].values()
        for call in item.values()
        for status, answer in call["responses"].items()
        if status.startswith("2") and (content := answer.get("content"))
    }


def examples(contents):
    return [
        (name, media_type, content["schema"], example["value"])
        for name, by_type in contents.items()
        for media_type, content in by_type.items()
        for example in content.get("examples", {}).values()
    ]


def test_every_call_has_one(contents):
    assert len(contents) > 30
    assert contents.keys() - {name for name, *_ in examples(contents)} == WITHOUT


def test_each_fits_its_schema(document, contents):
    wrong = {}
    for name, media_type, schema, example in examples(contents):
        if media_type == "application/json":
            whole = schema | {"components": document["components"]}
            try:
                Draft202012Validator(whole).validate(example)
            except ValidationError as error:
                wrong[name] = error.message

    assert wrong == {}
