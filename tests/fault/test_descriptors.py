"""A process whose file descriptors are used up refuses what it can't do, loses nothing, and goes on once some are free."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from headrace.client.tls import NO_TLS
from headrace.runtime import descriptors
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until

SPARE = 20


def open_files(server: ServerProcess) -> int:
    """How many descriptors the process has."""
    return sum(1 for _ in Path(f"/proc/{server.pid}/fd").iterdir())


def test_connections_of_strangers_do_not_stop_the_writer(tmp_path: Path) -> None:
    """A segment can't be begun while they hold every descriptor; as soon as they are gone it is."""
    args = ["--segment-size", "64k"]
    with serving(tmp_path, args=args, grpc=True) as server, ExitStack() as strangers:
        feed = Feed(server, "test::feed")
        assert feed.register().status_code == 200
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_files(server) + SPARE,) * 2)
        host, port = server.grpc_address.split(":")
        for _ in range(4 * SPARE):
            strangers.enter_context(socket.create_connection((host, int(port))))
        wait_until(lambda: open_files(server) >= resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0])
        stored: list[int] = []
        refused: set[str] = set()

        def post(number: int) -> bool:
            answer = feed.post(
                {"changes": changes(number) | {"ballast": "x" * 20_000}, "expected-offset": len(stored) + 1}
            )
            if answer.status_code == 200:
                stored.append(number)
                return True
            refused.add(code_of(answer))
            return False

        for number in range(20):
            post(number)
        assert refused == {"store-unavailable"}, "a new segment could not be begun"
        strangers.close()
        wait_until(lambda: post(1000), what="an append to be taken again")
        for number in range(20, 40):
            assert post(number)
        assert server.http.get("/readyz").status_code == 200
        assert [entry["changes"]["number"] for entry in feed.entries(limit=1000)] == stored
        server.kill()
        server.start()
        assert [entry["changes"]["number"] for entry in feed.entries(limit=1000)] == stored


def test_connections_that_say_nothing_give_way(tmp_path: Path) -> None:
    """Whoever asks for something is answered, however many hold an idle connection; and the store has descriptors left."""
    server = ServerProcess(tmp_path, args=["--segment-size", "64k"])
    try:
        server.program = ("prlimit", "--nofile=200", *ServerProcess.program)
        server.start()
        feed = Feed(server, "test::feed")
        assert feed.register().status_code == 200
        host, port = server.address.split(":")
        with ExitStack() as strangers:
            for _ in range(400):
                strangers.enter_context(socket.create_connection((host, int(port))))
            for number in range(30):
                fresh = httpx.post(
                    f"{server.url}{feed.path}/entries",
                    json={
                        "entries": [
                            {"agent-id": feed.agent, "changes": {"n": number, "ballast": "x" * 20_000}}
                        ]
                    },
                    trust_env=False,
                    timeout=60,
                    verify=NO_TLS,
                )
                assert fresh.status_code == 200, fresh.text
            assert open_files(server) < 200
    finally:
        server.kill()


def test_the_limit_is_raised_to_what_the_process_may_have(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, descriptors.WANTED_MAX) if hard != resource.RLIM_INFINITY else descriptors.WANTED_MAX
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, wanted), hard))
    try:
        with serving(tmp_path) as server:
            assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0] == wanted
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("limit", "most"), [(1 << 20, (1 << 20) - 256), (1024, 768), (200, 150), (1, 1)])
def test_the_store_has_descriptors_of_its_own(limit: int, most: int) -> None:
    assert descriptors.connections_max(limit) == most
