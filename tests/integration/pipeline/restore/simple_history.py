"""A feed of the Simple Protocol beside a plain one, with the entry keys that a test wants, and its rows at every entry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.simple import json_codec
from headrace.simple.message import Dml
from tests.integration.pipeline.restore.history import MS, ORDERS, VM, History, put
from tests.unit.pipeline.tables.simple.history import INT, WORD, Feed, schema_of

ITEMS = schema_of({"id": INT, "word": WORD}, version=1, name=("shop", "items"))
SOURCE_MS = 1_790_000_000_000
"""Source time of the first row, in UTC milliseconds; each later one is a second later."""
Keyed = Callable[[int, Dml], bytes]
"""(sequence id, message) -> the entry's key."""


def own_key(sequence_id: int, message: Dml) -> bytes:
    """The key that capture gives: database, table, handle key."""
    row: Any = message.data or message.old
    return json.dumps([message.database, message.table, row["id"]], separators=(",", ":")).encode()


class SimpleHistory(History):
    """Rows of one table, one an append, a row of a plain feed behind each. ``places``: the LSN of each row."""

    def __init__(self, keyed: Keyed = own_key) -> None:
        super().__init__()
        self._keyed = keyed
        self._feed = Feed()
        self._words: dict[int, str] = {}
        self.places: list[Lsn] = []
        self.ends: list[Lsn] = []
        self.commit_times: list[int] = []
        self.rows: list[dict[int, str]] = []
        self._feed.schema(ITEMS)
        self._put()

    def row(self, number: int, word: str | None) -> None:
        """Insert, update or (None) delete the row ``number``."""
        before = self._words.get(number)
        data = None if word is None else {"id": number, "word": word}
        self._feed.row(ITEMS, data, None if before is None else {"id": number, "word": before})
        self._words = {one: text for one, text in self._words.items() if one != number}
        if word is not None:
            self._words[number] = word
        self.rows.append(self._words)
        self.commit_times.append(self._feed.commit_ts)
        self.places.append(self._put())
        self.ends.append(self.append(VM, put("rows", len(self.rows)), ts=len(self.appends) * MS).lsns[-1])

    def _put(self) -> Lsn:
        change: Change = self._feed.entries[-1].change
        if not change.control:
            message = json_codec.decode(change.value)
            assert isinstance(message, Dml)
            key = self._keyed(len(self._feed.entries), message)
            ms = SOURCE_MS + 1000 * len(self.places)
            change = replace(change, key=key, source_time_ms=ms)
        else:
            change = replace(change, source_time_ms=0)
        return self.append(ORDERS, change, ts=len(self.appends) * MS + 1).lsns[-1]


def small_shop(keyed: Keyed = own_key) -> SimpleHistory:
    """Six changes of three rows."""
    made = SimpleHistory(keyed)
    for number, word in ((1, "a"), (2, "b"), (1, "c"), (2, None), (3, "d"), (3, "e")):
        made.row(number, word)
    return made
