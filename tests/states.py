"""Snapshots of a publisher in tests: whether a body is a whole one, what it holds, and taking one from a source directly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import google_crc32c
import msgspec

from headrace.publisher.source import Source
from headrace.publisher.state import StatePlace, StateReader


class Body(NamedTuple):
    """A snapshot that was read whole: its header, the rows by key as the bytes of ``changes``, the control lines."""

    header: dict[str, Any]
    rows: dict[str, bytes]
    controls: list[dict[str, Any]]

    @property
    def sequence_id(self) -> int:
        """What it stands for."""
        return int(self.header["sequence-id"])


class _Line(msgspec.Struct, rename="kebab"):
    changes: msgspec.Raw
    key: str
    control: str | None = None
    table: list[str] | None = None


def parse_body(body: bytes) -> Body:
    """Return what ``body`` says; fails unless it is a whole snapshot."""
    assert body.endswith(b"\n")
    lines = body[:-1].split(b"\n")
    end = json.loads(lines[-1])["end"]
    before = body[: -len(lines[-1]) - 1]
    assert end["crc32c"] == f"{google_crc32c.value(before):08x}"
    header = json.loads(lines[0])
    assert header["headrace-snapshot"] == 1
    rows, controls = read_lines(lines[1:-1])
    assert end["rows"] == len(rows)
    return Body(header, rows, controls)


def read_lines(lines: Iterable[bytes]) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """Return the rows by key and the control lines; fails if a row comes before its table's schema, or twice."""
    rows: dict[str, bytes] = {}
    controls: list[dict[str, Any]] = []
    known: set[tuple[str, ...]] = set()
    for raw in lines:
        line = msgspec.json.decode(raw, type=_Line)
        if line.control is not None:
            controls.append(json.loads(raw))
            changes = json.loads(bytes(line.changes))
            known.add((changes["database"], changes["table"]))
            continue
        assert line.key not in rows, f"{line.key} stands there twice"
        assert line.table is None or tuple(line.table) in known, f"no schema before {line.key}"
        rows[line.key] = bytes(line.changes)
    return rows, controls


def take(
    source: Source, reader: StateReader, feed: str, agent_id: str, epoch: int = 1
) -> tuple[StatePlace, list[bytes]]:
    """Take one snapshot from ``source`` by itself, as the agent does, and return its place and its lines."""
    taken: list[tuple[StatePlace, list[bytes]]] = []

    def sink(place: StatePlace, lines: Iterable[bytes]) -> None:
        taken.append((place, list(lines)))

    try:
        reader.open()
        place = source.begin_snapshot(feed, agent_id, epoch, reader, sink)
        if not reader.was_read:
            sink(place, reader.lines())
    finally:
        reader.close()
    assert taken[0][0] == place
    return taken[0]
