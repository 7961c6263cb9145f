"""Docstrings, which are the reference: every argument of what a pipeline is declared with is described."""

import inspect
import re

import pytest

import tidegauge
from docs.reference_pages import page_of

PAGES = ("streams", "operators", "sources", "aggregators", "states")
DECLARED = sorted(name for name in tidegauge.__all__ if name != "__version__" and page_of(name) in PAGES)
VERBS = [
    verb
    for verb, each in vars(tidegauge.Stream).items()
    if not verb.startswith("_") and callable(getattr(each, "__func__", each))
]
UNNAMED = {"self", "cls", "args", "kwargs"}


def undescribed(thing: object, about: str) -> list[str]:
    """The arguments that a text does not name."""
    try:
        parameters = inspect.signature(thing).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []
    named = [name for name in parameters if name not in UNNAMED and not name.startswith("_")]
    return [name for name in named if not re.search(rf"\b{name}\b", about)]


@pytest.mark.parametrize("name", DECLARED)
def test_every_argument_is_described(name):
    thing = getattr(tidegauge, name)
    about = " ".join(inspect.getdoc(each) or "" for each in (thing, getattr(thing, "__init__", None)))

    assert undescribed(thing, about) == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_of_a_verb_is_described(verb):
    function = getattr(tidegauge.Stream, verb)

    assert undescribed(function, inspect.getdoc(function) or "") == []


def test_an_argument_without_a_word_about_it_is_found():
    def verb(rows, share):
        """Keep some rows."""

    assert undescribed(verb, verb.__doc__) == ["share"]
