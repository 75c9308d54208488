"""What a source committed, as MariaDB's own tool reads it from the binlog, and what a feed says: one history.

An UPDATE counts as a row taken away and one put, in both: a captured one that moves a row to another key comes as two.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headrace.client.http import FeedClient
from headrace.simple import json_codec
from headrace.simple.message import Ddl, Dml, Message, MessageType, Watermark
from tests.integration.capture.folded_feed import new_name_of

READ_S_MAX = 120.0
MESSAGES = {"", "schema", "ddl", "watermark"}
"""The ``control`` of entries whose value is a Simple message."""

_SEQ = re.compile(r"###   @\d+=(7\d{12})")
_ROW = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `(.+)`\.`(.+)`")
_GTID = re.compile(r"^#.*\tGTID (\d+-\d+-\d+)", re.ASCII)


class RowChange(NamedTuple):
    """A row that is put into a table, or taken out of it."""

    table: str
    put: bool
    seq: int


class Committed(NamedTuple):
    """The rows of one transaction, in order."""

    gtid: str
    rows: list[RowChange]


class Entry(NamedTuple):
    """An entry of the feed, with its message if it has one."""

    sequence_id: int
    key: str
    control: str
    table: tuple[str, ...]
    tx: str
    tx_index: int
    tx_last: bool
    copy: bool
    value: bytes
    message: Message | None


def committed(binlogs: Sequence[Path], database: str, *, without: str) -> list[Committed]:
    """What the binlog files say was committed to the tables of ``database`` but one, transactions without rows left out."""
    found: list[Committed] = []
    for binlog in binlogs:
        command = ["mariadb-binlog", "--no-defaults", "-v", "--base64-output=decode-rows", str(binlog)]
        done = subprocess.run(command, capture_output=True, timeout=READ_S_MAX, check=False)
        # A server that was killed may leave an event behind that it never finished.
        assert done.returncode == 0 or binlog != binlogs[-1], done.stderr
        found += _committed_in(done.stdout.decode("utf-8", "replace").splitlines(), database, without)
    return found


def _committed_in(lines: Iterable[str], database: str, without: str) -> Iterator[Committed]:
    gtid, rows = "", list[RowChange]()
    table, put = "", False
    for line in lines:
        if match := _GTID.match(line):
            gtid, rows = match[1], []
        elif match := _ROW.fullmatch(line):
            table = match[3] if match[2] == database and match[3] != without else ""
        elif line in {"### SET", "### WHERE"}:
            put = line == "### SET"
        elif table and (match := _SEQ.fullmatch(line)):
            rows.append(RowChange(table, put, int(match[1])))
        elif line.startswith("COMMIT") and rows:
            yield Committed(gtid, rows)
            rows = []


async def read_feed(url: str, feed: str) -> list[Entry]:
    """All entries of a feed, as any client of it reads them."""
    found: list[Entry] = []
    async with FeedClient(url) as client:
        while True:
            answer = await client.read(feed, len(found) + 1)
            found += [_entry(one) for one in answer.changes_list]
            if len(found) >= answer.head_sequence_id:
                return found


def _entry(one: Any) -> Entry:
    given: dict[str, Any] = {
        name: found
        for name in ("key", "control", "table", "tx", "tx_index", "tx_last", "copy")
        if (found := getattr(one, name)) is not msgspec.UNSET
    }
    value = bytes(one.changes)
    control = given.get("control", "")
    return Entry(
        one.sequence_id,
        given["key"],
        control,
        tuple(given.get("table", ())),
        given.get("tx", ""),
        given.get("tx_index", 0),
        given.get("tx_last", False),
        given.get("copy", False),
        value,
        json_codec.decode(value) if control in MESSAGES else None,
    )


def check_order(entries: Sequence[Entry]) -> None:
    """Transactions stand together, each under one commitTs, the next one under a greater one; WATERMARKs are true.

    The rows of a CREATE TABLE … SELECT are one of their own, behind that of the statement and of the same name.
    """
    commit_ts = watermark = index = 0
    open_tx = last_tx = ""
    is_told = False
    for entry in entries:
        message = entry.message
        if open_tx:
            assert entry.tx == open_tx, f"{entry} tears the transaction {open_tx}"
            assert entry.tx_index == index + 1, entry
        else:
            is_told = False
            assert entry.tx_index == (index + 1 if entry.tx and entry.tx == last_tx else 0), entry
        if isinstance(message, Watermark | Ddl | Dml):
            assert message.commit_ts > watermark, f"{entry}: the WATERMARK {watermark} came before it"
            if is_told:
                assert message.commit_ts == commit_ts, f"{entry}: its transaction began at {commit_ts}"
            else:
                assert message.commit_ts > commit_ts or entry.copy, f"{entry}: {commit_ts} came before it"
            assert message.commit_ts >= commit_ts, entry
            commit_ts, is_told = message.commit_ts, bool(entry.tx)
        if isinstance(message, Watermark):
            watermark = message.commit_ts
        open_tx, last_tx, index = ("" if entry.tx_last else entry.tx), entry.tx, entry.tx_index
    assert not open_tx


def check_history(entries: Sequence[Entry], truth: Sequence[Committed]) -> int:
    """The rows of the feed are those that were committed: all of them from the first WATERMARK on, and before it no others.

    Before it, what the snapshot has yet to copy is left out. Returns how many transactions were compared row by row.
    """
    told: dict[str, list[RowChange]] = {}  # a transaction that came a second time has its rows twice
    whole_from = ""
    is_whole = False
    for entry in entries:
        is_whole = is_whole or entry.control == "watermark"
        if entry.tx and isinstance(entry.message, Dml):
            told.setdefault(entry.tx, []).extend(_row_changes(entry.message))
            whole_from = whole_from or (entry.tx if is_whole else "")
    assert whole_from, "the feed has no transaction behind its first WATERMARK"
    numbers = {one.gtid: number for number, one in enumerate(truth)}
    assert list(told) == [one.gtid for one in truth if one.gtid in told], "transactions in another order"
    for gtid, rows in told.items():
        _check_part_of(rows, truth[numbers[gtid]])
    behind = truth[numbers[whole_from] :]
    for one in behind:
        assert told.get(one.gtid) == one.rows, f"{one.gtid}: {told.get(one.gtid)} instead of {one.rows}"
    return len(behind)


def _check_part_of(rows: Sequence[RowChange], whole: Committed) -> None:
    remaining = iter(whole.rows)
    for row in rows:
        assert row in remaining, f"{whole.gtid}: {row} was not committed, or not there: {whole.rows}"


def _row_changes(message: Dml) -> list[RowChange]:
    return [
        RowChange(message.table, image is message.data, int(str(image["seq"])))
        for image in (message.old, message.data)
        if image is not None
    ]


def check_each_key(entries: Sequence[Entry]) -> int:
    """No change of a row comes twice, none is missing: each says what the one before left of the row. Returns how many."""
    tables: dict[tuple[str, ...], dict[str, int]] = {}
    count = 0
    for entry in entries:
        message = entry.message
        if isinstance(message, Ddl):
            _apply_statement(tables, message, entry.table)
        if not isinstance(message, Dml):
            continue
        count += 1
        rows = tables.setdefault(entry.table, {})
        if message.old is not None:
            found = rows.pop(entry.key, None)
            assert found == _seq(message.old), f"{entry} changes a row of which the feed has {found}"
        if message.data is not None:
            seq = _seq(message.data)
            if entry.copy:
                assert rows.get(entry.key, seq) == seq, f"{entry} copies a row that the feed has otherwise"
            else:
                assert entry.key not in rows, f"{entry} comes a second time"
            rows[entry.key] = seq
    return count


def _seq(row: Mapping[str, object]) -> int:
    return int(str(row["seq"]))


def _apply_statement(
    tables: dict[tuple[str, ...], dict[str, int]], message: Ddl, table: tuple[str, ...]
) -> None:
    if message.type in {MessageType.CREATE, MessageType.ERASE, MessageType.TRUNCATE}:
        tables[table] = {}
    elif message.type is MessageType.RENAME:
        new = new_name_of(message)
        names = [msgspec.json.encode(name).decode() for name in (table[1], new[1])]
        moved = tables.pop(table, {})
        tables[new] = {
            key.replace(names[0], names[1], 1) if table[0] == new[0] else key: seq
            for key, seq in moved.items()
        }
