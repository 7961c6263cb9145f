"""A mail server on loopback: it speaks SMTP, and keeps what it gets; or it accepts connections and says nothing."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class MailServer:
    """refusal: the answer to each recipient, such as `550 no such mailbox`; empty: all are accepted."""

    port: int = 0
    received: list[EmailMessage] = field(default_factory=list)
    refusal: str = ""
    is_silent: bool = False
    over: threading.Event = field(default_factory=threading.Event)


class _Conversation(socketserver.StreamRequestHandler):
    server: "_Server"

    def handle(self) -> None:
        known = self.server.known
        if known.is_silent:
            known.over.wait()
            return
        self._say("220 ready")
        while line := self.rfile.readline():
            match line.split()[0].upper():
                case b"DATA":
                    self._say("354 go on")
                    known.received.append(self._message())
                    self._say("250 kept")
                case b"RCPT":
                    self._say(known.refusal or "250 ok")
                case b"QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 ok")

    def _message(self) -> EmailMessage:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return message_from_bytes(b"".join(lines), policy=policy.default)  # type: ignore[return-value]

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, known: MailServer) -> None:
        self.known = known
        super().__init__(("127.0.0.1", 0), _Conversation)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    known = MailServer()
    with _Server(known) as server:
        known.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield known
        known.over.set()
        server.shutdown()
        thread.join()
