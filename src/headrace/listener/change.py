"""One change as a consumer gets it: the entry, and its place as a bookmark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.wire.documents import EntryOut


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of a feed. ``incarnation`` is that of the feed's history it was read from."""

    incarnation: str
    entry: EntryOut

    @property
    def sequence_id(self) -> int:
        """Its place in the feed."""
        return self.entry.sequence_id

    @property
    def op(self) -> str:
        """``put`` (full state), ``patch`` (merge it), or ``delete`` (the old state)."""
        return self.entry.op

    @property
    def key(self) -> str | None:
        """The key as text; None where it is no text (see ``entry.key_base64``)."""
        return self.entry.key if isinstance(self.entry.key, str) else None

    @property
    def is_control(self) -> bool:
        """True for an entry that is no row: a table's schema, the begin or end of a copy, TRUNCATE."""
        return isinstance(self.entry.control, str)

    @property
    def place(self) -> Bookmark:
        """The bookmark of a consumer that has done with this change."""
        return Bookmark(self.incarnation, self.entry.sequence_id, Lsn.parse(self.entry.lsn))

    def line(self) -> bytes:
        r"""Return the entry as the API gives it, as one line of JSON with its ``\n``.

        ``changes`` passes through byte for byte, unless its publisher broke it over lines: then the white space between
        tokens goes, so that a line stays an entry. The tokens stay as they are, numbers of any length included.
        """
        text = msgspec.json.encode(self.entry)
        if b"\n" in text or b"\r" in text:
            text = msgspec.json.format(text, indent=-1)
        return text + b"\n"

    def text(self) -> bytes:
        """Return ``changes`` as JSON text, byte for byte, so that numbers keep their digits. ValueError if it is none."""
        if not isinstance(self.entry.changes, Raw):
            raise ValueError(f"entry {self.sequence_id} carries bytes that are no JSON")
        return bytes(self.entry.changes)

    def state(self) -> Any:
        """Return ``changes`` as Python values; None where the entry carries bytes that are no JSON."""
        return json.loads(bytes(self.entry.changes)) if isinstance(self.entry.changes, Raw) else None
