"""A TCP proxy before a server, which falls silent without closing anything, as a network may."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """``silence`` lets the connections on which a client has sent ``word`` carry nothing more, in either direction."""

    def __init__(self, host: str, port: int, word: bytes) -> None:
        self._target = (host, port)
        self._word = word
        self._is_silent = threading.Event()
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.marked = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        self._is_silent.set()

    def close(self) -> None:
        for one in (self._server, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                is_marked = threading.Event()
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(source, sink, is_marked), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, is_marked: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._word in data and not is_marked.is_set():
                    is_marked.set()
                    self.marked += 1
                if is_marked.is_set() and self._is_silent.is_set():
                    return
                sink.sendall(data)
        if not (is_marked.is_set() and self._is_silent.is_set()):
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)


@contextmanager
def proxy(host: str, port: int, word: bytes) -> Iterator[Proxy]:
    one = Proxy(host, port, word)
    try:
        yield one
    finally:
        one.close()
