"""Entries -> where each goes, and as what bytes. Runs on Spark's workers, over Arrow batches. Pure but for schemas.

A row goes out as it stands in the feed if that is what is asked for: JSON, all columns. Its envelope is read, its values
only where the partition depends on them. Of control entries DDL and WATERMARK are handed on, to the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from headrace.capture.changefeed import Changefeed
from headrace.capture.selection import ColumnRules, Selection
from headrace.errors import HeadraceError, MessageTooLarge, SimpleInvalid, TopicUnfit
from headrace.pipeline.kafka.avro import AvroRows
from headrace.pipeline.kafka.client import RECORD_OVERHEAD_BYTES
from headrace.simple import avro_codec, json_codec
from headrace.simple.dispatch import Dispatcher, Route
from headrace.simple.message import Dml
from headrace.simple.partition import ByTable, ByTs
from headrace.simple.schema import TableSchema
from headrace.simple.values import Encoding
from headrace.wire.arrays import array_of

READ_DDL: Final = (
    "sequence_id BIGINT, lsn STRING, op STRING, value BINARY, control STRING, `table` ARRAY<STRING>"
)
"""The columns of the source that are read."""

ROUTED_DDL: Final = "sequence_id BIGINT, control STRING, slot INT, subject STRING, value BINARY"
"""What comes out, one row an entry that goes to Kafka.

``control``: null for a row, else ddl or watermark, which have no place yet. ``slot`` counts the partitions of all topics.
``subject``: what the entry is about, see :func:`subject_of`.
"""

ROUTED: Final = pa.schema(
    [
        ("sequence_id", pa.int64()),
        ("control", pa.string()),
        ("slot", pa.int32()),
        ("subject", pa.string()),
        ("value", pa.binary()),
    ]
)
DDL: Final = "ddl"
WATERMARK: Final = "watermark"
_OUT_ROWS: Final = 10_000
"""Rows of one batch that is handed back to Spark."""


class TopicPlace(NamedTuple):
    """A topic as it is for the length of a job: its partitions, the slot of the first, and what a message may have."""

    first_slot: int
    partitions: int
    message_bytes_max: int


class Schemas(Protocol):
    """Where schemas come from."""

    def find(self, database: str, table: str, version: int) -> TableSchema:
        """Return the schema of ``version``."""


class Routing(NamedTuple):
    """What workers are given. ``topics``: every topic that any table of the feed may go to."""

    feed: str
    changefeed: Changefeed
    topic: str
    topics: dict[str, TopicPlace]
    schemas: Schemas

    def route(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Route the batches of one task, as :meth:`Router.route`: a function for ``mapInArrow``."""
        return Router(self).route(batches)


class _Envelope(
    msgspec.Struct, rename={"commit_ts": "commitTs", "schema_version": "schemaVersion"}, gc=False
):
    """What is read of each row's message, and no more."""

    type: str
    database: str
    table: str
    commit_ts: int
    schema_version: int


class _Form(NamedTuple):
    """How the rows of one schema version go out. ``partition`` is set where it is the same for all of them."""

    subject: str
    topic: str
    place: TopicPlace
    partition: int | None
    by_time: bool
    route: Route
    columns: frozenset[str] | None
    avro: AvroRows | None

    @property
    def changes(self) -> bool:
        """Whether messages go out in another form than they have in the feed."""
        return self.columns is not None or self.avro is not None

    def written(self, message: Dml) -> bytes:
        """Return a message in the form in which it goes out."""
        if self.columns is not None:
            message = _with_columns(message, self.columns)
        return (
            json_codec.encode(message)
            if self.avro is None
            else avro_codec.encode(self.avro.converted(message))
        )


class _Routed:
    """What one batch becomes: columns that grow."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._controls: list[str | None] = []
        self._slots: list[int | None] = []
        self._subjects: list[str] = []
        self._values: list[bytes] = []

    def add(self, at: int, control: str | None, slot: int | None, subject: str, value: bytes) -> None:
        """Add what became of the entry at ``at``."""
        self._places.append(at)
        self._controls.append(control)
        self._slots.append(slot)
        self._subjects.append(subject)
        self._values.append(value)

    def batch(self, given: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch; ``given`` is the one that it was made of."""
        ids = given.column("sequence_id")
        if len(self._places) < given.num_rows:
            ids = ids.take(array_of(self._places, pa.int64()))
        columns: tuple[list[Any], ...] = (self._controls, self._slots, self._subjects, self._values)
        made = [array_of(values, field.type) for values, field in zip(columns, list(ROUTED)[1:], strict=True)]
        return pa.RecordBatch.from_arrays([ids, *made], schema=ROUTED)


def subject_of(database: str, table: str, version: int) -> str:
    """Return a table and its schema version as one text, for counting by it."""
    return _ENCODE((database, table, version)).decode()


def read_subject(text: str) -> tuple[str, str, int]:
    """Return the database, the table and the schema version that :func:`subject_of` put together."""
    found: tuple[str, str, int] = _SUBJECT.decode(text)
    return found


_ENCODE: Final = msgspec.json.Encoder().encode
_SUBJECT: Final = msgspec.json.Decoder(tuple[str, str, int])
_OPS: Final = frozenset({"put", "delete"})
_ROWS: Final = frozenset({"INSERT", "UPDATE", "DELETE"})
_Key = tuple[str, str, int]


class Router:
    """Routes the entries of one task."""

    def __init__(self, routing: Routing) -> None:
        changefeed = routing.changefeed
        self._routing = routing
        self._dispatcher = dispatcher_of(changefeed, routing.topic)
        self._selection = Selection(
            changefeed.rules,
            ColumnRules(selectors=changefeed.selectors),
            case_sensitive=changefeed.case_sensitive,
        )
        self._forms: dict[_Key, _Form | None] = {}
        self._decode = msgspec.json.Decoder(_Envelope).decode

    def route(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the routed entries.

        SimpleInvalid for a row that is no Simple message, MessageTooLarge: both name feed, sequence id, LSN and table.
        """
        for batch in batches:
            for start in range(0, batch.num_rows, _OUT_ROWS):
                yield self._batch(batch.slice(start, _OUT_ROWS))

    def _batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        out = _Routed()
        controls = batch.column("control").to_pylist()
        ops = batch.column("op").to_pylist()
        for at, value in enumerate(batch.column("value").to_pylist()):
            try:
                if controls[at] is None:
                    self._row(out, at, ops[at], value)
                elif controls[at] in {DDL, WATERMARK}:
                    database, table = (*(batch.column("table")[at].as_py() or ()), "", "")[:2]
                    out.add(at, controls[at], None, subject_of(database, table, 0), value)
            except HeadraceError as error:
                raise self._named(error, batch.slice(at, 1).to_pylist()[0]) from None
        return out.batch(batch)

    def _row(self, out: _Routed, at: int, op: str, value: bytes) -> None:
        try:
            head = self._decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            head = None
        if head is None or head.type not in _ROWS or op not in _OPS:
            raise _no_row(op, value)
        key = (head.database, head.table, head.schema_version)
        if key not in self._forms:
            self._forms[key] = self._form(*key)
        form = self._forms[key]
        if form is None:
            return
        place = form.place
        partition = head.commit_ts % place.partitions if form.by_time else form.partition
        if partition is None or form.changes:
            message = _dml(value)
            if partition is None:
                partition = form.route.partition_of(message, place.partitions)
            if form.changes:
                value = form.written(message)
        if len(value) + RECORD_OVERHEAD_BYTES > place.message_bytes_max:
            check_size(value, form.topic, place)
        out.add(at, None, place.first_slot + partition, form.subject, value)

    def _form(self, database: str, table: str, version: int) -> _Form | None:
        """Return how the rows of a schema version go out, None if not at all."""
        if not self._selection.captures(database, table):
            return None
        changefeed = self._routing.changefeed
        topic = self._dispatcher.topic_of(database, table)
        place = self._routing.topics.get(topic)
        if place is None:
            raise TopicUnfit(
                f"rows of {database}.{table} go to the topic {topic}, which no schema entry told of"
            )
        columns: frozenset[str] | None = None
        schema = self._routing.schemas.find(database, table, version)
        route = self._dispatcher.route_of(schema)
        choice = self._selection.of(schema)
        if not choice.whole:
            columns = frozenset(schema.columns[at].name for at in choice.delivered)
        # By table or by time the place follows from the envelope alone.
        fixed = isinstance(route.placer, ByTable)
        return _Form(
            subject_of(database, table, version),
            topic,
            place,
            route.placer.partition_of(_NO_ROW, place.partitions) if fixed else None,
            isinstance(route.placer, ByTs),
            route,
            columns,
            AvroRows(schema) if changefeed.encoding is Encoding.AVRO else None,
        )

    def _named(self, error: HeadraceError, entry: dict[str, Any]) -> HeadraceError:
        named = f"feed {self._routing.feed}, sequence id {entry['sequence_id']}, LSN {entry['lsn']}"
        if entry["table"]:
            named += f", table {'.'.join(entry['table'])}"
        return type(error)(f"{named}: {error.detail}", hint=error.advice)


def dispatcher_of(changefeed: Changefeed, topic: str) -> Dispatcher:
    """Return the dispatch rules of a changefeed, with its default topic."""
    return Dispatcher(changefeed.dispatchers, topic, case_sensitive=changefeed.case_sensitive)


def check_size(value: bytes, topic: str, place: TopicPlace) -> None:
    """Raise MessageTooLarge if a message, counted as TiCDC counts it, is larger than its topic takes."""
    size = len(value) + RECORD_OVERHEAD_BYTES
    if size > place.message_bytes_max:
        raise MessageTooLarge(f"a message of {size} bytes; the topic {topic} takes {place.message_bytes_max}")


_NO_ROW: Final[Any] = None
"""What a rule is given that does not look at rows."""


def _no_row(op: str, value: bytes) -> SimpleInvalid:
    """Return why an entry that is a row can't go out."""
    if op not in _OPS:
        return SimpleInvalid(f"an entry of the op {op} is no message of the Simple Protocol")
    found = json_codec.decode(value)  # says what is wrong with it, if it is none
    return SimpleInvalid(f"an entry that is a row has a message of the type {found.type}")


def _dml(value: bytes) -> Dml:
    message = json_codec.decode(value)
    if not isinstance(message, Dml):
        raise SimpleInvalid(f"an entry that is a row has a message of the type {message.type}")
    return message


def _with_columns(message: Dml, columns: frozenset[str]) -> Dml:
    kept = {
        image: {name: raw for name, raw in row.items() if name in columns}
        for image, row in (("data", message.data), ("old", message.old))
        if row is not None
    }
    return msgspec.structs.replace(message, **kept)
