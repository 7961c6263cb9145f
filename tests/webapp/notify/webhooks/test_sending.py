"""One attempt: to the address that was checked, within its time, with no redirect and nothing of the environment."""

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.webapp.notify.webhooks.receiver import receiver
from tidegauge.webapp.notify.webhooks import outbox, sending, services
from tidegauge.webapp.notify.webhooks.models import Delivery
from tidegauge.webapp.notify.webhooks.outbox import Message


def message_for(webhook) -> Delivery:
    outbox.add(webhook, [Message("webhook.test", {"n": 1})])
    return webhook.deliveries.select_related("webhook").latest("id")


def test_a_message_arrives_signed(webhook, receiving):
    made = webhook()
    delivery = message_for(made)

    result = sending.attempt(delivery)

    [received] = receiving.received
    assert (result.status, result.error, result.is_delivered) == (200, "", True)
    assert received.verified(made.shown_once)["data"] == {"n": 1}
    assert (received.path, received.id) == ("/hook?a=1", delivery.message_id)
    assert received.headers["host"] == f"127.0.0.1:{receiving.port}"
    assert received.headers["content-type"] == "application/json"


def test_the_connection_is_made_to_the_address_that_was_checked(webhook, receiving, monkeypatch):
    answers = iter(["127.0.0.1"])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", (next(answers), receiving.port))])
    made = webhook(url=f"http://rebinding.example:{receiving.port}/")

    result = sending.attempt(message_for(made))  # a second look-up would end with StopIteration

    assert (result.status, receiving.received[0].headers["host"]) == (200, f"rebinding.example:{receiving.port}")


@pytest.mark.parametrize(("host", "status"), [("hook.example", 200), ("other.example", None)])
def test_the_certificate_has_to_be_that_of_the_name(webhook, monkeypatch, tmp_path, host, status):
    certificate, key = certificate_of("hook.example", tmp_path)
    at_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    at_server.load_cert_chain(certificate, key)
    monkeypatch.setattr(sending, "_tls", lambda: ssl.create_default_context(cafile=certificate))
    with receiver(at_server) as running:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("127.0.0.1", running.port))])

        result = sending.attempt(message_for(webhook(url=f"https://{host}:{running.port}/")))

    assert (result.status, len(running.received)) == (status, int(status is not None))
    assert status or "certificate" in result.error


def test_an_address_of_ipv6_is_written_as_one(webhook):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        accepted = threading.Thread(target=_answer_one, args=[server], daemon=True)
        accepted.start()

        result = sending.attempt(message_for(webhook(url=f"http://[::1]:{port}/")))
        accepted.join()

    assert (result.status, result.error) == (204, "")


def test_a_name_of_loopback_is_not_sent_to(webhook, receiving, settings):
    made = webhook(url=f"https://localhost:{receiving.port}/")
    settings.TIDEGAUGE_WEBHOOK_NETWORKS = []

    result = sending.attempt(message_for(made))

    assert "is not public" in result.error
    assert receiving.received == []


def test_a_redirect_is_not_followed(webhook, receiving):
    with receiver() as inner:
        receiving.answers.append(307)
        receiving.headers["location"] = inner.url

        result = sending.attempt(message_for(webhook()))

    assert (result.status, result.is_delivered, inner.received) == (307, False, [])
    assert "redirects are not followed" in result.error


def test_proxies_and_credentials_of_the_environment_are_not_used(webhook, receiving, monkeypatch, tmp_path):
    with receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login ann password secret\n")
        monkeypatch.setenv("NETRC", str(netrc))

        result = sending.attempt(message_for(webhook()))

    assert (result.status, proxy.received) == (200, [])
    assert "authorization" not in receiving.received[0].headers


def test_the_path_of_the_url_is_in_no_log(webhook, receiving):
    made = webhook(url=f"http://127.0.0.1:{receiving.port}/t0p-secret")
    text = StringIO()
    handler, root = logging.StreamHandler(text), logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.DEBUG)
    try:
        sending.attempt(message_for(made))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)

    assert receiving.received[0].path == "/t0p-secret"
    assert "t0p-secret" not in text.getvalue()


def test_a_silent_receiver_ends_with_the_time_for_an_attempt(webhook, receiving, settings):
    settings.TIDEGAUGE_WEBHOOK_SECONDS = 0.2
    receiving.hold.clear()

    result = sending.attempt(message_for(webhook()))

    assert (result.status, result.error) == (None, "no answer within 0.2 s")


def test_a_receiver_that_sends_a_byte_now_and_then_ends_with_it_too(webhook, settings):
    settings.TIDEGAUGE_WEBHOOK_SECONDS = 0.5
    with dripping(b"HTTP/1.1 200 OK\r\nx-header: ") as port:
        result = sending.attempt(message_for(webhook(url=f"http://127.0.0.1:{port}/")))

    assert (result.status, result.error) == (None, "no answer within 0.5 s")


def test_an_endless_body_is_not_read(webhook):
    with dripping(b"HTTP/1.1 200 OK\r\n\r\n") as port:
        result = sending.attempt(message_for(webhook(url=f"http://127.0.0.1:{port}/")))

    assert result.status == 200


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000])
def test_what_is_no_answer_is_an_error(webhook, answer):
    with dripping(answer, endless=False) as port:
        result = sending.attempt(message_for(webhook(url=f"http://127.0.0.1:{port}/")))

    assert (result.status, result.is_delivered) == (None, False)


def test_a_closed_port_is_an_error(webhook):
    with receiver() as gone:
        pass

    assert sending.attempt(message_for(webhook(url=gone.url))).error.startswith("ConnectError: ")


def test_another_secret_key_is_named(webhook, receiving, settings):
    delivery = message_for(webhook())
    settings.SECRET_KEY = "another-secret-key-0123456789abcdef"

    result = sending.attempt(delivery)

    assert "SECRET_KEY" in result.error
    assert receiving.received == []


def test_a_test_names_its_webhook(webhook, receiving):
    made = webhook()

    sending.attempt(Delivery.objects.select_related("webhook").get(pk=services.send_test(made, by="ann").pk))

    assert (receiving.received[0].event, receiving.received[0].data) == ("webhook.test", {"webhook": "hook"})


def _answer_one(server: socket.socket) -> None:
    server.settimeout(30)
    with server.accept()[0] as accepted:
        accepted.recv(65_536)
        accepted.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def certificate_of(host: str, folder: Path) -> tuple[Path, Path]:
    """Write a certificate that signs itself, and its key; return their files."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, made.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate.write_bytes(builder.sign(made, hashes.SHA256()).public_bytes(Encoding.PEM))
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, key


@contextmanager
def dripping(beginning: bytes, *, endless: bool = True) -> Iterator[int]:
    """A server that answers each connection with bytes, and then with one more now and then until it is closed."""
    server = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(65_536)
            try:
                connection.sendall(beginning)
                while endless and not ended.wait(0.02):
                    connection.sendall(b"x")
            except OSError:
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        ended.set()
        server.close()
        thread.join()
