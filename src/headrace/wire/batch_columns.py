"""Received batches -> one Arrow record batch, with array operations over the bodies and no Python per field.

For subscribers that take many entries fast; the checksums are verified in the same walk. What the walk does not know goes
through protobuf, which is also the oracle of the tests. Needs numpy and pyarrow, which the core does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.entries.entry import WireOp
from headrace.entries.lsn import TEXT_SIZE, ZERO
from headrace.errors import JournalCorrupt
from headrace.wire.arrays import arrow_flags, arrow_ints, batch_of_rows
from headrace.wire.batch import ReceivedBatch
from headrace.wire.batch_check import check_slices
from headrace.wire.columns import (
    BUFFER_BYTES_MAX,
    byte_slices,
    checked_text,
    interleaved,
    moment_us,
    moments,
    op_column,
    op_text,
    text_lists,
)
from headrace.wire.entry import message_of
from headrace.wire.entry_checksums import fitting
from headrace.wire.walk import PADDING_BYTES, Flags, Found, Ints, Places, walk

_STAMP: Final = pa.timestamp("us", tz="UTC")
_TEXTS: Final = pa.list_(pa.field("element", pa.string()))
SCHEMA: Final = pa.schema(
    [
        ("lsn", pa.string()),
        ("committed_at", _STAMP),
        ("tenant_id", pa.string()),
        ("key_prefix", pa.string()),
        ("op", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("hlc_ts", pa.uint64()),
        ("append_end", pa.bool_()),
        ("source_tx", pa.binary()),
        ("tx_index", pa.uint64()),
        ("tx_last", pa.bool_()),
        ("source_time", _STAMP),
        ("copy", pa.bool_()),
        ("control", pa.string()),
        ("changed", _TEXTS),
        ("before", pa.binary()),
        ("table", _TEXTS),
    ]
)
"""``committed_at``, ``source_tx``, ``source_time``, ``control``, ``changed``, ``before`` and ``table`` are null where an
entry has none. ``op`` is put, patch, delete or batch; an ``OP_BATCH`` is one row. ``hlc_ts`` is the LSN's ``global_ts``."""

_NULLABLE: Final = {"source_tx", "control"}
_DEFAULT: Final = tuple(SCHEMA.names)


class _Buffer(NamedTuple):
    """The bodies of some batches in a row, with the padding that the walk asks for, and where their entries stand."""

    data: bytes
    bytes: np.ndarray[Any, np.dtype[np.uint8]]
    places: Places
    found: Found

    def entries(self, rows: Ints) -> list[memoryview]:
        """The stored bytes of these entries."""
        view = memoryview(self.data)
        starts, ends = self.places.starts[rows].tolist(), self.places.ends[rows].tolist()
        return [view[start:end] for start, end in zip(starts, ends, strict=True)]

    def only(self, rows: Flags) -> _Buffer:
        """The same for some of the entries; walks again."""
        places = Places(*(part[rows] for part in self.places))
        return self._replace(places=places, found=walk(self.bytes, places, stamps=True))


def record_batch(
    batches: ReceivedBatch | Sequence[ReceivedBatch],
    *,
    names: Sequence[str] | None = None,
    verify: bool = True,
) -> pa.RecordBatch:
    """Return the entries of one batch, or of several that follow one another, as rows in LSN order.

    The columns are those of :data:`SCHEMA`, or the ones in ``names``. Some 16 batches at once take much less time each than
    one. ``verify``: as :func:`headrace.wire.batch_check.check_batch`, which need not be called then. Raises JournalCorrupt
    for what is no entry, and for more than 2 GiB.
    """
    wanted = tuple(names) if names is not None else _DEFAULT
    whole = _walked([batches] if isinstance(batches, ReceivedBatch) else batches, stamps=True)
    if verify:
        _check(whole)
    odd = whole.found.odd
    if not odd.any():
        return _assemble(whole, wanted)
    rest = _by_protobuf(whole.entries(np.flatnonzero(odd)))
    return interleaved(_assemble(whole.only(~odd), wanted), rest.select(list(wanted)), odd)


def check(batch: ReceivedBatch) -> None:
    """Do what :func:`headrace.wire.batch_check.check_batch` promises, by arrays."""
    _check(_walked([batch], stamps=False))


def _walked(batches: Sequence[ReceivedBatch], *, stamps: bool) -> _Buffer:
    data = b"".join([*(batch.body for batch in batches), bytes(PADDING_BYTES)])
    if len(data) > BUFFER_BYTES_MAX:
        raise JournalCorrupt(f"{len(data)} bytes of batches can't be decoded at once")
    parts = [np.frombuffer(batch.sizes, np.uint32) for batch in batches]
    sizes = np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
    ends = np.cumsum(sizes)
    none = np.broadcast_to(np.int64(0), ends.shape)
    places, buffer = Places(ends - sizes, ends, none, none), np.frombuffer(data, np.uint8)
    return _Buffer(data, buffer, places, walk(buffer, places, stamps=stamps))


# -- columns ----------------------------------------------------------------------------------------------------------


def _assemble(whole: _Buffer, wanted: tuple[str, ...]) -> pa.RecordBatch:
    """Make the record batch of entries that the walk understood."""
    source = pa.py_buffer(whole.data)
    arrays = [_column(name, source, whole.found) for name in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(name) for name in wanted]))


def _column(name: str, source: Any, found: Found) -> Any:
    match name:
        case "committed_at" | "source_time":
            return moments(found.numbers[name])
        case "op":
            return op_column(found)
        case "hlc_ts" | "tx_index":
            return arrow_ints(found.numbers[name]).view(pa.uint64())
        case "append_end" | "tx_last" | "copy":
            return arrow_flags(found.numbers[name] != 0)
        case "changed" | "table":
            return text_lists(source, len(found.odd), found.lists[name])
    starts, sizes = found.slices[name]
    valid = sizes > 0 if name in _NULLABLE else None
    if name == "before":
        valid, sizes = sizes >= 0, np.maximum(sizes, 0)
    kind = SCHEMA.field(name).type
    column = byte_slices(source, starts, sizes, kind, valid)
    return checked_text(column, name) if kind == pa.string() else column


def _by_protobuf(entries: Sequence[memoryview]) -> pa.RecordBatch:
    """Decode entries one by one; JournalCorrupt where one is no entry."""
    rows: list[dict[str, Any]] = []
    for stored in entries:
        message = message_of(stored)
        if not 0 <= message.op_type <= max(WireOp) or not message.lsn:
            raise JournalCorrupt(
                f"an entry has op {message.op_type} and LSN {message.lsn!r}", lsn=message.lsn
            )
        rows.append(
            {name: getattr(message, name) for name in _DEFAULT if name not in _MADE}
            | {name: getattr(message, name) or None for name in _NULLABLE}
            | {
                "committed_at": moment_us(message.committed_at_ms),
                "source_time": moment_us(message.source_time_ms),
                "op": op_text(message.op_type, patch=message.patch),
                "changed": list(message.changed) or None,
                "table": list(message.table) or None,
                "before": message.before if message.HasField("before") else None,
            }
        )
    return batch_of_rows(rows, SCHEMA)


_MADE: Final = {"committed_at", "source_time", "op", "changed", "table", "before"}
"""Columns that are not a message's field as it is."""


# -- checksums --------------------------------------------------------------------------------------------------------


def _check(whole: _Buffer) -> None:
    """Check all entries; those that arrays can't judge, and the first that does not fit, one by one."""
    fits = fitting(whole.data, whole.found)
    if not fits.all():
        _check_singly(whole, np.flatnonzero(~fits))
    _check_order(whole)


def _check_singly(whole: _Buffer, rows: Ints) -> None:
    for stored in whole.entries(rows):
        check_slices([stored], ZERO)


def _check_order(whole: _Buffer) -> None:
    """Raise JournalCorrupt unless every LSN is one, and above the one before."""
    starts, sizes = whole.found.slices["lsn"]
    if not len(starts):
        return
    if whole.found.odd.any() or (sizes != TEXT_SIZE).any():
        check_slices(whole.entries(np.arange(len(starts))), ZERO)
        return
    texts = byte_slices(pa.py_buffer(whole.data), starts, sizes, pa.binary()).buffers()[2]
    lsns = np.frombuffer(texts, f"S{TEXT_SIZE}")
    if not (_are_canonical(texts.to_pybytes(), len(starts)) and (lsns[1:] > lsns[:-1]).all()):
        check_slices(whole.entries(np.arange(len(starts))), ZERO)


def _are_canonical(texts: bytes, total: int) -> bool:
    """Tell whether all texts of :data:`TEXT_SIZE` bytes are LSNs as we print them, so that text order is LSN order."""
    kinds = texts.translate(_KINDS)
    if b"x" in kinds or kinds.count(b".") != 2 * total:
        return False
    tails = np.frombuffer(kinds, _PARTS)["tail"]
    if not (tails == b".0000000000.0000000000").all():
        return False
    marks = np.frombuffer(texts, np.uint8).reshape(-1, TEXT_SIZE)
    for at in (17, 28):
        if (marks[:, at] >= ord("4")).any():  # most are below: then so is the number
            numbers = np.ascontiguousarray(marks[:, at : at + 10]).view("S10")
            if (numbers > b"4294967295").any():
                return False
    return True


_KINDS: Final = bytes(
    ord("0")
    if one in b"0123456789"
    else ord("a")
    if one in b"abcdef"
    else one
    if one == ord(".")
    else ord("x")
    for one in range(256)
)
"""What each byte of an LSN's text is: a figure of both systems, one of the hexadecimal alone, a dot, or wrong."""
_PARTS: Final = np.dtype([("head", "S16"), ("tail", "S22")])
