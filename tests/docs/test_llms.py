"""llms.txt lists every page of the navigation with its first sentence."""

import yaml

from docs.llms import about, listing
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

CONFIG = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
LINES = list(listing(CONFIG["site_name"], CONFIG["nav"]))
ENTRIES = [line for line in LINES if line.startswith("- ")]


def test_every_page_that_somebody_wrote_is_listed_with_a_sentence():
    written = [line for line in ENTRIES if "](reference/" not in line]

    assert len(written) > 40
    assert [line for line in written if ".html): " not in line] == []
    assert "- [Dead letters](dead_letters.html): Input that could not be processed is kept" in str(LINES)


def test_a_sentence_is_prose_without_links_and_ends_where_it_ends(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```sh\nmake\n```\n\n| a | b |\n\nIt [links](to.md), e.g. 1.5 `times`. And more.\n")

    assert about(page) == ("A page", "It links, e.g. 1.5 `times`.")
