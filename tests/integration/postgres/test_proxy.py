"""The tests' proxy does to connections what a network can do to them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.proxy import Proxy

BLOCK_S = 0.2
"""How long a reader waits for what must not come."""


class Echo(threading.Thread):
    """A server that answers every message with itself, and keeps what it got."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.got: list[bytes] = []

    def run(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(65_536):
                    self.got.append(data)
                    client.sendall(data)
            except OSError:
                return


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    server.start()
    yield server
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
    server.join(30)


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as running:
        yield running


def connected(proxy: Proxy) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", proxy.port), timeout=30))


def ask(client: socket.socket, message: bytes) -> bytes:
    client.sendall(message)
    found = b""
    while len(found) < len(message):
        found += client.recv(65_536)
    return found


def test_everything_passes(proxy: Proxy) -> None:
    large = bytes(range(256)) * 20_000
    with connected(proxy) as one, connected(proxy) as other:
        assert ask(one, b"one") == b"one"
        sender = threading.Thread(target=other.sendall, args=(large,))
        sender.start()
        found = b""
        while len(found) < len(large):
            found += other.recv(65_536)
        sender.join()
        assert found == large
        assert (proxy.connections, proxy.accepted) == (2, 2)
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""


def test_cut_resets_and_refuses_until_resumed(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert ask(client, b"before") == b"before"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)
    proxy.cut()
    proxy.resume()
    with connected(proxy) as client:
        assert ask(client, b"after") == b"after"


def test_reset_takes_new_connections(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert ask(client, b"a") == b"a"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connected(proxy) as client:
        assert ask(client, b"b") == b"b"


def test_frozen_connections_stay_open_and_lose_nothing(proxy: Proxy, echo: Echo) -> None:
    with connected(proxy) as old:
        assert ask(old, b"a") == b"a"
        proxy.freeze()
        with connected(proxy) as new:
            for client, message in ((old, b"old"), (new, b"new")):
                client.sendall(message)
                client.settimeout(BLOCK_S)
                with pytest.raises(TimeoutError):
                    client.recv(1)
            assert echo.got == [b"a"]
            proxy.thaw()
            for client, message in ((old, b"old"), (new, b"new")):
                client.settimeout(30)
                assert client.recv(16) == message


def test_cut_of_a_frozen_proxy(proxy: Proxy) -> None:
    with connected(proxy) as client:
        assert ask(client, b"a") == b"a"
        proxy.freeze()
        client.sendall(b"b")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


@pytest.mark.parametrize("delivered", [False, True], ids=["lost", "delivered"])
def test_cut_at_a_message(proxy: Proxy, echo: Echo, delivered: bool) -> None:
    with connected(proxy) as client:
        assert ask(client, b"BEGIN") == b"BEGIN"
        proxy.cut_at(b"COMMIT", delivered=delivered)
        assert ask(client, b"UPDATE") == b"UPDATE"
        sprung = [proxy.sprung]
        with pytest.raises(ConnectionResetError):
            ask(client, b"COMMIT")
    sprung.append(proxy.sprung)
    assert sprung == [False, True]
    assert echo.got == [b"BEGIN", b"UPDATE", *([b"COMMIT"] if delivered else [])]
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)
    proxy.resume()
    with connected(proxy) as client:
        assert ask(client, b"COMMIT") == b"COMMIT"


def test_target_that_is_not_there_resets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        Proxy("127.0.0.1", port) as proxy,
        pytest.raises(ConnectionResetError),  # at once, or at the first read
        connected(proxy) as client,
    ):
        client.recv(1)
