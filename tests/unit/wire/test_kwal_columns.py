"""Segments as columns: the same rows as the feed's own, whatever the layout, the sizes and the cuts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn
from headrace.errors import SegmentCorrupt
from headrace.wire import columns, kwal_blocks, kwal_entries, varint
from headrace.wire.frame import Frame
from headrace.wire.generated import wal_pb2
from headrace.wire.kwal import FOOTER_SIZE, places_of
from headrace.wire.kwal_columns import SCHEMA, Segment, Wanted
from headrace.wire.kwal_feeds import FeedTable
from headrace.wire.kwal_manifest import FeedRange
from headrace.wire.walk import words_of
from tests.kwal import INCARNATION, TS, Stamped, bytes_of, manifest_of, numbered, sealed, stamped
from tests.unit.wire.test_columns import FEED, foreign_frame, frame


def rows_of(segment: Segment, **wanted: Any) -> list[dict[str, Any]]:
    batches = list(segment.batches(wanted=Wanted(**wanted)))
    for batch in batches:
        assert batch.schema.equals(SCHEMA)
        batch.validate(full=True)
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, SCHEMA).to_pylist()
    return rows


def opened(appends: list[Stamped], manifest: bool = True, near: int = 1) -> Segment:
    segment = sealed(appends)
    told = manifest_of(segment, near=near) if manifest else None
    return Segment(bytes_of(segment), where="s.bin", name=segment.name, manifest=told)


@pytest.mark.parametrize("first", [1, 0xFFFFFFFE, (5 << 32) - 2], ids=["from-1", "to-32-bits", "above"])
def test_columns_are_those_of_the_feed(first: int) -> None:
    changes = [
        Change(b'{"n":1}', key=b"k", source_tx=b"tx", tx_last=True, table=("main", "t"), source_time_ms=9),
        Change(b"", key=b"k", op=Op.DELETE, copy=True),
        Change(b"{}", op=Op.PATCH, control="schema"),
        Change(b"x" * 500, before=b"y" * 200, changed=("a", "b")),
    ]
    stored = Frame(frame(changes, first))
    lsns = [stored.header.lsn(0), stored.header.lsn(3)]
    append = Stamped(bytes(stored.body), stored.lengths.tolist(), *lsns)
    wanted = columns.record_batch(frame(changes, first), feed=FEED).to_pylist()
    rows = rows_of(opened([append], near=first))
    assert rows == [{**row, "incarnation": INCARNATION} for row in wanted]
    unknown = rows_of(opened([append], manifest=False))
    assert unknown == [{**row, "incarnation": None, "sequence_id": None} for row in wanted]


def test_entries_of_foreign_writers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = []
    for number in range(40):
        lsn = Lsn(TS, 7, number + 1)
        text = str(lsn) if number % 3 else f"{lsn.global_ts:x}.7.{number + 1}"
        message = wal_pb2.WalEntry(
            lsn=text, key=b"k" * number, value=b"v", key_prefix="eu:t:a:b:", tenant_id="t"
        )
        body = message.SerializeToString()
        bodies.append(
            body if number % 5 else varint.tag(20_000, 2) + b"\x01x" + body
        )  # a tag that the walk does not know
    stored = Frame(foreign_frame(bodies))
    append = Stamped(bytes(stored.body), stored.lengths.tolist(), Lsn(TS, 7, 1), Lsn(TS, 7, 40))
    monkeypatch.setattr(kwal_blocks, "BLOCK_BYTES", 300)
    rows = rows_of(opened([append]))
    assert [row["sequence_id"] for row in rows] == list(range(1, 41))
    assert {row["feed"] for row in rows} == {"a:b"}
    assert [row["key"] for row in rows] == [b"k" * number for number in range(40)]
    assert {row["commit_ts"] for row in rows} == {TS}


def test_every_entry_is_found_by_lanes_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kwal_entries, "LANE_BYTES", 500)
    random.seed(7)
    inner = bytes_of(sealed([numbered(1, 5)]))
    appends, first = [], 1
    for _ in range(60):
        values = [random.choice([b"", b"v" * 90, b"w" * 400, inner, b"x" * 20_000]) for _ in range(4)]
        appends.append(stamped([Change(value) for value in values], first, ts=TS + first))
        first += 4
    for chosen in (appends, [one for one in appends if inner[:40] not in one.body]):
        data = bytes_of(sealed(chosen))
        head = Segment(data, where="s").head
        places = [place[1:] for place in places_of(data, head, "s")]
        starts, ends = kwal_entries.find_entries(data, head, "s")
        assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == places
        assert [bytes(entry) for entry in Segment(data, where="s").entries()] == [
            data[start:end] for start, end in places
        ]


@given(st.sets(st.integers(0, 3_000), max_size=4))
def test_what_is_no_chain_is_not_believed(wrong: set[int]) -> None:
    data = bytes_of(sealed([numbered(1, 40)]))
    head = Segment(data, where="s").head
    limit = len(data) - FOOTER_SIZE
    places = list(places_of(data, head, "s"))
    anchors = sorted({head.size, *(head.size + at for at in wrong if head.size + at < limit)})
    found = kwal_entries._chained(np.frombuffer(data, np.uint8), np.asarray(anchors, np.int64), limit)
    if found is None:
        assert not set(anchors) <= {place.head for place in places}
    else:
        assert [part.tolist() for part in found] == [
            [place.start for place in places],
            [place.end for place in places],
        ]


def test_anchors_that_are_none_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes_of(sealed([numbered(1, 40)]))
    head = Segment(data, where="s").head
    starts, ends = kwal_entries.find_entries(data, head, "s")
    monkeypatch.setattr(kwal_entries, "_anchors", lambda *_: [int(starts[20]) + 1])
    again = kwal_entries.find_entries(data, head, "s")
    assert [part.tolist() for part in again] == [starts.tolist(), ends.tolist()]


def test_ids_far_from_a_range_s_first() -> None:
    segment = opened([stamped([Change(b"{}")], 5_000_000_000, ts=TS)], manifest=False)
    (block,) = segment.blocks()
    whole = FeedRange(
        feed="vmapi::vm",
        region_id=7,
        incarnation="life",
        first_sequence_id=(1 << 32) + 9,
        last_sequence_id=5_000_000_000,
        first_lsn=str(Lsn(TS - 9, 7, 9)),
        last_lsn=str(Lsn(TS, 7, 5_000_000_000 & 0xFFFFFFFF)),
    )
    ids = FeedTable([whole]).rows(block).sequence_ids
    assert ids is not None
    assert ids.tolist() == [5_000_000_000]


def test_lanes_need_no_walk_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kwal_entries, "LANE_BYTES", 500)
    monkeypatch.setattr(kwal_entries, "places_of", None)
    segment = opened([numbered(1, 300), numbered(301, 300, size=70)])
    assert [row["sequence_id"] for row in rows_of(segment)] == list(range(1, 601))


def mixed() -> tuple[list[Stamped], list[tuple[str, int]]]:
    """Appends of two feeds in turn, and (feed, sequence id) of each entry."""
    appends, wanted = [], []
    for first in range(1, 200, 10):
        for region, feed in ((7, "vmapi::vm"), (9, "orders")):
            ts = TS + 2 * first + region
            changes = [Change(b"{}", key=b"k")] * 10
            appends.append(stamped(changes, first, ts=ts, region=region, feed=feed))
            wanted += [(feed, number) for number in range(first, first + 10)]
    return appends, wanted


def test_feeds_and_ranges_are_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kwal_blocks, "BLOCK_BYTES", 700)
    appends, wanted = mixed()
    for manifest in (True, False):
        segment = opened(appends, manifest)
        assert [row["feed"] for row in rows_of(segment)] == [feed for feed, _ in wanted]
        assert {row["feed"] for row in rows_of(segment, feeds=("orders",))} == {"orders"}
        assert len(rows_of(segment, feeds=("orders", "none"))) == 200
    everything = rows_of(opened(appends))
    assert [(row["feed"], row["sequence_id"]) for row in everything] == wanted
    lsns = [row["lsn"] for row in everything]
    assert lsns == sorted(lsns)
    segment = opened(appends)
    for first, last in ((0, 399), (17, 17), (95, 231)):
        found = rows_of(segment, first=Lsn.parse(lsns[first]), last=Lsn.parse(lsns[last]))
        assert [row["lsn"] for row in found] == lsns[first : last + 1]
    assert [row["sequence_id"] for row in rows_of(segment, feeds=("orders",), first_id=5, last_id=12)] == [
        *range(5, 13)
    ]
    (batch,) = segment.batches(("value", "feed"), Wanted(first=Lsn.parse(lsns[3]), last=Lsn.parse(lsns[3])))
    assert batch.schema.names == ["value", "feed"]


def test_two_histories_of_a_feed_are_told_apart() -> None:
    before, after = numbered(1, 20), stamped([Change(b"new")] * 8, 15, ts=TS + 100)
    segment = sealed([before, after])
    manifest = manifest_of(segment)
    assert [(one.first_sequence_id, one.last_sequence_id) for one in manifest.feeds] == [(1, 20), (15, 22)]
    feeds = (manifest.feeds[0], replace(manifest.feeds[1], incarnation="second-life"))
    opened = Segment(bytes_of(segment), where="s", manifest=replace(manifest, feeds=feeds))
    rows = rows_of(opened)
    assert [row["sequence_id"] for row in rows] == [*range(1, 21), *range(15, 23)]
    assert [row["incarnation"] for row in rows] == [INCARNATION] * 20 + ["second-life"] * 8
    assert [row["value"] for row in rows_of(opened, incarnation="second-life")] == [b"new"] * 8


def test_a_segment_that_its_manifest_or_name_is_not_of_is_refused() -> None:
    segment, other = sealed([numbered(1, 20)]), sealed([numbered(1, 21)])
    data = bytes_of(segment)
    with pytest.raises(SegmentCorrupt, match="than its name says"):
        Segment(data, where="s.bin", name=other.name)
    with pytest.raises(SegmentCorrupt, match="its manifest says"):
        Segment(data, where="s.bin", manifest=manifest_of(other))
    manifest = manifest_of(segment)
    wrong = replace(manifest, feeds=(replace(manifest.feeds[0], last_sequence_id=19),))
    with pytest.raises(SegmentCorrupt, match=r"lsn=\S+0000000020 is in no range of the manifest"):
        rows_of(Segment(data, where="s.bin", manifest=wrong))
    wrong = replace(manifest, feeds=(replace(manifest.feeds[0], feed="orders"),))
    with pytest.raises(SegmentCorrupt, match="is of the feed vmapi::vm; the manifest says orders"):
        rows_of(Segment(data, where="s.bin", manifest=wrong))


def test_lsns_that_do_not_grow_are_refused() -> None:
    bodies = [wal_pb2.WalEntry(lsn=str(Lsn(TS, 7, at))).SerializeToString() for at in (1, 3, 2, 4)]
    stored = Frame(foreign_frame(bodies))
    segment = sealed([Stamped(bytes(stored.body), stored.lengths.tolist(), Lsn(TS, 7, 1), Lsn(TS, 7, 4))])
    with pytest.raises(SegmentCorrupt, match=r"0000000002 stands behind lsn=\S+0000000003"):
        rows_of(Segment(bytes_of(segment), where="s.bin"))
    beyond = wal_pb2.WalEntry(lsn=f"{TS:016x}.9999999999.0000000001").SerializeToString()
    stored = Frame(foreign_frame([beyond]))
    wrong = sealed([Stamped(bytes(stored.body), stored.lengths.tolist(), Lsn(TS, 7, 1), Lsn(TS, 7, 1))])
    with pytest.raises(SegmentCorrupt, match=r"an entry has the LSN .*9999999999"):
        rows_of(Segment(bytes_of(wrong), where="s.bin"))
    bodies[1:3] = bodies[2:0:-1]
    stored = Frame(foreign_frame(bodies))
    misnamed = sealed([Stamped(bytes(stored.body), stored.lengths.tolist(), Lsn(TS, 7, 1), Lsn(TS, 7, 5))])
    with pytest.raises(SegmentCorrupt, match=r"the last entry has the lsn=\S+0000000004"):
        rows_of(Segment(bytes_of(misnamed), where="s.bin"))


LSNS = st.builds(
    Lsn, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1)
)


def canonical(texts: list[str]) -> list[Lsn] | None:
    """What array operations read of these texts; None if they leave them to the parser."""
    buffer = np.frombuffer("--".join((*texts, "x" * 96)).encode(), np.uint8)
    read = kwal_blocks._canonical(words_of(buffer), np.arange(len(texts)) * 40)
    return None if read is None else [read.at(row) for row in range(len(texts))]


@given(st.lists(LSNS, min_size=1, max_size=5))
def test_lsns_are_read_as_they_are_written(lsns: list[Lsn]) -> None:
    assert canonical([str(lsn) for lsn in lsns]) == lsns


def test_what_is_no_lsn_is_left_to_the_parser() -> None:
    known = "0123456789abcdef.0123456789.0123456789"
    for at in range(len(known)):
        for character in "09afAFgG.,-/*+(:; ~":
            text = known[:at] + character + known[at + 1 :]
            read = canonical([known, text])
            assert read is None or read == [Lsn.parse(known), Lsn.parse(text)], text
            assert read is not None or character not in "09" or at in {16, 17, 27, 28}
