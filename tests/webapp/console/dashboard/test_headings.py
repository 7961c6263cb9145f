"""The headings of the documentation, as the search finds them."""

import re

from tests.webapp.console.dashboard.test_search import address, search
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.webapp.console.dashboard.search.headings import Heading, headings, read

LINK = re.compile(r"\]\(([\w-]+)\.md#([\w-]+)\)")


def test_every_section_that_the_documentation_links_to_is_a_heading():
    # `make lint` checks these links against the site, so the anchors are those of MkDocs.
    pages = (REPOSITORY / "docs").glob("*.md")
    linked = {f"{name}.html#{anchor}" for page in pages for name, anchor in LINK.findall(page.read_text())}

    assert len(linked) > 20
    assert linked <= {heading.path for heading in headings()}


def test_headings_have_their_page_and_lines_of_code_are_none(tmp_path):
    (tmp_path / "api.md").write_text(
        "# The API\n## `GET /states`\n```sh\n# not this\n```\n"
        "### See [Limits](x.md#y), für alle\n## Get states\n## Get states\n"
    )

    assert list(read(tmp_path)) == [
        Heading("The API", "The API", "api.html"),
        Heading("GET /states", "The API", "api.html#get-states"),
        Heading("See Limits, für alle", "The API", "api.html#see-limits-fur-alle"),
        Heading("Get states", "The API", "api.html#get-states_1"),
        Heading("Get states", "The API", "api.html#get-states_2"),
    ]


def test_sections_are_found_where_the_site_is_known(filled, reader, settings):
    assert "Documentation" not in search(reader, "charts over time")
    settings.TIDEGAUGE_DOCS_URL = "https://docs.example/tidegauge"

    assert search(reader, "charts over")["Documentation"] == ["Charts over time"]
    assert (
        address(reader, "charts over", "Documentation")
        == "https://docs.example/tidegauge/dashboard.html#charts-over-time"
    )
