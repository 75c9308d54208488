"""Filters take away what was not asked for and nothing else: deletes, control entries and unreadable values are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.wire.filters import EVERYTHING, SHARDS_MAX, EntryFilter, Shard, entry_filter, parse_shard
from headrace.wire.generated import wal_pb2

NICS = entry_filter("nics,alias", None, None)


def put(value: bytes, *changed: str, key: bytes = b"vm-1") -> wal_pb2.WalEntry:
    return wal_pb2.WalEntry(op_type=wal_pb2.OP_PUT, key=key, value=value, changed=changed)


@pytest.mark.parametrize(
    ("entry", "passes"),
    [
        (put(b'{"nics":[],"ram":1}', "nics"), True),
        (put(b'{"nics":[],"ram":1}', "ram"), False),
        (put(b'{"nics":[],"ram":1}', "ram", "alias"), True),
        (put(b'{"nics":[],"ram":1}'), True),
        (put(b'{"ram":1}'), False),
        (put(b"{}"), False),
        (put(b"[1]"), True),
        (put(b"\xff\xfe"), True),
        (put(b'{"ram":{"nics":1}}'), False),
        (wal_pb2.WalEntry(op_type=wal_pb2.OP_DELETE, key=b"vm-1", value=b'{"ram":1}'), True),
        (wal_pb2.WalEntry(key=b"\0truncate", control="truncate", value=b"{}"), True),
    ],
    ids=lambda value: str(value).replace("\n", " ")[:60],
)
def test_members_that_changed(entry: wal_pb2.WalEntry, passes: bool) -> None:
    assert NICS.passes(entry) is passes
    assert EVERYTHING.passes(entry)


def test_one_object() -> None:
    one = entry_filter(None, '["public","account",1]', None)
    assert one.passes(put(b"{}", key=b'["public","account",1]'))
    assert not one.passes(put(b"{}", key=b'["public","account",11]'))
    assert not one.passes(wal_pb2.WalEntry(op_type=wal_pb2.OP_DELETE, key=b"other"))


def test_a_batch_passes_whole_or_not_at_all() -> None:
    batch = wal_pb2.BatchWrite(
        mutations=[
            wal_pb2.Mutation(op=wal_pb2.OP_PUT, key=b"a", value=b'{"ram":1}'),
            wal_pb2.Mutation(op=wal_pb2.OP_PUT, key=b"b", value=b'{"alias":"x"}'),
        ]
    )
    entry = wal_pb2.WalEntry(op_type=wal_pb2.OP_BATCH, key=b"a", value=batch.SerializeToString())
    assert NICS.passes(entry)
    assert entry_filter(None, "b", None).passes(entry)
    assert not entry_filter("nics", None, None).passes(entry)
    assert not entry_filter("alias", "a", None).passes(entry)


@given(st.binary(max_size=40), st.integers(1, SHARDS_MAX))
def test_every_key_belongs_to_exactly_one_part(key: bytes, count: int) -> None:
    assert sum(Shard(number, count).has(key) for number in range(1, count + 1)) == 1


def test_parts_are_told_by_the_keys_checksum() -> None:
    # CRC-32C of "123456789" is the check value of its catalogue entry.
    assert Shard(0xE3069283 % 8 + 1, 8).has(b"123456789")


@given(
    st.sets(st.sampled_from(["a", "b", "c"])),
    st.one_of(st.none(), st.sampled_from([b"k", b"m"])),
    st.one_of(st.none(), st.builds(Shard, st.just(1), st.integers(1, 3))),
    st.sampled_from([b'{"a":1}', b'{"b":1,"c":2}', b"{}", b"x"]),
    st.lists(st.sampled_from(["a", "b", "c"])),
)
def test_conditions_are_all_asked_for(
    changed: set[str], key: bytes | None, shard: Shard | None, value: bytes, told: list[str]
) -> None:
    entry = put(value, *told, key=b"k")
    alone = [EntryFilter(frozenset(changed)), EntryFilter(key=key), EntryFilter(shard=shard)]
    assert EntryFilter(frozenset(changed), key, shard).passes(entry) == all(
        one.passes(entry) for one in alone
    )


@pytest.mark.parametrize("text", ["", "0/8", "9/8", "2", "2/", "/8", "2/8/1", "a/b", "-1/8", "1/1025", "1/0"])
def test_no_part_of_the_keys(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_shard(text)
    assert caught.value.members["member"] == "shard"


@pytest.mark.parametrize("text", ["", ",", "nics,,alias", ",".join(map(str, range(101)))])
def test_no_list_of_members(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        entry_filter(text, None, None)
    assert caught.value.members["member"] == "changed"


@pytest.mark.parametrize(
    ("asked", "parameters"),
    [
        (EVERYTHING, {}),
        (NICS, {"changed": "alias,nics"}),
        (EntryFilter(key="k\u00e9 &=".encode()), {"key": "k\u00e9 &="}),
        (EntryFilter(frozenset({"a"}), b"", Shard(2, 8)), {"changed": "a", "key": "", "shard": "2/8"}),
    ],
    ids=repr,
)
def test_what_a_request_says_is_read_as_what_was_meant(
    asked: EntryFilter, parameters: dict[str, str]
) -> None:
    assert asked.parameters() == parameters
    changed, key, shard = (parameters.get(name) for name in ("changed", "key", "shard"))
    assert entry_filter(changed, key, shard) == asked


@pytest.mark.parametrize(
    "asked",
    [EntryFilter(frozenset({"a,b"})), EntryFilter(key=b"\xff"), EntryFilter(shard=Shard(9, 8))],
    ids=repr,
)
def test_filter_that_no_request_can_ask_for(asked: EntryFilter) -> None:
    with pytest.raises(InvalidRequest):
        asked.parameters()


def test_text_of_a_command_line_that_is_no_utf8() -> None:
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        entry_filter("a\udcff", None, None)
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        entry_filter(None, "k\udcff", None)


def test_equal_filters_are_stored_alike() -> None:
    assert entry_filter("b,a", None, "02/8").stored() == '{"changed":"a,b","shard":"2/8"}'
    assert EVERYTHING.stored() is None


def test_of_a_key_alone_only_key_and_part_are_asked() -> None:
    asked = EntryFilter(frozenset({"a"}), b"k", Shard(1, 1))
    assert asked.has(b"k")
    assert not asked.has(b"m")
