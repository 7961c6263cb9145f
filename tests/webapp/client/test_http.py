"""How a client uses HTTP: answers that are none of Tidegauge's, TLS, proxies, connections, time limits."""

import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

import tidegauge
from tests.webapp.client.both_clients import BOTH
from tests.webapp.client.certificate import write_certificate
from tests.webapp.client.scripted_server import BROKEN_GZIP, STATES, answer, scripted_server
from tidegauge import client as public
from tidegauge.client import (
    Client,
    ClientError,
    DeadlineError,
    InvalidAnswerError,
    InvalidArgumentError,
    NoAnswerError,
    RateLimitedError,
    UnavailableError,
)

KEY = "tmk_of_nobody"
PROXY_PAGE = answer(b"<html>log in</html>", Content_Type="text/html")
EVENT_STREAM = answer(b"", Content_Type="text/event-stream")


@pytest.fixture(params=BOTH, ids=["sync", "async"])
def connect(request):
    """Makes a client of an address, sync or async."""
    with ExitStack() as stack:

        def connect(url, **options):
            client = request.param(url, KEY, **options)
            stack.callback(client.close)
            return client

        yield connect


class TestAnAnswerThatIsNoneOfTidegauges:
    def test_broken_compression_is_an_error_by_name(self, connect):
        with scripted_server(BROKEN_GZIP) as server, pytest.raises(InvalidAnswerError, match="decompress"):
            connect(server.url, retries=1).states()

        assert len(server.requests) == 2

    def test_broken_compression_may_pass(self, connect):
        with scripted_server(BROKEN_GZIP, STATES) as server:
            assert connect(server.url).states() == []

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            (PROXY_PAGE, "GET /api/v1/states: the answer has the type 'text/html', not 'application/json'"),
            (answer(b"{"), "the answer is not JSON: Expecting property name"),
            (answer(b"\xff"), "the answer is not JSON: 'utf-8' codec"),
            (answer(b"", "204 No Content"), "the answer is not JSON"),
        ],
    )
    def test_another_document_is_an_error_by_name(self, connect, given, told):
        with scripted_server(given) as server, pytest.raises(InvalidAnswerError) as caught:
            connect(server.url).states()

        assert told in str(caught.value)
        assert len(server.requests) == 1

    def test_a_redirect_is_not_followed_and_names_its_target(self, connect):
        target = "https://tidegauge.example/api/v1/states?secret=x"
        moved = answer(b"", "301 Moved Permanently", Location=target)
        with scripted_server(moved) as server, pytest.raises(InvalidAnswerError) as caught:
            connect(server.url).states()

        assert "redirect to 'https://tidegauge.example/api/v1/states', which is not followed" in str(caught.value)
        assert len(server.requests) == 1

    def test_a_page_in_place_of_an_export_is_an_error_and_no_file(self, connect, tmp_path):
        with scripted_server(PROXY_PAGE) as server, pytest.raises(InvalidAnswerError, match="'text/csv'"):
            connect(server.url).state("totals").export_to(tmp_path / "totals.csv", "csv")

        assert list(tmp_path.iterdir()) == []

    def test_a_page_in_place_of_a_stream_is_an_error(self, connect):
        with scripted_server(PROXY_PAGE) as server, pytest.raises(InvalidAnswerError, match="'text/event-stream'"):
            next(connect(server.url).events())

    def test_a_compressed_stream_that_is_broken_is_connected_again(self, connect):
        broken = answer(b"\xff" * 20, Content_Type="text/event-stream", Content_Encoding="gzip")
        refused = answer(b'{"code": "x"}', "403 Forbidden")
        with scripted_server(broken, refused) as server, pytest.raises(public.ForbiddenError):
            next(connect(server.url).events())

        assert len(server.requests) == 2


class TestAnArgumentThatCannotBeSent:
    def test_is_an_error_by_name_if_it_is_longer_than_an_address(self, connect):
        with scripted_server(EVENT_STREAM) as server:
            client = connect(server.url, typed=False)
            with pytest.raises(
                InvalidArgumentError, match=r"GET /events/states/a: URL component .* too long; send fewer keys"
            ):
                next(client.watch("a", keys=["x" * 70_000]))
            with pytest.raises(InvalidArgumentError, match="send fewer keys or conditions"):
                next(client.state("a").entries(where=["x=" + "x" * 70_000]))

        assert server.requests == []

    @pytest.mark.parametrize("url", ["http://[::1", "http://localhost:99999", "http://local\nhost"])
    def test_is_an_error_by_name_if_it_is_a_broken_address(self, connect, url):
        with pytest.raises(InvalidArgumentError, match="the server's url must be like"):
            connect(url)


class TestTls:
    @pytest.fixture
    def certificate(self, tmp_path):
        return write_certificate(tmp_path)

    @pytest.fixture
    def server(self, certificate):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
        with scripted_server(STATES, tls=tls) as server:
            yield server

    def test_a_server_of_an_unknown_authority_is_refused_by_name(self, connect, server):
        with pytest.raises(NoAnswerError, match="CERTIFICATE_VERIFY_FAILED"):
            connect(server.url, retries=0).states()

    def test_an_authority_may_be_given(self, connect, server, certificate):
        trusting = ssl.create_default_context(cafile=str(certificate[0]))

        assert connect(server.url, verify=trusting).states() == []


class TestProxies:
    def test_that_of_the_environment_is_used(self, connect, monkeypatch):
        with scripted_server(STATES) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            assert connect("http://tidegauge.invalid").states() == []

        assert proxy.requests[0].startswith(b"GET http://tidegauge.invalid/api/v1/states HTTP/1.1\r\n")

    def test_not_for_the_addresses_that_it_excludes(self, connect, monkeypatch):
        with scripted_server(STATES) as server, scripted_server(STATES) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            connect(server.url).states()

        assert (len(server.requests), proxy.requests) == (1, [])

    def test_one_that_is_given_is_used(self, connect):
        with scripted_server(STATES) as proxy:
            connect("http://tidegauge.invalid", proxy=proxy.url).states()

        assert len(proxy.requests) == 1

    def test_one_that_refuses_is_an_error_by_name(self, connect):
        refused = answer(b"", "407 Proxy Authentication Required")
        with scripted_server(refused) as proxy, pytest.raises(NoAnswerError, match="ProxyError: 407"):
            connect("https://tidegauge.invalid", proxy=proxy.url, retries=0).states()


class TestConnections:
    def test_are_not_more_than_allowed(self):
        with (
            scripted_server(STATES) as server,
            Client(server.url, KEY, connections=3) as client,
            ThreadPoolExecutor(8) as threads,
        ):
            answers = list(threads.map(lambda _: client.states(), range(200)))

        assert answers == [[]] * 200
        assert 1 <= server.most_at_once <= 3


def test_a_request_names_the_client_and_its_version(connect):
    with scripted_server(STATES) as server:
        connect(server.url).states()

    assert f"user-agent: tidegauge-client/{tidegauge.__version__}\r\n" in server.requests[0].decode().lower() + "\r\n"


class TestATimeToRetryAt:
    """`Retry-After` as a time."""

    def busy(self, seconds):
        at = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
        return answer(b"{}", "503 Service Unavailable", Retry_After=at)

    def test_that_has_come_is_no_reason_to_wait(self, connect):
        with scripted_server(self.busy(-60), STATES) as server:
            assert connect(server.url).states() == []

        assert len(server.requests) == 2

    def test_beyond_the_deadline_is_not_waited_for(self, connect):
        with scripted_server(self.busy(300)) as server, pytest.raises(UnavailableError) as caught:
            connect(server.url).states()

        assert 200 < caught.value.retry_after <= 300
        assert len(server.requests) == 1


class TestTheTimeLimit:
    def test_holds_for_all_attempts_together(self, connect):
        busy = answer(b"{}", "503 Service Unavailable")
        with scripted_server(busy) as server, pytest.raises((UnavailableError, DeadlineError)):
            connect(server.url, timeout=0.5, retries=1_000).states()

        assert len(server.requests) < 100

    def test_ends_an_answer_that_does_not_end(self, connect):
        with scripted_server(STATES[:-1]) as server, pytest.raises(DeadlineError, match=r"within the 0\.3 s"):
            connect(server.url, timeout=0.3).states()


def test_what_is_not_safe_is_not_repeated_after_a_refusal_that_may_come_late(connect):
    with scripted_server(answer(b"{}", "503 Service Unavailable")) as server, pytest.raises(UnavailableError):
        connect(server.url).cancel(7)

    assert len(server.requests) == 1


def test_what_is_not_safe_is_repeated_after_a_429(connect):
    limited = answer(b"{}", "429 Too Many Requests", Retry_After="0")
    with scripted_server(limited) as server, pytest.raises(RateLimitedError):
        connect(server.url, retries=2).cancel(7)

    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(httpx).values() if isinstance(each, type) and issubclass(each, httpx.RequestError)],
)
def test_every_failure_of_a_request_is_the_clients_own(connect, monkeypatch, kind):
    """Some of them cannot be brought about by a server."""
    with scripted_server(STATES) as server:
        client = connect(server.url, retries=0)

        def fail(*_, **__):
            raise kind("why")

        monkeypatch.setattr(httpx.Request, "__init__", fail)
        with pytest.raises(ClientError, match="why"):
            client.states()
