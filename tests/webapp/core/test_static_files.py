import re

import pytest

from webapp.core.static_files import CollectedOrNotStorage


@pytest.fixture
def storage(tmp_path):
    (tmp_path / "page.css").write_text("body { color: navy }")
    return CollectedOrNotStorage(location=tmp_path, base_url="/static/")


def test_addresses_are_plain_until_files_are_collected(storage):
    assert storage.url("page.css") == "/static/page.css"


def test_addresses_of_collected_files_change_with_their_content(storage, tmp_path):
    list(storage.post_process({"page.css": (storage, "page.css")}))

    collected = CollectedOrNotStorage(location=tmp_path, base_url="/static/")
    assert re.fullmatch(r"/static/page\.[0-9a-f]{12}\.css", collected.url("page.css"))
