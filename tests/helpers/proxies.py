"""A TCP proxy before a server, which falls silent without closing anything, as a network may."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Link:
    """A connection through the proxy."""

    def __init__(self) -> None:
        self.is_marked = False  # a client has sent the word
        self.is_dead = False


class Proxy:
    """``silence`` lets the connections on which a client has sent ``word`` carry nothing more, in either direction.

    ``take_over`` ends that for new connections, as another server does in a fail-over; the silent ones stay so.
    """

    def __init__(self, host: str, port: int, word: bytes) -> None:
        self._target = (host, port)
        self._word = word
        self._is_silent = threading.Event()
        self._sockets: list[socket.socket] = []
        self._links: list[Link] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.marked = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        self._is_silent.set()

    def take_over(self) -> None:
        for link in self._links:
            link.is_dead = link.is_marked
        self._is_silent.clear()

    def lead_to(self, port: int) -> None:
        """Carry new connections to another server; those that are open stay where they are."""
        self._target = (self._target[0], port)

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
                link = Link()
                self._links.append(link)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(source, sink, link), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, link: Link) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._word in data and not link.is_marked:
                    link.is_marked = True
                    self.marked += 1
                if self._is_cut(link):
                    return
                sink.sendall(data)
        if not self._is_cut(link):
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def _is_cut(self, link: Link) -> bool:
        link.is_dead |= link.is_marked and self._is_silent.is_set()
        return link.is_dead


@contextmanager
def proxy(host: str, port: int, word: bytes) -> Iterator[Proxy]:
    one = Proxy(host, port, word)
    try:
        yield one
    finally:
        one.close()
