"""A stored entry as people and HTTP readers get it: the members of RFD 5's entries. Pure."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from headrace.entries.entry import WireOp
from headrace.wire.documents import TIME_MS_MAX, EntryOut, rfc3339
from headrace.wire.generated import wal_pb2

_OPS: Final = {kind.value: kind.name.lower() for kind in WireOp}
_raw = msgspec.json.Decoder(msgspec.Raw)


def entry_out(message: wal_pb2.WalEntry, sequence_id: int) -> EntryOut:
    """Return a stored entry as a reader gets it; bytes that are no text or no JSON go out as base64."""
    out = EntryOut(
        sequence_id=sequence_id,
        lsn=message.lsn,
        committed_at=time_text(message.committed_at_ms),
        op="patch" if message.patch else _OPS.get(message.op_type, str(message.op_type)),
    )
    out.changes, out.changes_base64 = _json(message.value)
    out.key, out.key_base64 = _text(message.key)
    if message.source_tx:
        out.tx, out.tx_base64 = _text(message.source_tx)
    if message.source_tx or message.tx_index or message.tx_last:
        out.tx_index, out.tx_last = message.tx_index, message.tx_last
    if message.HasField("before"):
        out.before, out.before_base64 = _json(message.before)
    if message.source_time_ms:
        out.source_time = time_text(message.source_time_ms)
    if message.changed:
        out.changed = list(message.changed)
    if message.table:
        out.table = list(message.table)
    if message.copy:
        out.copy = True
    if message.control:
        out.control = message.control
    return out


def _json(data: bytes) -> tuple[msgspec.Raw | UnsetType, str | UnsetType]:
    try:
        data.decode()
        _raw.decode(data)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return UNSET, base64.b64encode(data).decode()
    return msgspec.Raw(data), UNSET


def _text(data: bytes) -> tuple[str | UnsetType, str | UnsetType]:
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, base64.b64encode(data).decode()


@lru_cache(maxsize=1024)
def time_text(ms: int) -> str:
    """Return UTC milliseconds as RFC 3339 text; entries of an append share their time.

    A foreign writer may give any u64: what RFC 3339 can't say goes out as milliseconds.
    """
    return rfc3339(ms) if ms <= TIME_MS_MAX else str(ms)
