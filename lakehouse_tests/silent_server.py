"""A server that accepts connections and never answers; and one that answers some requests as another server would."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


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


@contextmanager
def half_silent_server(endpoint: str, is_silent: Callable[[str], bool]) -> Iterator[str]:
    """The address of a server that never answers a request whose path `is_silent`; others are answered by `endpoint`."""
    there, ended = urlsplit(endpoint), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.close_connection = True
            if is_silent(self.path):
                ended.wait()
                return
            upstream = http.client.HTTPConnection(there.hostname or "", there.port)
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            content = answer.read()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)
            upstream.close()

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = forward  # noqa: N815

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
