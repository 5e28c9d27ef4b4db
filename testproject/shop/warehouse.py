"""The other end of the webhook: a warehouse that is out of breath at first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread


def failures_before(order_id: int) -> int:
    """Return how many calls for an order are turned away: one or two."""
    return 1 + order_id % 2


class Warehouse:
    """Turn away the first calls for every order, then accept it."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.accepted: Counter[int] = Counter()
        self._lock = Lock()

    def receive(self, body: bytes) -> HTTPStatus:
        """Return the answer to one call."""
        try:
            order_id = int(json.loads(body)["order"])
        except (ValueError, KeyError, TypeError):
            return HTTPStatus.BAD_REQUEST
        with self._lock:
            self.calls[order_id] += 1
            if self.calls[order_id] <= failures_before(order_id):
                return HTTPStatus.SERVICE_UNAVAILABLE
            self.accepted[order_id] += 1
            return HTTPStatus.OK


@contextmanager
def serve(warehouse: Warehouse) -> Iterator[str]:
    """Serve a warehouse on a free loopback port, and give its address."""

    class Endpoint(BaseHTTPRequestHandler):
        """Hand each POST to the warehouse."""

        def do_POST(self) -> None:
            """Answer with a status and nothing else."""
            status = warehouse.receive(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent: the worker's lines tell the same."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
