"""Schemas as a log's index has them: the last one in front of a row, and the one of a version."""

from __future__ import annotations

from pathlib import Path

from headrace.entries.entry import Change
from headrace.log.log import Log
from headrace.log.requests import Append
from headrace.server.pg.output.schemas import IndexedSchemas
from headrace.wire.entry import digest, encode_half
from tests.bench import AGENT, register

FEED = "shop"


def put(key: str, value: bytes = b"{}", control: str = "") -> Change:
    return Change(value, key=key.encode(), control=control)


async def test_the_last_schema_in_front_of_a_row(tmp_path: Path) -> None:
    """Sequence ids 1 to 6: rows between the versions 1, 2 and 3 of one table, and another table's schema."""
    log = Log.open(tmp_path)
    await log.start()
    await log.register(register(FEED))
    entries = [
        put("\0schema/public/t/1", b"one", "schema"),
        put("row"),
        put("\0schema/public/t/2", b"two", "schema"),
        put("\0schema/public/u/1", b"other", "schema"),
        put("row"),
        put("\0schema/public/t/3", b"three", "schema"),
    ]
    halves = [encode_half(entry) for entry in entries]
    await log.append(Append(FEED, AGENT, halves, digest(halves)))
    schemas = IndexedSchemas(log)
    found = [schemas.newest(FEED, "public", "t", below) for below in range(1, 8)]
    assert found == [None, b"one", b"one", b"two", b"two", b"two", b"three"]
    assert schemas.newest(FEED, "public", "u", 4) is None
    assert schemas.newest(FEED, "public", "u", 5) == b"other"
    assert schemas.newest(FEED, "public", "nothing", 9) is None
    assert [schemas.version(FEED, "public", "t", one) for one in (2, 9)] == [b"two", None]
    await log.close()
