"""A MariaDB under load with DDL, a capture that is killed again and again, and a consumer that rebuilds every table.

While threads write to seven tables and alter them, capture is killed, its connections are cut, and the servers on both sides
are killed. Then the feed must be the binlog's history, as MariaDB's own tool reads it: no change twice, none missing, in its
order. And a consumer that knows ``headrace.simple`` alone must hold what the source holds, column by column, by JSON and by
Avro. A soak kills more often.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.simple import json_codec
from headrace.simple.message import Watermark
from headrace.simple.values import Encoding
from tests.mariadb import CAPTURE_OPTIONS, Server
from tests.proxy import Proxy
from tests.scale import chosen, scaled, sized
from tests.scenarios.captured_history import (
    MESSAGES,
    Entry,
    check_each_key,
    check_history,
    check_order,
    committed,
    read_feed,
)
from tests.scenarios.captured_load import DATABASE, Load
from tests.scenarios.captured_process import CaptureProcess
from tests.scenarios.captured_replica import Contents, IntoAvro, Replica, contents
from tests.scenarios.history import seeded
from tests.servers import Feed, ServerProcess, serving

HIDDEN = "hidden"
PROGRESS_ENTRIES_MAX = sized(100, soak=1000)
"""After so many entries, at most, the next thing happens to the capture."""

WRITE_PAUSE = sized(3, soak=1)
"""The load must not run away from a capture on a busy machine: all that it wrote is replayed twice in the end."""

STATEMENTS_LEAST = sized(10, soak=20)
"""So many statements, at least, the feed must tell of for the test to have tested what it is for."""

_LOGICAL_BITS = 18


class Scene:
    """The load, the capture, and all that can happen to them."""

    def __init__(self, folder: Path, mariadb: Server, server: ServerProcess, chance: random.Random) -> None:
        self.mariadb = mariadb
        self.server = server
        self.chance = chance
        self.load = Load(mariadb, chance.getrandbits(32), write_pause=WRITE_PAUSE)
        host, _, port = server.grpc_address.rpartition(":")
        self.proxies = {
            "source": Proxy("127.0.0.1", mariadb.port),
            "http": Proxy(*_host_and_port(server.address)),
            "grpc": Proxy(host, int(port)),
        }
        self.capture: CaptureProcess
        self._folder = folder

    def __enter__(self) -> Scene:
        for proxy in self.proxies.values():
            proxy.__enter__()
        self.capture = CaptureProcess(
            self._folder,
            self.load.database,
            self.server,
            **self.proxies,
            lines=(
                f'tables = ["{DATABASE}.*", "!{DATABASE}.{HIDDEN}"]',
                "chunk-rows = 100",
                'watermark-interval = "0.2s"',
                'watermark-idle-interval = "0.5s"',
            ),
        )
        return self

    def __exit__(self, *error: object) -> None:
        self.capture.kill()
        self.load.stop()
        for proxy in self.proxies.values():
            proxy.__exit__(None, None, None)

    def kill_capture(self) -> None:
        self.capture.kill()
        self.capture.start()

    def cut_source(self) -> None:
        self._cut("source")

    def cut_server(self) -> None:
        self._cut("http", "grpc")

    def ask_for_a_copy(self) -> None:
        """Of a table whose rows are in the feed already."""
        self.capture.wait(lambda: self.last_watermark_ms() > 0, what="the end of the snapshot")
        self.capture.command("copy", f"{DATABASE}.account")

    def _cut(self, *names: str) -> None:
        for name in names:
            self.proxies[name].cut()
        for name in names:
            self.proxies[name].resume()

    def last_watermark_ms(self) -> int:
        """The time of the feed's last WATERMARK, if it is among its last entries; else 0."""
        if (head := self.capture.head()) == 0:
            return 0
        entries = Feed(self.server, self.capture.feed).entries(max(1, head - 500), head)
        messages = [
            json.dumps(one["changes"]).encode() for one in entries if one.get("control") == "watermark"
        ]
        marks = [json_codec.decode(one) for one in messages]
        return max((one.commit_ts >> _LOGICAL_BITS for one in marks if isinstance(one, Watermark)), default=0)

    def nothing_is_copied(self) -> bool:
        """Whether no copy is under way."""
        return not json.loads(self.capture.command("status", "--json"))["copies"]

    def settle(self) -> None:
        """End the load, and wait until a WATERMARK says that all of it is in the feed, and all that was copied."""
        self.load.stop()
        self.capture.wait(self.nothing_is_copied, what="the copy that was asked for")
        ((end_ms,),) = self.mariadb.sql("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS INT)")
        self.capture.wait(lambda: self.last_watermark_ms() >= end_ms, what="a WATERMARK behind the load")
        assert self.capture.stop() == 0, self.capture.errors()[-4000:]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with (
        Server(*CAPTURE_OPTIONS) as mariadb,
        serving(tmp_path / "server", grpc=True) as server,
        Scene(tmp_path, mariadb, server, seeded()) as made,
    ):
        yield made


@pytest.fixture
def target() -> Iterator[Server]:
    with Server("--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M") as running:
        yield running


def test_a_consumer_of_simple_messages_rebuilds_every_table(scene: Scene, target: Server) -> None:
    began = time.monotonic()
    load, capture = scene.load, scene.capture
    load.make_tables()
    load.start()
    capture.start()
    for step in plan(scene):
        capture.progress(scene.chance, PROGRESS_ENTRIES_MAX)
        say(f"{step.__name__} at {capture.head()}, {time.monotonic() - began:.1f} s")
        step()
    capture.progress(scene.chance, 2 * PROGRESS_ENTRIES_MAX)
    scene.settle()
    say(f"{load.transactions} transactions, {load.statements} statements, {load.refused} refused")
    assert "Traceback" not in capture.errors()
    entries = asyncio.run(read_feed(scene.server.url, capture.feed))
    assert {one.table[1] for one in entries if one.table} >= {"account", "place", "tag", "every", "entry"}
    controls = [one.control for one in entries]
    assert "stopped" not in controls
    assert controls.count("ddl") > STATEMENTS_LEAST
    assert [one.control for one in entries if one.table == (DATABASE, "account")].count("copy-end") >= 2
    check_order(entries)
    say(f"{check_each_key(entries)} rows of {len(entries)} entries, {time.monotonic() - began:.1f} s")
    truth = committed(scene.mariadb.binlogs(), DATABASE, without=HIDDEN)
    say(f"{check_history(entries, truth)} of {len(truth)} transactions compared row by row")
    with closing(scene.mariadb.connect_as_root()) as source, closing(target.connect_as_root()) as root:
        wanted = contents(source, DATABASE)
        del wanted[HIDDEN]
        for encoding in chosen(Encoding):
            rebuild(Replica(root, DATABASE, encoding), entries, encoding)
            compare(contents(root, DATABASE), wanted)
            say(f"{encoding} rebuilt, {time.monotonic() - began:.1f} s")


def plan(scene: Scene) -> list[Callable[[], None]]:
    """What happens to the capture, in order: kills, and all else between them."""
    kills = [scene.kill_capture] * scaled(3)
    others = [
        scene.cut_source,
        scene.cut_server,
        scene.server.restart,
        scene.mariadb.restart,
        scene.ask_for_a_copy,
    ]
    early, late = kills[:2], [*kills[2:], *others]
    scene.chance.shuffle(late)
    return [*early, *late]


def rebuild(replica: Replica, entries: list[Entry], encoding: Encoding) -> None:
    """Let a consumer read the whole feed."""
    into_avro = IntoAvro()
    for entry in entries:
        if entry.control not in MESSAGES:
            continue
        assert entry.message is not None
        data = into_avro.encode(entry.message) if encoding is Encoding.AVRO else entry.value
        replica.take(entry.sequence_id, data)
    assert replica.settle() == 0, "rows lie behind the last WATERMARK"


def compare(found: Contents, wanted: Contents) -> None:
    """Two databases hold the same; a table that nobody ever put a row into need not be known."""
    for name, (columns, rows) in wanted.items():
        if name not in found:
            assert not rows, f"{name} is missing"
            continue
        found_columns, found_rows = found[name]
        assert found_columns == columns, name
        for one, other in zip(found_rows, rows, strict=False):
            assert one == other, f"{name}: {columns}"
        assert len(found_rows) == len(rows), name
    assert set(found) <= set(wanted)


def say(text: str) -> None:
    """Tell whoever looks at the test's output."""
    sys.stdout.write(text + "\n")


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
