"""What the album says of a picture: another one than was accepted, new, or stale."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from PIL import Image

from tests.webapp.pictures.album import VERSIONS, Album
from tests.webapp.pictures.camera import Look

WIDE = Look(1440, "light")
VERSION = {"Chromium": "156"}


def plain(color: str) -> Image.Image:
    return Image.new("RGB", (480, 300), color)


@pytest.fixture
def accepted(tmp_path: Path) -> Path:
    """The folder of two accepted pictures."""
    folder = tmp_path / "accepted"
    folder.mkdir()
    album = Album(folder, tmp_path, accepts=True)
    for path in ("/", "/keys"):
        album.compare(path, WIDE, plain("white"))
    album.close(VERSION)
    return folder


def test_pictures_that_differ_are_named_with_page_width_theme_and_share(accepted, tmp_path):
    album = Album(accepted, tmp_path, accepts=False)

    album.compare("/", WIDE, plain("white"))
    album.compare("/keys", WIDE, plain("black"))
    album.compare("/keys/new", WIDE, plain("white"))

    assert album.close(VERSION) == ""
    assert album.faults == [
        "/keys at 1440 px, light: 100.0% of the pixels differ, in one block of 36 px 100% (keys-1440-light.webp)",
        "/keys/new at 1440 px, light: is new, without an accepted picture (keys-new-1440-light.webp)",
    ]
    assert {path.name for path in tmp_path.glob("*.png")} == {"keys-1440-light.png", "keys-new-1440-light.png"}


def test_an_accepted_picture_without_a_page_is_named(accepted, tmp_path):
    album = Album(accepted, tmp_path, accepts=False)

    album.compare("/", WIDE, plain("white"))
    album.close(VERSION)

    assert album.faults == ["keys-1440-light.webp is stale: no page belongs to it"]


def test_accepting_replaces_those_that_differ_and_removes_those_that_are_stale(accepted, tmp_path):
    album = Album(accepted, tmp_path, accepts=True)
    album.compare("/", WIDE, plain("black"))
    album.close({"Chromium": "157"})

    after = Album(accepted, tmp_path, accepts=False)
    after.compare("/", WIDE, plain("black"))
    after.close(VERSION)

    assert album.faults == after.faults == []
    assert json.loads((accepted / VERSIONS).read_text()) == {"Chromium": "157"}


def test_another_version_than_that_of_the_accepted_pictures_is_named(accepted, tmp_path):
    album = Album(accepted, tmp_path, accepts=False)

    assert album.close({"Chromium": "157"}) == "Chromium 157, accepted with 156"


def test_what_takes_the_pictures_can_be_imported():
    """Nothing else of `make test` opens the file, so a name that it imports could go unnoticed."""
    looks = import_module("tests.webapp.pictures.every_picture").LOOKS

    assert {(look.width, look.theme) for look in looks} == {
        (width, theme) for width in (1440, 390) for theme in ("light", "dark")
    }
