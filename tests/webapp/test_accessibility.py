"""Every page passes axe-core's rules for WCAG 2.2 AA, wide and narrow, light and dark, without console errors.

Chromium writes there what a page's Content-Security-Policy refuses, too.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.webapp.chromium import IN_A_BROWSER
from tests.webapp.every_page import MISSING, SIGN_IN, every_page

AXE = Path(__file__).parent / "typescript/node_modules/axe-core/axe.min.js"
WIDTHS = (1440, 390)
# A theme changes only colours, so the dark one is checked for contrast alone, and once.
LOOKS = {"light": WIDTHS, "dark": WIDTHS[:1]}

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.skipif(not (AXE.exists() or os.environ.get("CI")), reason=f"no {AXE}: make node-packages"),
]

# A colour that still changes counts as it is at that moment. Results that no test reads, and selectors of all elements,
# take as long as the rules; nor is anything looked up in style sheets or media, because no such rule is asked for.
AXE_RUN = """async (theme) => {
    const changing = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    await Promise.allSettled(changing.map(({ finished }) => finished));
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
    const asked = theme === "dark" ? { runOnly: ["color-contrast"] } : {
        runOnly: { type: "tag", values: tags }, rules: { "landmark-one-main": { enabled: true } },
    };
    const said = { resultTypes: ["violations"], selectors: false, preload: false };
    const { violations } = await axe.run(document, { ...asked, ...said });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id} ${node.html} ${node.failureSummary}`));
}"""

# The API reference has a hundred alike. The menu of the bar covers what is below it, and has a test of its own.
UNFOLD = "[...document.querySelectorAll('details:not(.menu)')].slice(0, 8).forEach((shut) => { shut.open = true; })"

# A row of links that scrolls hides the last ones as well.
OVERFLOW = """Math.max(document.documentElement.scrollWidth - innerWidth,
    ...[...document.querySelectorAll("header nav")].map((nav) => nav.scrollWidth - nav.clientWidth))"""


# The class of the admin's theme follows that of the system a moment later.
SHOWN = "theme => !window.Alpine || document.documentElement.classList.contains('dark') === (theme === 'dark')"


class Visitor:
    """A signed-in browser."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)

    def faults(self, paths: Iterable[str]) -> list[str]:
        return [f"{path}: {fault}" for path in paths for fault in self._faults_of(path)]

    def _faults_of(self, path: str) -> Iterator[str]:
        self.errors.clear()
        self.page.emulate_media(color_scheme="light")
        self.page.goto(path)
        self.page.evaluate(UNFOLD)
        for theme, widths in LOOKS.items():
            self.page.emulate_media(color_scheme=theme)
            self.page.wait_for_function(SHOWN, arg=theme)
            for width in widths:
                self.page.set_viewport_size({"width": width, "height": 900})
                yield from (f"{width} px, {theme}: {found}" for found in self.page.evaluate(AXE_RUN, theme))
                if (overflow := self.page.evaluate(OVERFLOW)) > 0:
                    yield f"{overflow} px wider than {width} px"
        yield from self.errors


@pytest.fixture
def visitor(live_server, admin_client, chromium) -> Visitor:
    session = {"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": live_server.url}
    context = chromium.new_context(base_url=live_server.url, reduced_motion="reduce")
    context.add_init_script(path=AXE)
    context.add_cookies([session])
    return Visitor(context.new_page())


def test_every_page_can_be_used_by_everyone(visitor, admin_user):
    gone = "Failed to load resource: the server responded with a status of 410 (Gone)"
    with every_page(admin_user) as paths:
        faults = [fault for fault in visitor.faults(paths) if not fault.endswith(gone)]

    assert faults == []


def test_so_can_those_before_sign_in_and_those_of_missing_things(visitor):
    not_found = "Failed to load resource: the server responded with a status of 404 (Not Found)"
    missing = [fault for fault in visitor.faults(MISSING) if not fault.endswith(not_found)]
    visitor.page.context.clear_cookies()

    assert missing == visitor.faults(SIGN_IN) == []


def test_so_can_the_search_dialog(visitor, admin_user):
    page = visitor.page
    with every_page(admin_user):
        page.goto("/")
        page.keyboard.press("/")
        # At once, because htmx logs an error for each request that the next letter replaces on a busy machine.
        page.get_by_role("combobox", name="Search").fill("flights")
        page.locator("[role=option]").first.wait_for()
        faults = []
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            faults += page.evaluate(AXE_RUN, theme)

    assert faults == visitor.errors == []


@pytest.mark.parametrize("address", ["/", "/admin/"])
def test_so_can_the_menu_of_the_bar(visitor, address):
    page = visitor.page
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(address)
        page.locator(".menu summary").press("Enter")
        page.get_by_role("radio", name="System").wait_for()
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_function(SHOWN, arg=theme)
            visitor.errors += page.evaluate(AXE_RUN, theme)
        assert page.evaluate(OVERFLOW) <= 0

    assert visitor.errors == []


def test_the_menu_of_the_admin_opens_by_keyboard_on_a_phone(visitor):
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    visitor.page.goto("/admin/states/state/")
    menu = visitor.page.locator("#header-inner").get_by_role("button", name="Menu")
    states = visitor.page.locator("#nav-sidebar").get_by_role("link", name="States")
    assert not states.is_visible()

    menu.press("Enter")
    states.wait_for(state="visible")

    visitor.page.locator("#nav-sidebar").get_by_role("button", name="Menu").press(" ")
    states.wait_for(state="hidden")


def test_a_page_of_the_admin_names_its_path_once_and_as_it_is_written(visitor, admin_user):
    with every_page(admin_user):
        visitor.page.goto("/admin/states/state/flights_by_carrier/change/")
        title = visitor.page.get_by_role("heading", level=1)
        assert title.locator(".crumb").all_inner_texts() == ["States", "flights_by_carrier"]

        visitor.page.set_viewport_size({"width": 390, "height": 844})
        assert title.inner_text() == "flights_by_carrier"
        assert title.evaluate("title => title.scrollWidth <= title.clientWidth")
