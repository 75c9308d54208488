"""Schemas where the journal is hurt, put back, dropped from, and where the server is killed again and again."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from headrace.entries.entry import Change
from headrace.errors import JournalCorrupt, SchemaNotFound
from headrace.log.files.store import FileStore
from headrace.log.log import Log
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from headrace.log.requests import Append
from headrace.log.schemas.entries import SchemaName
from headrace.log.schemas.index import SchemaIndex
from headrace.wire.entry import digest, encode_half
from tests.bench import AGENT, Bench, append, register
from tests.servers import Feed, changes, code_of, serving
from tests.waiting import wait_until

FEED = "shop"


class Parts:
    """A data folder, open: its journal and its index."""

    def __init__(self, folder: Path) -> None:
        self.store = FileStore(folder, segment_bytes=1 << 16)
        self.metadata = SqliteMetadata(folder / METADATA_NAME)
        self.bench, self.index = Bench(self.store), SchemaIndex(self.store, self.metadata)

    def close(self) -> None:
        self.index.settle()
        self.metadata.close()
        self.store.close()

    def post(self, version: int, value: bytes) -> None:
        half = encode_half(Change(value, key=f"\0schema/d/t/{version}".encode(), control="schema"))
        self.bench.send(Append(FEED, AGENT, [half], digest([half])))

    def value(self, version: int) -> bytes:
        self.index.read_up_to(self.store.end())
        return self.index.schema(FEED, SchemaName("d", "t", version)).value


def overwrite(folder: Path, old: bytes, new: bytes) -> None:
    """Replace bytes that stand once in the journal."""
    (path,) = [path for path in folder.glob("journal/*.seg") if old in path.read_bytes()]
    data = path.read_bytes()
    assert data.count(old) == 1
    with path.open("r+b") as file:
        file.seek(data.index(old))
        file.write(new)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_may_stand_in_a_damaged_frame_is_never_said_not_to_be_there(
    tmp_path: Path, restarted: bool
) -> None:
    parts = Parts(tmp_path)
    parts.bench.register(FEED)
    for version in (1, 2, 3):
        parts.post(version, b"value-%d" % version)
    overwrite(tmp_path, b"value-2", b"VALUE-2")
    assert [parts.value(version) for version in (1, 3)] == [b"value-1", b"value-3"], "others are answered"
    for version in (2, 4):
        with pytest.raises(JournalCorrupt, match="0x"):
            parts.value(version)
    assert parts.index.position == parts.store.end(), "retention goes by its own rules"
    if restarted:
        parts.close()
        parts = Parts(tmp_path)
    overwrite(tmp_path, b"VALUE-2", b"value-2")
    assert parts.value(2) == b"value-2"
    with pytest.raises(SchemaNotFound):
        parts.value(4)
    parts.close()


async def test_what_this_process_has_written_is_not_read_back(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await log.start()
    await log.register(register(FEED))
    log.schemas.read_up_to(log.store.end())
    await log.append(append(FEED, "row-1"))
    overwrite(tmp_path, b"row-1", b"ROW-1")
    log.schemas.read_up_to(log.store.end())
    with pytest.raises(SchemaNotFound):  # were it read back, nobody could say so
        log.schemas.schema(FEED, SchemaName("d", "t", 1))
    await log.close()


@pytest.mark.parametrize("grown", [0, 1, 9])
def test_schemas_of_a_history_that_was_taken_back_are_gone(tmp_path: Path, grown: int) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    with closing(Parts(folder)) as parts:
        parts.bench.register(FEED)
        parts.post(1, b"one")
    shutil.copytree(folder, copy)
    with closing(Parts(folder)) as parts:
        parts.post(2, b"of the lost history")
        parts.post(3, b"of the lost history too")
        assert parts.value(3) == b"of the lost history too"
    shutil.rmtree(folder / "journal")
    shutil.copytree(copy / "journal", folder / "journal")
    shutil.copy(copy / "mark", folder / "mark")
    with closing(Parts(folder)) as parts:
        parts.bench.clock.ms += 60_000
        for number in range(grown):
            parts.bench.append(FEED, f"row {number}" * 10)
        parts.post(3, b"three")
        assert parts.value(1) == b"one"
        assert parts.value(3) == b"three"
        with pytest.raises(SchemaNotFound):
            parts.value(2)


def test_schemas_are_answered_through_kills_and_drops(tmp_path: Path) -> None:
    args = ["--retention", "200ms", "--retention-every", "50ms", "--segment-size", "4k"]
    rng = random.Random(11)
    with serving(tmp_path, args=args) as server:
        feed = Feed(server, "vm::a")
        feed.register()
        posted: dict[int, dict[str, object]] = {}

        def oldest() -> int:
            return int(server.http.get(feed.path).json()["oldest-sequence-id"])

        def has_dropped(before: int) -> bool:
            return oldest() > before

        for turn in range(5):
            before = oldest()
            for _ in range(rng.randint(3, 9)):
                version = len(posted) + 1
                posted[version] = {"columns": [f"c{version}"] * 40, "turn": turn}
                entry = {"key": f"\0schema/main/t/{version}", "control": "schema", "changes": posted[version]}
                rows = [{"changes": changes(number)} for number in range(rng.randint(0, 9))]
                assert feed.post(*rows, entry).status_code == 200
            if rng.random() < 0.6:
                wait_until(partial(has_dropped, before), what="a drop")
            server.restart()
        wait_until(partial(has_dropped, 60), what="the first schemas to be dropped")
        for version, value in posted.items():
            answer = server.http.get(f"{feed.path}/schemas/main/t/{version}")
            assert (answer.status_code, answer.json()) == (200, value)
        missing = server.http.get(f"{feed.path}/schemas/main/t/{len(posted) + 1}")
        assert (missing.status_code, code_of(missing)) == (404, "schema-not-found")
        assert "Traceback" not in server.errors()
