"""What an output plugin is: the one interface between the stream, which knows positions, and the formats, which don't."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from headrace.wire.frame import Frame


class Piece(NamedTuple):
    """Entries ``first`` … ``last`` (0-based, both included) of one stored frame that are of one source transaction.

    ``begins`` and ``ends``: whether the transaction's first and last entry are among them. ``wanted``: the indices that
    pass the slot's filters, ascending, within ``first`` … ``last``; None: all of them. ``xid``: a number of the
    transaction, the same in each of its pieces and after each replay (u32, never 0). ``sent_by``: the position up to which
    the transaction is sent, the end of the frame that ends it; a stream that starts there has nothing of it. 0: not known.
    """

    feed: str
    incarnation: str
    frame: Frame
    first: int
    last: int
    begins: bool
    ends: bool
    xid: int
    wanted: Sequence[int] | None = None
    sent_by: int = 0


class Rendered(NamedTuple):
    """The payloads of a piece in order, and for each the index in its frame of the entry that it belongs to.

    A BEGIN belongs to the piece's first entry, a COMMIT to its last: from this the stream takes each record's position.
    """

    payloads: list[bytes]
    entries: list[int]


class Output(Protocol):
    """A format that a slot was made with. One object for each stream; it may keep what its own rendering needs."""

    def render(self, piece: Piece) -> Rendered:
        """Return the piece's records. A piece of which nothing is wanted may have none.

        The pieces of a transaction come one after another, from its first to its last. The same transaction is rendered to
        the same bytes, however often it is replayed.
        """


class Schemas(Protocol):
    """Where an output finds the schema of rows whose schema entry stands in no piece that it was given.

    Both answer with a schema entry's value, or None where there is none. They may block, and raise StoreUnavailable,
    JournalCorrupt and MetadataCorrupt: so :meth:`Output.render` is called from a worker thread. The server's own is
    :class:`headrace.server.pg.output.schemas.IndexedSchemas`.
    """

    def newest(self, feed: str, database: str, table: str, below: int) -> bytes | None:
        """Return the last schema of a table that stands below the sequence id ``below``."""

    def version(self, feed: str, database: str, table: str, version: int) -> bytes | None:
        """Return the schema of a table that has this version, wherever it stands."""


class OutputFactory(Protocol):
    """Makes an :class:`Output` for one START_REPLICATION."""

    def __call__(self, options: Mapping[str, str], schemas: Schemas, /) -> Output:
        """Return the output for ``options``, of which the stream has taken its own away; InvalidRequest for unknown ones."""
