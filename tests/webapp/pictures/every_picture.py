"""Every page looks as it was accepted, wide and narrow, light and dark: `make pictures`.

pytest does not collect this file by itself: fonts and Chromium of another machine may draw otherwise, and the pictures
of a page that is changed on purpose are accepted after a look at them.
"""

import random
import secrets
import shutil
import warnings
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django_celery_beat.models import PeriodicTask
from playwright.sync_api import Browser

from tests.webapp.chromium import chromium_running
from tests.webapp.committed_flights import no_database
from tests.webapp.crowd import crowd
from tests.webapp.every_page import MISSING, SIGN_IN, every_page
from tests.webapp.flights import Flights
from tests.webapp.pictures.album import ACCEPTED, Album, font
from tests.webapp.pictures.camera import Look, camera
from tests.webapp.pictures.fixed_clock import FixedClock, fixed_clock
from tests.webapp.test_accessibility import WIDTHS
from tidegauge.webapp.catalog.models import Driver
from tidegauge.webapp.console.dashboard import service_strip

BEGINNING = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
LOOKS = [Look(width, theme) for width in WIDTHS for theme in ("light", "dark")]
DIFFERENCES = Path(__file__).parents[3] / "artifacts/pictures"
NOBODY = "redis://127.0.0.1:1/0"
ADDRESS = "http://localhost"  # The port of the server is another one each time, and requests on pages name it.


@pytest.fixture(autouse=True)
def clock(transactional_db, monkeypatch) -> Iterator[FixedClock]:
    """Stops the clock, but for four minutes before each batch and two seconds within. Drivers accept steps of five."""
    opened = Flights.open

    def open_later(*args: Any, **options: Any) -> Any:
        clock.advance(timedelta(minutes=4))
        batch = opened(*args, **options)
        clock.advance(timedelta(seconds=2))
        return batch

    monkeypatch.setattr(Flights, "open", open_later)
    with fixed_clock(BEGINNING) as clock:
        yield clock


@pytest.fixture(autouse=True)
def same_prefixes(monkeypatch) -> None:
    """API keys have the same prefixes each time."""
    generator = random.Random(75)
    monkeypatch.setattr(secrets, "token_hex", lambda size: generator.randbytes(size).hex())


@pytest.fixture
def admin_user(admin_user):
    """The user whose hash has the same salt each time; the admin shows it."""
    admin_user.password = make_password("password", salt="fixed")
    admin_user.save()
    return admin_user


@pytest.fixture
def browser(live_server) -> Iterator[Browser]:
    resolving = f"--host-resolver-rules=MAP localhost 127.0.0.1:{live_server.thread.port}"
    with chromium_running(resolving) as running, running.in_use() as browser:
        yield browser


@pytest.fixture
def session(admin_client) -> dict[str, str]:
    return {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": ADDRESS}


@pytest.fixture
def album(browser, pytestconfig) -> Iterator[Album]:
    yield from _album("pages", ACCEPTED, browser, pytestconfig)


@pytest.fixture
def crowded(browser, pytestconfig) -> Iterator[Album]:
    yield from _album("crowd", ACCEPTED / "crowd", browser, pytestconfig)


def _album(name: str, accepted: Path, browser: Browser, config: pytest.Config) -> Iterator[Album]:
    differences = DIFFERENCES / name
    shutil.rmtree(differences, ignore_errors=True)
    for folder in (differences, accepted):
        folder.mkdir(parents=True, exist_ok=True)
    album = Album(accepted, differences, accepts=config.getoption("accept"))
    yield album
    versions = {"Chromium": browser.version, "system-ui": font("system-ui"), "monospace": font("monospace")}
    if others := album.close(versions):
        warnings.warn(others, stacklevel=1)
    if album.faults:
        pytest.fail(album.report(), pytrace=False)


def test_every_page_looks_as_it_was_accepted(browser, session, admin_user, clock, album):
    with every_page(admin_user) as paths:
        _run_drivers_elsewhere()
        # Migrations have added tasks before the clock was stopped.
        PeriodicTask.objects.update(date_changed=clock.now)
        _photograph(browser, album, clock.now, [*paths, *MISSING], [session])
        _photograph(browser, album, clock.now, SIGN_IN, [])


def test_pages_with_much_on_them_and_without_services_look_as_they_were_accepted(
    browser, session, admin_user, clock, crowded, settings
):
    with crowd(admin_user, clock.now) as paths:
        _run_drivers_elsewhere()
        PeriodicTask.objects.update(date_changed=clock.now)
        _photograph(browser, crowded, clock.now, paths, [session])
        settings.REDIS_URL = NOBODY
        service_strip.redis_answers.clear()
        _photograph(browser, crowded, clock.now, ["/", "/maintenance"], [session], "redis-off")
        with no_database():
            _photograph(browser, crowded, clock.now, ["/", "/login"], [session], "database-off")


def _run_drivers_elsewhere() -> None:
    """Record each driver as one of a machine that is the same for everyone."""
    for driver in Driver.objects.all():
        started = driver.started | {"folder": "/srv/shop", "program": ["orders.py"]}
        Driver.objects.filter(pk=driver.pk).update(host="localhost", pid=1000, started=started)


def _photograph(
    browser: Browser, album: Album, now: datetime, paths: Iterable[str], cookies: list[Any], what: str = ""
) -> None:
    """Compare pages in each look. what: what the names of their pictures begin with."""
    for look in LOOKS:
        with camera(browser, ADDRESS, cookies, now, look) as take:
            for path in paths:
                album.compare(f"{what}{path}", look, take(path))
