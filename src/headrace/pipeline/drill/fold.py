"""The drill's own fold: entries, one by one, into a dict. Plain Python, on purpose: nothing of it serves a restore.

It follows the words of the design: put, patch (RFC 7396), delete, mutations of OP_BATCH in their order. What
statements do to whole tables is in :mod:`headrace.pipeline.drill.statements`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from sys import intern
from typing import Any, Final, NamedTuple

from headrace.pipeline.drill.statements import Statements, Table
from headrace.wire.generated import wal_pb2

_PUT, _DELETE, _PATCH = "put", "delete", "patch"


class Number(NamedTuple):
    """A JSON number as it is written: ``1``, ``1.0`` and ``true`` are three values, where Python's own ``==`` sees one."""

    text: str


_DECODER: Final = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number)


class Change(NamedTuple):
    """One change of one key."""

    feed: str
    key: bytes
    op: str
    value: bytes
    table: Table
    sequence_id: int
    lsn: str


class State(NamedTuple):
    """What a key came to. ``merged``: a value that patches made, as JSON values; else ``value`` is its bytes."""

    value: bytes
    merged: Any
    is_merged: bool
    table: Table
    sequence_id: int
    lsn: str


def changes_of(message: wal_pb2.WalEntry, feed: str, sequence_id: int) -> list[Change]:
    """Return what an entry does to keys; [] for a control entry."""
    table = tuple(message.table)
    if message.control:
        return []
    if message.op_type == wal_pb2.OP_BATCH:
        return [
            Change(feed, one.key, _op(one.op), one.value, table, sequence_id, message.lsn)
            for one in wal_pb2.BatchWrite.FromString(message.value).mutations
        ]
    op = _PATCH if message.patch else _op(message.op_type)
    return [Change(feed, message.key, op, message.value, table, sequence_id, message.lsn)]


def _op(number: int) -> str:
    return _DELETE if number == wal_pb2.OP_DELETE else _PUT


def folded(changes: Iterable[Change], statements: Statements | None = None) -> dict[tuple[str, bytes], State]:
    """Return what the changes, each key's in order, come to. ``statements``: all of the log, not only those up to here.

    Holds the newest value of each key, and nothing else.
    """
    told = statements if statements is not None else Statements()
    states: dict[tuple[str, bytes], State] = {}
    for one in changes:
        name = (intern(one.feed), one.key)
        if one.op == _DELETE:
            states.pop(name, None)
            continue
        merged = None
        if one.op == _PATCH:
            merged = _merged(_json_of(states.get(name), told, one), _DECODER.decode(one.value.decode()))
        value = b"" if one.op == _PATCH else one.value
        table = tuple(map(intern, one.table))
        states[name] = State(value, merged, one.op == _PATCH, table, one.sequence_id, one.lsn)
    gone = [name for name, one in states.items() if told.is_gone(name[0], one.table, one.sequence_id)]
    for name in gone:
        del states[name]
    return states


def is_same(state: State, row: Mapping[str, Any]) -> bool:
    """Tell whether a restored row (value, sequence_id, lsn) is this state: to the byte, or where patches made the value,
    to each character of each number, each string and each literal; white space and the order of members do not count.
    """
    if (state.sequence_id, state.lsn) != (row["sequence_id"], row["lsn"]):
        return False
    if not state.is_merged:
        return bool(state.value == row["value"])
    return bool(_DECODER.decode(row["value"].decode()) == state.merged)


def _json_of(state: State | None, statements: Statements, patch: Change) -> Any:
    if state is None:
        return None
    if statements.is_gone(patch.feed, state.table, state.sequence_id, before=patch.sequence_id):
        return None
    if state.is_merged:
        return state.merged
    try:
        return _DECODER.decode(state.value.decode())
    except ValueError:
        return None  # what is no JSON is no object, so a patch begins with none


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7396 §2, word for word."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found
