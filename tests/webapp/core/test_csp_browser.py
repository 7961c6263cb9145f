"""No page violates its Content-Security-Policy in a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django_celery_beat.models import CrontabSchedule, PeriodicTask
from playwright.sync_api import Page, sync_playwright

from tests.webapp.committed_flights import committed_flights
from webapp.accounts.audit.services import record
from webapp.accounts.services import create_api_key
from webapp.states.models import MaintenanceRun

CHROMIUM = Path("/usr/bin/chromium")
PAGES = [
    "/",
    "/nowhere",
    "/admin/",
    "/admin/states/state/",
    "/admin/states/pipeline/",
    "/admin/states/maintenancerun/",
    "/admin/api_keys/apikey/",
    "/admin/api_keys/apikey/add/",
    "/admin/audit/auditentry/",
    "/admin/auth/user/",
    "/admin/auth/user/add/",
    "/admin/auth/group/add/",
    "/admin/django_celery_beat/periodictask/",
    "/admin/django_celery_beat/crontabschedule/add/",
    "/admin/password_change/",
    "/api/docs",
]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no {CHROMIUM} on this machine"),
]

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", e => window.violations.push(
  `${e.effectiveDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber} ${e.sample}`));
"""


@pytest.fixture(scope="module")
def browser():
    # Playwright keeps an event loop in this thread, in which Django would not query.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, live_server, admin_client) -> Iterator[Page]:
    """A page of a signed-in browser that records violations of the policy."""
    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": live_server.url}
    context = browser.new_context(base_url=live_server.url)
    context.add_cookies([session])
    context.add_init_script(WATCH)
    yield context.new_page()
    context.close()


def violations_of(page: Page, path: str) -> list[str]:
    page.goto(path)
    # The theme renders after the page has loaded, and violations are reported after that.
    page.evaluate("() => new Promise(done => setTimeout(() => requestAnimationFrame(done), 100))")
    assert page.evaluate("document.contentType") == "text/html"
    return [f"{path}: {violation}" for violation in page.evaluate("window.violations")]


@pytest.fixture
def paths(admin_user) -> list[str]:
    """One row of each model, and the paths of the pages that show them."""
    key, _ = create_api_key("feed", ["read"])
    entry = record("key.create", "API key feed", by="ada")
    hourly = CrontabSchedule.objects.create(minute="0")
    task = PeriodicTask.objects.create(name="Compact", task="states.maintain_all", crontab=hourly)
    return [
        *PAGES,
        f"/admin/api_keys/apikey/{key.pk}/change/",
        f"/admin/api_keys/apikey/{key.pk}/rotate/",
        f"/admin/audit/auditentry/{entry.pk}/change/",
        f"/admin/auth/user/{admin_user.pk}/change/",
        f"/admin/auth/user/{admin_user.pk}/password/",
        f"/admin/django_celery_beat/periodictask/{task.pk}/change/",
        f"/admin/django_celery_beat/periodictask/{task.pk}/delete/",
    ]


def test_no_page_violates_its_policy(page, paths):
    violations = [violation for path in paths for violation in violations_of(page, path)]

    assert violations == []


def test_no_page_of_the_dashboard_with_data_violates_its_policy(page):
    with committed_flights():
        run = MaintenanceRun.objects.create(kind="compaction", state_id="totals", requested_by="ada", status="done")
        state, pipeline = "/states/flights_by_carrier/", "/pipelines/flights/"
        paths = [
            "/", pipeline, f"{pipeline}batches", f"{pipeline}batches/2", f"{pipeline}dead-letters", state,
            f'{state}key?key=["EWR","C00"]', f"{state}lookup", "/maintenance", f"/maintenance/{run.id}", "/keys",
            "/states/totals/", "/admin/states/state/flights_by_carrier/change/",
            f"/admin/states/maintenancerun/{run.id}/change/", "/admin/states/pipeline/flights/change/",
        ]  # fmt: skip
        violations = [violation for path in paths for violation in violations_of(page, path)]

    assert violations == []


def test_no_sign_in_page_violates_its_policy(page):
    page.context.clear_cookies()

    assert violations_of(page, "/login") == violations_of(page, "/admin/login/") == []


def test_the_documentation_lists_the_calls_without_an_inline_script(page):
    page.goto("/api/docs")

    call = page.get_by_text("/api/v1/states/{name}/query").first
    call.wait_for(timeout=10_000)

    assert call.is_visible()


def test_an_inline_script_is_reported_and_not_run(page):
    page.goto("/admin/")

    page.evaluate(
        "() => { const s = document.createElement('script'); s.text = 'window.ran = 1'; document.body.append(s); }"
    )

    assert page.evaluate("window.ran") is None
    assert len(page.evaluate("window.violations")) == 1
