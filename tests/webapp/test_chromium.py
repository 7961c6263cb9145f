from django.db import connection

from tests.webapp.chromium import IN_A_BROWSER, chromium

pytestmark = IN_A_BROWSER


def test_a_connection_opened_beside_a_browser_is_closed_with_it(transactional_db):
    with chromium():
        connection.ensure_connection()
        beside = connection.connection

    assert beside.closed
