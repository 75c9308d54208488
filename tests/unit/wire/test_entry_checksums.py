"""Entries of a segment against their own checksums: whoever laid them out, and whoever named their key."""

from __future__ import annotations

import pytest

from headrace.entries.entry import Change, Op
from headrace.errors import JournalCorrupt
from headrace.wire import varint
from headrace.wire.entry_checksums import check_block, fitting
from headrace.wire.generated import wal_pb2
from headrace.wire.kwal import SegmentWriter
from headrace.wire.kwal_columns import Segment
from tests.kwal import TS, Stamped, bytes_of, sealed, stamped

CHANGES = [
    Change(b'{"n":1}', key=b"k1"),
    Change(b'{"n":2}'),  # the server's key: it stands before the value, and so does the checksum
    Change(b"", key=b"k3", op=Op.DELETE),
    Change(b"x" * 300, key=b"", source_tx=b"tx", tx_last=True),
]


def foreign(append: Stamped) -> Stamped:
    """The same entries with a field that nobody knows, in the wire type of a float, in front."""
    sizes: list[int] = []
    body, at = b"", 0
    for size in append.sizes:
        entry = wal_pb2.WalBatch.FromString(append.body[at : at + size]).entries[0].SerializeToString()
        at += size
        entry = varint.tag(900, 5) + b"1234" + entry
        stored = b"\x0a" + varint.encode(len(entry)) + entry
        body, sizes = body + stored, [*sizes, len(stored)]
    return append._replace(body=body, sizes=sizes)


@pytest.mark.parametrize("layout", [lambda append: append, foreign], ids=["ours", "foreign"])
def test_every_entry_fits(layout: object) -> None:
    append = stamped(CHANGES, 1, ts=TS)
    made = layout(append)  # type: ignore[operator]  # one of the two above
    for block in Segment(bytes_of(sealed([made])), where="a segment").blocks():
        check_block(block)
        assert fitting(block.data, block.found).all() == (made is append)


@pytest.mark.parametrize("value", [b'"n":1', b'"n":2', b"k3", b"xxx"])
def test_an_entry_that_does_not_is_named(value: bytes) -> None:
    append = stamped(CHANGES, 1, ts=TS)
    writer = SegmentWriter()
    torn = append.body.replace(value, bytes([value[0] ^ 1]) + value[1:], 1)
    assert torn != append.body
    writer.add(torn, append.sizes, append.first, append.last)
    (block,) = Segment(bytes_of(writer.seal()), where="a segment").blocks()
    with pytest.raises(JournalCorrupt, match="does not fit its checksum") as refused:
        check_block(block)
    number = [b'"n":1', b'"n":2', b"k3", b"xxx"].index(value) + 1
    assert refused.value.members["lsn"].endswith(f".{number:010d}")
