"""A server of fixed answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def server(
    answers: Mapping[str, tuple[int, object]], port: int = 0
) -> Iterator[tuple[str, list[Any]]]:
    """Serve fixed answers by path, without its query: bytes, or a document as JSON.

    A redirect has its address as its answer. Yield the address, and the requests in their order.
    """
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked.append((self.path, body, self.headers.get("Authorization")))
            code, answer = answers.get(self.path.partition("?")[0], (404, b""))
            text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(code)
            if 300 <= code < 400:
                self.send_header("Location", str(answer))
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _answer

        def log_message(self, *_: Any) -> None:
            pass

    found = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(
        target=found.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_port}", asked
    finally:
        found.shutdown()
        found.server_close()
