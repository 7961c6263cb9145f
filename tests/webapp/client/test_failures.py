"""What a client does when the server refuses, breaks off, is away, or says nothing; and that its key stays secret."""

import logging
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.waiting import eventually
from tests.soak.proxy import Proxy
from tests.webapp.client.cutting_proxy import cutting_proxy
from tests.webapp.web_server import web_server
from tidegauge.client import (
    AuthenticationError,
    Client,
    DeadlineError,
    NoAnswerError,
    RateLimitedError,
    UnavailableError,
)
from tidegauge.client.calls import LONGEST_PAUSE_SECONDS, Options
from tidegauge.client.errors import OF_CODE, OF_STATUS, ApiError, Response, ServerError, error_of
from tidegauge.pipelines.embedded.data_dir import free_port
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.api.problems import PROBLEMS
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.celery import app

KEY = ("JFK", "C01")


def flights_of(client):
    return client.state("flights_by_carrier").get(KEY, measures=["flights"])


@pytest.fixture
def proxy(web, flights):
    proxy = Proxy(web.port)
    yield proxy
    proxy.close()


def address(proxy):
    return f"http://127.0.0.1:{proxy.port}"


@pytest.fixture
def in_thread():
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit


@pytest.fixture(scope="module")
def broken_process(django_db_setup, tmp_path_factory):
    """A web process without a database."""
    nowhere = f"postgresql://tidegauge@127.0.0.1:{free_port()}/none"
    with web_server(tmp_path_factory.mktemp("broken"), DATABASE_URL=nowhere) as server:
        yield server


class TestAServerThatRefuses:
    @pytest.fixture
    def slow_key(self, transactional_db):
        return create_api_key("slow", ["read"], rate=60, burst=1)[1]

    def test_a_429_is_repeated_after_the_time_that_it_names(self, web, flights, connect, slow_key, caplog):
        client = connect(web.url, slow_key, typed=False)

        with caplog.at_level(logging.INFO, logger="httpx"):
            found = [flights_of(client), flights_of(client)]

        assert found == [{"flights": 99}] * 2
        assert "429" in caplog.text

    def test_a_429_is_an_error_by_name_after_the_last_retry(self, web, flights, connect, slow_key):
        client = connect(web.url, slow_key, typed=False, retries=0)
        flights_of(client)

        with pytest.raises(RateLimitedError) as caught:
            flights_of(client)

        assert caught.value.retry_after >= 1

    def test_a_time_to_wait_beyond_the_deadline_is_not_waited_for(self, web, flights, connect):
        _, key = create_api_key("slowest", ["read"], rate=1, burst=1)
        client = connect(web.url, key, typed=False)
        flights_of(client)

        with pytest.raises(RateLimitedError) as caught:
            flights_of(client)

        assert caught.value.retry_after > 30

    def test_a_503_is_repeated_until_the_server_has_its_database(
        self, proxy, connect, broken_process, in_thread, caplog
    ):
        client = connect(address(proxy))
        with caplog.at_level(logging.INFO, logger="httpx"):
            working, proxy.target = proxy.target, broken_process.port
            found = in_thread(flights_of, client)
            eventually(lambda: "503" in caplog.text)
            proxy.target = working
            proxy.cut()

            assert found.result(60) == {"flights": 99}

    def test_a_503_is_an_error_by_name_after_the_last_retry(self, broken_process, flights, connect):
        with pytest.raises(UnavailableError) as caught:
            flights_of(connect(broken_process.url, retries=0))

        assert caught.value.retry_after == 1


class TestAConnectionThatBreaks:
    def test_amid_an_answer_is_made_again_and_the_answer_read_whole(self, web, flights, connect):
        keys = [("JFK", f"C{n:02}") for n in range(25)]
        with cutting_proxy(web.port, cut_after=900) as proxy:
            found = connect(proxy.url, typed=False).state("flights_by_carrier").get_many(keys).found

        assert (len(found), proxy.cuts) == (25, 1)

    def test_amid_a_page_leaves_out_no_entry_and_repeats_none(self, web, client, connect):
        with cutting_proxy(web.port, cut_after=2_000, times=2) as proxy:
            entries = list(connect(proxy.url, typed=False).state("flights_by_carrier").entries(page_size=20))

        assert proxy.cuts == 2
        assert len({entry.key for entry in entries}) == len(entries) == 60

    def test_every_time_is_an_error_by_name(self, web, flights, connect):
        with cutting_proxy(web.port, cut_after=100, times=99) as proxy, pytest.raises(NoAnswerError):
            connect(proxy.url, retries=2).states()

        assert proxy.cuts == 3

    def test_after_a_request_for_maintenance_requests_one_run(self, web, flights, connect):
        app.control.purge()
        _, key = create_api_key("keeper", ["read", "maintain"])
        with cutting_proxy(web.port, cut_after=10) as proxy:
            run = connect(proxy.url, key).state("totals").compact()

        assert proxy.cuts == 1
        assert [run["id"]] == list(MaintenanceRun.objects.values_list("id", flat=True))
        app.control.purge()

    def test_after_a_request_that_is_not_safe_to_repeat_is_an_error_and_the_request_is_done_once(
        self, web, flights, connect
    ):
        app.control.purge()
        _, key = create_api_key("keeper", ["read", "maintain"])
        run = connect(web.url, key).state("totals").compact()
        with cutting_proxy(web.port, cut_after=10) as proxy, pytest.raises(NoAnswerError):
            connect(proxy.url, key).cancel(run["id"])

        assert proxy.cuts == 1
        assert connect(web.url, key).run(run["id"])["status"] == "cancelled"
        app.control.purge()

    def test_before_anything_was_sent_is_made_again_for_any_request(self, proxy, connect, in_thread):
        app.control.purge()
        _, key = create_api_key("keeper", ["read", "maintain"])
        client = connect(address(proxy), key, retries=50)
        working, proxy.target = proxy.target, None

        requested = in_thread(client.state("totals").compact)
        proxy.target = working

        assert requested.result(60)["status"] == "queued"
        app.control.purge()

    def test_by_a_restart_of_the_server_is_made_again(self, web, flights, connect):
        client = connect(web.url)
        assert flights_of(client) == {"flights": 99}

        with web.stopped():
            pass

        assert flights_of(client) == {"flights": 99}


def test_a_server_that_says_nothing_is_given_up_at_the_deadline(proxy, connect):
    client = connect(address(proxy), timeout=0.3)

    with proxy.black_hole(), pytest.raises(DeadlineError, match=r"no answer within the 0.3 s of the call"):
        client.states()

    assert len(client.with_options(timeout=30.0).states()) == 3


def test_threads_share_a_client(web, flights, api_key):
    with Client(web.url, api_key, connections=3) as client, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: flights_of(client), range(40)))

    assert found == [{"flights": 99}] * 40


class TestTheKey:
    def test_is_in_no_text_log_or_exception(self, web, flights, connect, api_key, caplog):
        wrong = api_key[:-4] + "wxyz"
        caplog.set_level(logging.DEBUG)
        caplog.set_level(logging.DEBUG, logger="httpx")
        caplog.set_level(logging.DEBUG, logger="httpcore")
        with cutting_proxy(web.port, cut_after=50, times=99) as proxy:
            texts = [repr(connect(web.url)), repr(connect(web.url).state("totals"))]
            for client in (connect(web.url, wrong), connect(proxy.url, wrong, retries=1)):
                with pytest.raises((AuthenticationError, NoAnswerError)) as caught:
                    client.states()
                texts += [repr(caught.value), *traceback.format_exception(caught.value)]

        assert "HTTP Request" in caplog.text
        for secret in (api_key, wrong):
            assert secret not in "".join(texts) + caplog.text

    @pytest.mark.parametrize("key", ["tmk_abc\n", "tmk_ä", "two words"])
    def test_that_no_server_takes_is_refused_and_not_shown(self, connect, key):
        with pytest.raises(ValueError, match="are not allowed") as caught:
            connect("http://localhost", key)

        assert key not in repr(caught.value)

    def test_may_be_a_function_that_knows_the_current_one(self, web, flights, connect, api_key):
        keys = iter(["tmk_old", api_key])
        client = connect(web.url, lambda: next(keys))

        with pytest.raises(AuthenticationError):
            client.states()
        assert len(client.states()) == 3

    def test_is_by_default_that_of_the_environment(self, web, flights, connect, api_key, monkeypatch):
        monkeypatch.setenv("TIDEGAUGE_API_KEY", api_key)

        assert len(connect(web.url, None).states()) == 3

    @pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://ann:secret@localhost", ""])
    def test_goes_to_no_address_that_is_not_one(self, connect, url):
        with pytest.raises(ValueError, match="the server's url must be like") as caught:
            connect(url)

        assert "secret" not in str(caught.value)


def test_pauses_grow_are_random_and_never_shorter_than_the_server_asks():
    options = Options(first_pause=0.5)

    pauses = [[options.pause(attempt) for _ in range(50)] for attempt in range(8)]

    assert all(0 <= pause <= min(LONGEST_PAUSE_SECONDS, 0.5 * 2**n) for n, many in enumerate(pauses) for pause in many)
    assert len(set(pauses[3])) > 40
    assert all(7 <= options.pause(0, 7) <= 7.5 for _ in range(50))


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None), (None, None)]
)
def test_a_retry_after_may_be_a_time(text, seconds):
    headers = {} if text is None else {"retry-after": text}

    assert error_of(Response(503, headers, b"{}")).retry_after == seconds


def test_an_answer_that_is_no_problem_is_known_by_its_status():
    error = error_of(Response(500, {}, b"<html>proxy</html>"))

    assert isinstance(error, ServerError)
    assert (error.code, str(error)) == ("", "500 : <html>proxy</html>")


def test_the_codes_that_are_told_apart_are_codes_of_the_server():
    assert set(OF_CODE) <= set(PROBLEMS)
    assert {OF_CODE[code].__mro__[1] for code in OF_CODE} <= {ApiError, *OF_STATUS.values()}
