"""The Content-Security-Policy in a browser; that no page violates it is in tests/webapp/test_accessibility.py."""

import pytest
from playwright.sync_api import Page

from tests.webapp.chromium import IN_A_BROWSER

pytestmark = IN_A_BROWSER

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", e => window.violations.push(
  `${e.effectiveDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber} ${e.sample}`));
"""


@pytest.fixture
def page(live_server, admin_client, chromium) -> Page:
    """A page of a signed-in browser that records violations of the policy."""
    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": live_server.url}
    context = chromium.new_context(base_url=live_server.url)
    context.add_cookies([session])
    context.add_init_script(WATCH)
    return context.new_page()


def test_a_former_address_of_a_call_leads_to_its_page(page):
    page.goto("/api/docs#look_up_state")

    page.wait_for_url("**/api/docs/look_up_state")
    assert page.get_by_role("heading", name="Responses").is_visible()


def test_an_inline_script_is_reported_and_not_run(page):
    page.goto("/admin/")

    page.evaluate(
        "() => { const s = document.createElement('script'); s.text = 'window.ran = 1'; document.body.append(s); }"
    )

    assert page.evaluate("window.ran") is None
    assert len(page.evaluate("window.violations")) == 1
