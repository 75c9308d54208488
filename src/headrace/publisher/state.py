"""The state of a feed's source at one sequence id: what a snapshot is made of. One more database is one more reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

from headrace.publisher.attach.rendered import RenderedRow
from headrace.publisher.attach.schema import TableSchema

NO_STATE: Final = (
    "{feed} has no attached table: its rows are those of Outbox.add, of which the outbox holds no state"
)
ALSO_ADDED: Final = "{feed} also has, or had, rows of Outbox.add: no attached table holds those objects"
TWO_COLUMNS: Final = "it must select two columns, key and changes"
STATE_HINT: Final = (
    "Give a query that selects key and changes (the full state as JSON) of every object: "
    '[snapshot-sql] "{feed}" = "SELECT …" in the agent\'s settings.'
)


class StatePlace(NamedTuple):
    """The place that a state stands for: all entries up to ``sequence_id`` are in it, none after."""

    incarnation: str
    sequence_id: int


class StateReader(Protocol):
    """Reads one feed's state, once, on a connection of its own. Any thread may call it, one at a time.

    Use: :meth:`open`; then :meth:`Source.begin_snapshot` fixes what is read; then :meth:`lines`; :meth:`close` in any case.
    Raises SourceUnavailable, SourceForbidden, SnapshotUnavailable (a feed that has no state to read).
    """

    was_read: bool
    """Whether ``begin_snapshot`` has already handed the state to its sink."""

    def open(self) -> None:
        """Connect. What takes long is done here, before marking is asked to wait."""

    def lines(self) -> Iterator[bytes]:
        """Give the state as lines of a snapshot, each with its newline: a table's schema, then its rows."""

    def cancel(self) -> None:
        """Make what another thread does with this reader fail soon; may be called at any time."""

    def close(self) -> None:
        """End the transaction in the source, and disconnect; does nothing the second time."""


StateSink = Callable[[StatePlace, Iterable[bytes]], None]
"""Takes a whole state: where it stands, and its lines."""


def schema_line(schema: TableSchema) -> bytes:
    """Return the line of a table's schema: control, key and changes as the feed's schema entry has them."""
    key = msgspec.json.encode(schema.entry_key())
    return b'{"control":"schema","key":' + key + b',"changes":' + schema.entry_changes().encode() + b"}\n"


def row_line(row: RenderedRow, table: bytes) -> bytes:
    """Return the line of a row: ``changes`` byte for byte as a put of it has them. ``table``: JSON, made once a table.

    A stored JSON text may hold line breaks between its tokens (nowhere else may JSON have them): here they are spaces.
    """
    changes = row.changes
    if b"\n" in changes or b"\r" in changes:
        changes = changes.replace(b"\n", b" ").replace(b"\r", b" ")
    return (
        b'{"key":' + msgspec.json.encode(row.key) + b',"changes":' + changes + b',"table":' + table + b"}\n"
    )


_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def object_line(key: object, changes: object) -> bytes:
    """Return the line of an object that the application's own query gave; ValueError says what is wrong with it.

    ``changes`` as text, byte for byte but for its line breaks: a value that a driver made of it may have lost digits.
    """
    if not isinstance(key, str) or not key or key.startswith("\0"):
        raise ValueError(f"a key must be text that does not begin with a NUL character, not {key!r:.80}")
    if not isinstance(changes, str | bytes):
        raise ValueError(f"changes of {key!r:.80} must be JSON as text, not {type(changes).__name__}")
    try:
        data = changes.encode() if isinstance(changes, str) else changes
        _OBJECT.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"changes of {key!r:.80} are no JSON object: {error}") from None
    data = data.strip().replace(b"\n", b" ").replace(b"\r", b" ")
    return b'{"key":' + msgspec.json.encode(key) + b',"changes":' + data + b"}\n"
