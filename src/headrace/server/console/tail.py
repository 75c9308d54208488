"""A feed's entries as they are shown: everything is text, made here once, for the page and for its live tail.

Numbers are text too: a script would round those above 2^53.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from headrace.server.rendering import Portion, Rendered
from headrace.wire.documents import Answer, ChangesList, EntryOut
from headrace.wire.filters import EVERYTHING, EntryFilter

SHOWN_MAX: Final = 50
"""Entries that a page begins with, and that one look of the tail brings."""
SHOWN_BYTES_MAX: Final = 256 << 10
VALUE_CHARS_MAX: Final = 2_000
"""Characters of a value that are shown; the whole of it is at ``GET /feeds/{id}/entries``."""
KEY_CHARS_MAX: Final = 300

_decode_list: Final = msgspec.json.Decoder(ChangesList).decode


class ShownEntry(Answer):
    """One entry, each member as it is shown."""

    sequence_id: str
    lsn: str
    committed_at: str
    op: str
    key: str
    value: str


class ShownTail(Answer):
    """What one look found, oldest first, and where the feed is."""

    entries: list[ShownEntry]
    head: str


def portion_of(key: str) -> Portion:
    """Return how much a look brings: all entries, or those with ``key`` if it is not empty."""
    wanted = EntryFilter(key=key.encode()) if key else EVERYTHING
    return Portion(SHOWN_MAX, SHOWN_BYTES_MAX, wanted)


def shown_list(content: bytes) -> Sequence[ShownEntry]:
    """Return a ``changes-list`` as it is shown."""
    return [shown(one) for one in _decode_list(content).changes_list]


def events_of(rendered: Rendered) -> bytes:
    """Return what a look found as one event, whose id is the place of who sees it."""
    found = _decode_list(rendered.content)
    tail = ShownTail(entries=[shown(one) for one in found.changes_list], head=str(found.head_sequence_id))
    return b"id: %d\nevent: entries\ndata: %b\n\n" % (rendered.last_sequence_id, msgspec.json.encode(tail))


def shown(entry: EntryOut) -> ShownEntry:
    """Return one entry as it is shown: the first characters of what is long."""
    return ShownEntry(
        sequence_id=str(entry.sequence_id),
        lsn=entry.lsn,
        committed_at=entry.committed_at,
        op=entry.control if entry.control is not UNSET else entry.op,
        key=_cut(_key_of(entry), KEY_CHARS_MAX),
        value=_cut(_value_of(entry), VALUE_CHARS_MAX),
    )


def _key_of(entry: EntryOut) -> str:
    if entry.key is not UNSET:
        return entry.key
    return f"base64 {entry.key_base64}" if entry.key_base64 is not UNSET else ""


def _value_of(entry: EntryOut) -> str:
    if entry.changes is not UNSET:
        return bytes(entry.changes).decode("utf-8", "replace")
    return f"base64 {entry.changes_base64}" if entry.changes_base64 is not UNSET else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … {len(text) - most} more characters"
