"""Which differences of two pictures count: what is moved, missing or of another colour, not how edges are smoothed."""

from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageOps

from tests.webapp.pictures import comparison

WIDTH, HEIGHT = 720, 540
COLUMNS = (40, 240, 440)


def drawn(
    moved: float = 0.0, columns: tuple[int, ...] = COLUMNS, button: int = 600, height: int = HEIGHT, by: int = 3
) -> Image.Image:
    """A page with a table and a button, scaled. moved: by how much everything stands further right, in pixels."""
    fine = 4
    page = Image.new("RGB", (fine * WIDTH, fine * height), "white")
    draw = ImageDraw.Draw(page)
    for row in range(10):
        for column in columns:
            at = (fine * (column + moved), fine * (60 + 40 * row))
            draw.text(at, f"{1_000 * row + column}", fill="#222222", font_size=fine * 14)
    draw.rectangle([fine * (button + moved), fine * 20, fine * (button + 80 + moved), fine * 48], fill="#1f5fbf")
    screenshot = BytesIO()
    page.reduce(fine).save(screenshot, "PNG")
    return comparison.scaled(screenshot.getvalue(), by)


@pytest.fixture
def accepted(tmp_path: Path) -> Image.Image:
    comparison.save(drawn(), tmp_path / "page.webp")
    return Image.open(tmp_path / "page.webp").convert("RGB")


def test_the_same_picture_does_not_differ_from_the_kept_one(accepted):
    assert comparison.fault(drawn(), accepted) == ""


def test_edges_may_be_smoothed_otherwise(accepted):
    assert drawn(moved=0.5).tobytes() != drawn().tobytes()
    assert comparison.fault(drawn(moved=0.5), accepted) == ""


@pytest.mark.parametrize(
    "other",
    [drawn(button=590), drawn(columns=COLUMNS[:2]), drawn(columns=(40, 240, 446)), ImageOps.invert(drawn())],
    ids=["a moved button", "a missing column", "a moved column", "another theme"],
)
def test_what_is_moved_missing_or_of_another_colour_differs(accepted, other):
    assert "of the pixels differ, in one block of 36 px" in comparison.fault(other, accepted)


def test_pictures_that_are_kept_in_full_width_are_compared_alike():
    assert comparison.fault(drawn(moved=0.5, by=1), drawn(by=1), 1) == ""
    assert "in one block of 36 px" in comparison.fault(drawn(button=590, by=1), drawn(by=1), 1)


def test_a_page_of_another_height_differs(accepted):
    assert comparison.fault(drawn(height=600), accepted) == "720 x 600 px instead of 720 x 540 px"


def test_the_three_pictures_stand_side_by_side_with_red_where_they_differ(accepted):
    together = comparison.side_by_side(drawn(button=500, height=600), accepted)

    assert together.size == (3 * WIDTH // 3 + 20, 200)
    actual, kept, marked = (together.crop((x, 0, x + 240, 180)) for x in (0, 250, 500))
    assert actual.tobytes() == drawn(button=500).tobytes()
    assert kept.tobytes() == accepted.tobytes()
    assert marked.getpixel((205, 10)) == marked.getpixel((175, 10)) == (220, 0, 0)
    assert marked.getpixel((60, 10)) != (220, 0, 0)
