"""The frame of docs/formats/pg-output.md, and what both plugins make of it: kept in ``tests/golden/formats/pg-output``."""

from __future__ import annotations

from typing import Any, Final

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import ZERO
from headrace.server.pg.output.registry import OUTPUTS
from headrace.server.pg.positions import Named, records_of
from headrace.server.pg.transactions import Transactions
from tests.pg_pieces import FEED, INCARNATION, GivenSchemas, Place, frame_of

_TABLE: Final[dict[str, Any]] = {"table": ("public", "account")}
_TX: Final[dict[str, Any]] = {"source_tx": b"731", "source_time_ms": 1_795_000_000_100}
_SCHEMA: Final = (
    b'{"database":"public","table":"account","version":1,"columns":['
    b'{"name":"id","type":"int64","source-type":"bigint","nullable":false},'
    b'{"name":"owner","type":"string","source-type":"character varying(20)","nullable":true},'
    b'{"name":"amount","type":"decimal(10,2)","source-type":"numeric(10,2)","nullable":true},'
    b'{"name":"seal","type":"binary","source-type":"bytea","nullable":true}],"key":["id"]}'
)
_KEY: Final = b'["public","account",7]'
_OPENED: Final = b'{"id":7,"owner":"Zo\xc3\xab","amount":"12.50","seal":"AP8="}'
_LATER: Final = b'{"id":7,"owner":"Zo\xc3\xab","amount":"13.00","seal":"AP8="}'

ENTRIES: Final = (
    Change(_SCHEMA, key=b"\0schema/public/account/1", control="schema", **_TABLE),
    Change(_OPENED, key=_KEY, **_TX, **_TABLE),
    Change(_LATER, key=_KEY, tx_index=1, changed=("amount",), before=_OPENED, **_TX, **_TABLE),
    Change(_LATER, key=_KEY, op=Op.DELETE, tx_index=2, tx_last=True, **_TX, **_TABLE),
    Change(b'{"uuid":"vm-1","state":"running"}', key=b"vm-1"),
    Change(b"\xff\x00", key=b"raw"),
)
FRAME: Final = frame_of(ENTRIES, Place(first=41))
OPTIONS: Final[dict[str, tuple[dict[str, str], ...]]] = {
    "headrace": ({}, {"include-transaction": "on"}),
    "wal2json": (
        {},
        {"include-xids": "on", "include-timestamp": "on", "include-lsn": "on", "include-pk": "on"},
    ),
}
"""For each plugin, the options with which the frame is rendered."""


def lines_of(plugin: str, options: dict[str, str]) -> bytes:
    """Return what a client writes of the frame, its transactions as a stream tells them apart."""
    output = OUTPUTS[plugin](options, GivenSchemas({}))
    ended = Transactions(ZERO).follow(FRAME)
    records = records_of(
        FRAME, ended, name=lambda _: Named(FEED, INCARNATION), read=lambda _: FRAME, render=output.render
    )
    return b"".join(record.payload + b"\n" for some in records for record in some)
