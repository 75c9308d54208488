"""Entries encoded by hand against plain protobuf as the oracle, and against a client that knows only the RFC's proto."""

from __future__ import annotations

from array import array
from typing import Any

import google_crc32c
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from msgspec.structs import replace

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn, lsn_of
from headrace.errors import JournalCorrupt
from headrace.wire.entry import (
    checksum,
    decode_entry,
    digest,
    encode_half,
    half_of,
    has_key,
    lengths_bytes,
    message_of,
    slices,
    stamp,
)
from headrace.wire.generated import wal_pb2

TS = 1_760_000_000_000 << 18 | 9
FULL = Change(
    value=b'{"a": 1}',
    key=b"k\x00\xff",
    op=Op.PATCH,
    source_tx=b"tx-\x00",
    tx_index=300,
    tx_last=True,
    source_time_ms=1_759_999_999_999,
    copy=True,
    control="schema",
    changed=("a", "", "ö"),
    before=b'{"a": 0}',
    table=("main", "account"),
)


def stamped(*changes: Change, first: int = 63, region_id: int = 7) -> list[memoryview]:
    halves = [encode_half(change) for change in changes]
    body, lengths = stamp(
        halves,
        global_ts=TS,
        region_id=region_id,
        first_sequence_id=first,
        tenant="acme",
        key_prefix="eu:acme:vmapi::vm:",
    )
    sizes = array("I")
    sizes.frombytes(lengths)
    return list(slices(memoryview(body), sizes))


def by_protobuf(change: Change, sequence_id: int, *, last: bool) -> wal_pb2.WalEntry:
    """The same entry, made by the library from the fields alone."""
    key = change.key if change.key is not None else str(sequence_id).encode()
    message = wal_pb2.WalEntry(
        lsn=str(Lsn(TS, 7, sequence_id)),
        committed_at_ms=TS >> 18,
        tenant_id="acme",
        key_prefix="eu:acme:vmapi::vm:",
        op_type=f"OP_{change.op.wire.name}",
        key=key,
        value=change.value,
        hlc_ts=TS,
        checksum=int(google_crc32c.value(key + change.value)).to_bytes(4, "big"),
        append_end=last,
        source_tx=change.source_tx,
        tx_index=change.tx_index,
        tx_last=change.tx_last,
        source_time_ms=change.source_time_ms,
        copy=change.copy,
        control=change.control,
        patch=change.op is Op.PATCH,
        changed=change.changed,
        table=change.table,
    )
    if change.before is not None:
        message.before = change.before
    return message


CHANGES = {
    "full": FULL,
    "plain put": Change(b"{}", key=b"k"),
    "nothing but a value": Change(b'{"x":1}'),
    "nothing at all": Change(b""),
    "empty key": Change(b"v", key=b""),
    "delete keeps its value": Change(b'{"old": true}', key=b"k", op=Op.DELETE),
    "delete without a value": Change(b"", key=b"k", op=Op.DELETE),
    "batch": Change(
        wal_pb2.BatchWrite(mutations=[wal_pb2.Mutation(key=b"a", value=b"b")]).SerializeToString(),
        b"k",
        Op.BATCH,
    ),
    "before empty": Change(b"{}", key=b"k", before=b""),
    "value that looks like fields": Change(b"\x28\x00\x32\x01k\x3a\x00" * 3),
    "value over two varint bytes": Change(b"x" * 70_000),
    "control": Change(b"{}", key=b"\x00schema/main/account/1", control="schema"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_field_is_as_protobuf_makes_it(change: Change) -> None:
    first, second = stamped(change, change)
    for stored, sequence_id, last in ((first, 63, False), (second, 64, True)):
        assert message_of(stored) == by_protobuf(change, sequence_id, last=last)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_halves_come_back_byte_for_byte(change: Change) -> None:
    half = encode_half(change)
    assert [bytes(half_of(stored)) for stored in stamped(change, FULL, change)] == [
        half,
        encode_half(FULL),
        half,
    ]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_values_come_back(change: Change) -> None:
    entry = decode_entry(stamped(change)[0], 63)
    wanted = change if change.key is not None else replace(change, key=b"63")
    assert entry.change == wanted
    assert (entry.sequence_id, entry.lsn, entry.append_end) == (63, Lsn(TS, 7, 63), True)
    assert (entry.tenant_id, entry.key_prefix) == ("acme", "eu:acme:vmapi::vm:")


def test_before_empty_is_not_before_absent() -> None:
    assert encode_half(Change(b"", b"k", before=b"")) != encode_half(Change(b"", b"k"))
    assert decode_entry(stamped(Change(b"", b"k"))[0], 63).change.before is None


def test_a_half_tells_whether_it_names_its_key() -> None:
    assert has_key(encode_half(Change(b"", key=b"")))
    assert not has_key(encode_half(Change(b"\x32")))


def test_checksum_is_crc32c_of_key_and_value_big_endian() -> None:
    assert checksum(b"1234", b"56789") == bytes.fromhex("e3069283")
    assert checksum(b"", b"") == bytes(4)


def test_digest_tells_boundaries_apart() -> None:
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"]) != digest([b"abc"])
    assert digest([b"ab", memoryview(b"c")]) == digest([b"ab", b"c"])
    assert len(digest([])) == 16


def test_wrap_of_raft_index_inside_an_append() -> None:
    first = (1 << 32) - 2
    stored = stamped(*[Change(b"v")] * 4, first=first)
    lsns = [decode_entry(entry, first + index).lsn for index, entry in enumerate(stored)]
    assert lsns == [lsn_of(TS, 7, first, index) for index in range(4)] == sorted(set(lsns))
    assert [message_of(entry).hlc_ts - TS for entry in stored] == [0, 0, 1, 1]
    assert [message_of(entry).key for entry in stored] == [str(first + index).encode() for index in range(4)]


def test_lengths_are_little_endian() -> None:
    assert lengths_bytes(array("I", [1, 0x01020304])) == bytes.fromhex("0100000004030201")


def test_lengths_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(JournalCorrupt, match="add up to 3"):
        list(slices(memoryview(b"abcd"), [1, 2]))


def test_bytes_that_are_no_entry_are_refused() -> None:
    with pytest.raises(JournalCorrupt, match="not a WalEntry"):
        message_of(memoryview(b"\x0a\x02\x0a\x7f"))
    with pytest.raises(JournalCorrupt, match="op_type 9"):
        decode_entry(memoryview(b"\x0a\x02\x28\x09"), 1)
    with pytest.raises(JournalCorrupt, match="wire type 5"):
        half_of(memoryview(b"\x0a\x05\x0d\x00\x00\x00\x00"))


def rfc_message(name: str) -> Any:
    """A message class of RFC-010's proto as it stands there, without one field of ours."""
    field = descriptor_pb2.FieldDescriptorProto
    proto = descriptor_pb2.FileDescriptorProto(name="rfc010.proto", package="kdb.wal.v1", syntax="proto3")
    for enum, values in (("OpType", "PUT DELETE BATCH"), ("Compression", "NONE SNAPPY ZSTD")):
        made = proto.enum_type.add(name=enum)
        for number, value in enumerate(values.split()):
            made.value.add(name=f"{'OP_' if enum == 'OpType' else ''}{value}", number=number)
    kinds = {"s": field.TYPE_STRING, "u": field.TYPE_UINT64, "b": field.TYPE_BYTES, "e": field.TYPE_ENUM}
    entry = proto.message_type.add(name="WalEntry")
    names = "lsn:s committed_at_ms:u tenant_id:s key_prefix:s op_type:e key:b value:b hlc_ts:u checksum:b"
    for number, (label, kind) in enumerate((pair.split(":") for pair in names.split()), 1):
        type_name = ".kdb.wal.v1.OpType" if kind == "e" else None
        entry.field.add(
            name=label, number=number, type=kinds[kind], type_name=type_name, label=field.LABEL_OPTIONAL
        )
    batch = proto.message_type.add(name="WalBatch")
    batch.field.add(
        name="entries",
        number=1,
        type=field.TYPE_MESSAGE,
        type_name=".kdb.wal.v1.WalEntry",
        label=field.LABEL_REPEATED,
    )
    batch.field.add(name="first_lsn", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kdb.wal.v1.{name}"))


def test_client_of_the_rfc_reads_a_frame_body_as_a_batch() -> None:
    changes = [FULL, Change(b"v"), Change(b"{}", b"k", Op.DELETE)]
    batch = rfc_message("WalBatch").FromString(b"".join(stamped(*changes)))
    assert [entry.lsn for entry in batch.entries] == [str(Lsn(TS, 7, 63 + n)) for n in range(3)]
    assert [entry.key for entry in batch.entries] == [b"k\x00\xff", b"64", b"k"]
    assert [entry.value for entry in batch.entries] == [change.value for change in changes]
    assert [entry.op_type for entry in batch.entries] == [0, 0, 1]
    assert {entry.hlc_ts for entry in batch.entries} == {TS}
    assert {entry.committed_at_ms for entry in batch.entries} == {TS >> 18}
    assert {(entry.tenant_id, entry.key_prefix) for entry in batch.entries} == {
        ("acme", "eu:acme:vmapi::vm:")
    }
    for entry in batch.entries:
        assert entry.checksum == int(google_crc32c.value(entry.key + entry.value)).to_bytes(4, "big")
    assert "append_end" not in batch.DESCRIPTOR.fields_by_name["entries"].message_type.fields_by_name


def test_client_of_the_rfc_can_send_on_what_it_does_not_know() -> None:
    """Unknown fields survive a relay through an old client (a backup agent of the RFC)."""
    relayed = rfc_message("WalEntry").FromString(bytes(message_of(stamped(FULL)[0]).SerializeToString()))
    assert wal_pb2.WalEntry.FromString(relayed.SerializeToString()) == message_of(stamped(FULL)[0])
