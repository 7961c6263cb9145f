"""The film of the README, which `python -m docs.film` records."""

from PIL import Image

from docs import film


def test_the_kept_film_moves_and_is_small():
    assert film.FILM.stat().st_size < 2_000_000
    with Image.open(film.FILM) as kept:
        assert kept.n_frames >= 8
        assert kept.size == (film.CONSOLE["width"], film.CONSOLE["height"] + film.TERMINAL["height"])
