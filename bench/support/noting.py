"""Runs a ``headrace`` command that notes when an entry passes its steps; the product itself keeps no such times.

``python -m bench.support.noting FILE WORDS ...`` is ``headrace WORDS ...``. What it notes stays in memory, and is written to
FILE when the command ends: one JSON line a step, ``[step, first sequence id, count, from, to]``, in
``time.monotonic_ns()``, which all processes of one machine share.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headrace.cli.app import main
from headrace.log.files.store import FileStore
from headrace.publisher.marked import MarkedRow
from headrace.publisher.relay import FeedRelay
from headrace.server.publishers import PublisherCases

Note = tuple[str, int, int, int, int]
"""Step, first sequence id, count of entries, begin and end in ns."""

notes: list[Note] = []
"""All that was noted so far."""


def _now() -> int:
    return time.monotonic_ns()


def note_agent() -> None:
    """Note the pass that marked a batch (``mark``), when it was read (``read``), and its append (``post``)."""
    advance: Callable[..., Awaitable[Any]] = FeedRelay._advance
    batch, post = FeedRelay._batch, FeedRelay._post
    begun: dict[FeedRelay, tuple[int, int]] = {}

    async def noted_advance(self: FeedRelay, *given: Any, **options: Any) -> Any:
        before = _now()
        marked = await advance(self, *given, **options)
        begun[self] = before, _now()
        return marked

    async def noted_batch(self: FeedRelay) -> list[MarkedRow]:
        before = _now()
        rows = await batch(self)
        if rows and self in begun:
            first = rows[0].sequence_id
            notes.append(("mark", first, len(rows), *begun[self]))
            notes.append(("read", first, len(rows), before, _now()))
        return rows

    async def noted_post(self: FeedRelay, rows: list[MarkedRow], *given: Any) -> Any:
        before = _now()
        done = await post(self, rows, *given)
        notes.append(("post", rows[0].sequence_id, len(rows), before, _now()))
        return done

    _replace(FeedRelay, _advance=noted_advance, _batch=noted_batch, _post=noted_post)


def note_server() -> None:
    """Note when the server took an append (``take``), and when its frame was durable and visible (``put``)."""
    put, append = FileStore.put, PublisherCases.append

    def noted_put(self: FileStore, begin: Any, group: Any) -> None:
        before = _now()
        put(self, begin, group)
        after = _now()
        for header, _ in group.frames:
            if header.count:
                notes.append(("put", header.first_sequence_id, header.count, before, after))

    async def noted_append(self: PublisherCases, *given: Any) -> Any:
        before = _now()
        appended = await append(self, *given)
        first, last = appended.first_sequence_id, appended.last_sequence_id
        notes.append(("take", first, last - first + 1, before, _now()))
        return appended

    _replace(FileStore, put=noted_put)
    _replace(PublisherCases, append=noted_append)


def _replace(kind: type, **methods: Callable[..., Any]) -> None:
    for name, method in methods.items():
        setattr(kind, name, method)


if __name__ == "__main__":
    note_agent()
    note_server()
    file = Path(sys.argv[1])
    try:
        code = main(sys.argv[2:])
    finally:
        file.write_text("".join(json.dumps(note) + "\n" for note in notes), encoding="utf-8")
    sys.exit(code)
