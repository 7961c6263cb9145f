"""Every page passes axe-core's rules for WCAG 2.2 AA, wide and narrow, light and dark, without console errors."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.webapp.every_page import MISSING, SIGN_IN, every_page

CHROMIUM = Path("/usr/bin/chromium")
AXE = Path(__file__).parent / "typescript/node_modules/axe-core/axe.min.js"
WIDTHS = (1440, 390)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no {CHROMIUM} on this machine"),
    pytest.mark.skipif(not (AXE.exists() or os.environ.get("CI")), reason=f"no {AXE}: make node-packages"),
]

# A theme changes only colours, so the dark one is checked for contrast alone.
AXE_RUN = """async (theme) => {
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
    const { violations } = await axe.run(document, theme === "dark" ? { runOnly: ["color-contrast"] } : {
        runOnly: { type: "tag", values: tags }, rules: { "landmark-one-main": { enabled: true } },
    });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id} ${node.html} ${node.failureSummary}`));
}"""

# Alpine writes the theme of the admin into the page after it has changed.
RENDERED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"

UNFOLD = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"

OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


class Visitor:
    """A signed-in browser. Its policy is bypassed for axe-core; the test of policies has its own browser."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)

    def faults(self, paths: Iterable[str]) -> list[str]:
        return [f"{path}: {fault}" for path in paths for fault in self._faults_of(path)]

    def _faults_of(self, path: str) -> Iterator[str]:
        self.errors.clear()
        self.page.goto(path)
        self.page.evaluate(UNFOLD)
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            for theme in ("light", "dark"):
                self.page.emulate_media(color_scheme=theme)
                self.page.evaluate(RENDERED)
                yield from (f"{width} px, {theme}: {found}" for found in self.page.evaluate(AXE_RUN, theme))
            if (overflow := self.page.evaluate(OVERFLOW)) > 0:
                yield f"{overflow} px wider than {width} px"
        yield from self.errors


@pytest.fixture
def visitor(live_server, admin_client, monkeypatch) -> Iterator[Visitor]:
    # Playwright keeps an event loop in this thread, in which Django would not query.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": live_server.url}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        context = browser.new_context(base_url=live_server.url, bypass_csp=True, reduced_motion="reduce")
        context.add_init_script(path=AXE)
        context.add_cookies([session])
        yield Visitor(context.new_page())
        browser.close()


def test_every_page_can_be_used_by_everyone(visitor, admin_user):
    with every_page(admin_user) as paths:
        faults = visitor.faults(path for path in paths if not path.startswith("/admin"))

    assert faults == []


def test_so_can_those_before_sign_in_and_those_of_missing_things(visitor):
    not_found = "Failed to load resource: the server responded with a status of 404 (Not Found)"
    missing = [fault for fault in visitor.faults(MISSING) if not fault.endswith(not_found)]
    visitor.page.context.clear_cookies()

    assert missing == visitor.faults(SIGN_IN[:1]) == []


def test_so_can_the_search_dialog(visitor, admin_user):
    page = visitor.page
    with every_page(admin_user):
        page.goto("/")
        page.keyboard.press("/")
        page.keyboard.type("flights")
        page.locator("[role=option]").first.wait_for()
        faults = []
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            faults += page.evaluate(AXE_RUN, theme)

    assert faults == visitor.errors == []
