"""A server that accepts connections and never answers; and one that answers some requests as another server would."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# Status, headers and content.
type_of_answer = tuple[int, list[tuple[str, str]], bytes]
# The codes in S3's error documents.
_CODES = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 403: "AccessDenied"}


class SilentServer:
    """The address of the server, and how many connections it has accepted."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.connection_count = 0


@contextmanager
def silent_server() -> Iterator[SilentServer]:
    """It listens inside the `with`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = SilentServer(listener.getsockname()[1])
        accepted: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):  # the listener is closed at the end
                while True:
                    accepted.append(listener.accept()[0])
                    server.connection_count += 1

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in accepted:
            connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How a request fails: with this HTTP status, or by silence.

    If it `reaches` the server, the server does what it was asked, and only its answer is lost.
    """

    status: int | None = None
    reaches: bool = False

    def answer(self) -> type_of_answer | None:
        """S3's answer with this status; `None` is silence."""
        if self.status is None:
            return None
        code = _CODES.get(self.status, "InternalError")
        content = f"<Error><Code>{code}</Code><Message>planted</Message></Error>".encode()
        return self.status, [("Content-Length", str(len(content)))], content


# How a conditional request can fail: done or not, with or without an answer, rightly or wrongly.
COMMIT_FAULTS = (
    Fault(status=500),
    Fault(status=500, reaches=True),
    Fault(reaches=True),
    Fault(status=409),
    Fault(status=412),
    Fault(status=412, reaches=True),
)


@contextmanager
def half_silent_server(endpoint: str, is_silent: Callable[[str], bool]) -> Iterator[str]:
    """The address of a server that never answers a request whose path `is_silent`; others are answered by `endpoint`."""
    silence = Fault()
    with faulty_server(
        endpoint, lambda _method, path: silence if is_silent(path) else None
    ) as address:
        yield address


class _QuietHandler(BaseHTTPRequestHandler):
    """Prints nothing, not even where a client was killed before it took its answer."""

    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None: ...


class _Server(ThreadingHTTPServer):
    """Holds as many waiting connections as a client opens at once: deltalake reads all commits of a log together.

    A connection that finds the queue full is tried again after 1, 2, 4, … seconds.
    """

    request_queue_size = 1_024


def _answer_of(endpoint: str, request: BaseHTTPRequestHandler, body: bytes) -> type_of_answer:
    """What the server at `endpoint` answers to this request."""
    there = urlsplit(endpoint)
    upstream = http.client.HTTPConnection(there.hostname or "", there.port)
    left_out = ("expect", "connection")
    headers = {
        name: value for name, value in request.headers.items() if name.lower() not in left_out
    }
    # MiniStack never closes a connection by itself that its client has left.
    headers["Connection"] = "close"
    upstream.request(request.command, request.path, body, headers)
    answer = upstream.getresponse()
    content = answer.read()
    upstream.close()
    return answer.status, answer.getheaders(), content


@contextmanager
def faulty_server(
    endpoint: str,
    fault_of: Callable[[str, str], Fault | None],
    *,
    in_turn: AbstractContextManager[object] = nullcontext(),  # noqa: B008
) -> Iterator[str]:
    """The address of a server that answers as `endpoint` does, except where a method and path have a fault.

    Each PUT is forwarded `in_turn`, since moto checks a condition and writes then.
    """
    ended = threading.Event()
    # The real server's queue of waiting connections is shorter than `_Server`'s.
    few_at_once = threading.Semaphore(32)

    class Handler(_QuietHandler):
        def forward(self) -> None:
            self.close_connection = True
            if self.headers.get("Expect") == "100-continue":
                self.send_response_only(100)
                self.end_headers()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = fault_of(self.command, self.path)
            answer = None if fault and not fault.reaches else self.ask(body)
            if fault:
                answer = fault.answer()
            if answer is None:
                if fault and not fault.reaches:
                    ended.wait()
                return  # the connection ends without an answer
            status, headers, content = answer
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def ask(self, body: bytes) -> type_of_answer:
            with in_turn if self.command == "PUT" else nullcontext(), few_at_once:
                return _answer_of(endpoint, self, body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = forward  # noqa: N815

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
