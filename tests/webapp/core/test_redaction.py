import pytest

from webapp.core.logs import redacted


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("key tmk_0123abcd_aB-_9xyz was used", "key tmk_0123abcd_*** was used"),
        ("redis://:pass@host:6379/0", "redis://:***@host:6379/0"),
        ("postgresql://me:p@ss:w@host/db", "postgresql://me:***@host/db"),
        ('{"url":"amqp://me:pass@host","x":1}', '{"url":"amqp://me:***@host","x":1}'),
        ("host=db password=pass dbname=x", "host=db password=*** dbname=x"),
        ("{'password': 'pass', 'user': 'me'}", "{'password': '***', 'user': 'me'}"),
        ("see https://docs.example.org:8000/a?b=c@d", "see https://docs.example.org:8000/a?b=c@d"),
        ("tmk_short and nothing else", "tmk_short and nothing else"),
    ],
)
def test_secrets_go_and_the_rest_stays(line, safe):
    assert redacted(line) == safe
