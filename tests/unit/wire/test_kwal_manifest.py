"""Manifests: what is written is read, and what contradicts itself or the segment is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import FormatTooNew, SegmentCorrupt
from headrace.wire import kwal_blocks
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_feeds import FeedRun, survey
from headrace.wire.kwal_left_open import WAITING_MAX, LeftOpen
from headrace.wire.kwal_manifest import Manifest, decode_manifest, encode_manifest, sealed_document
from headrace.wire.versions import KWAL_MANIFEST
from tests.golden.kwal import segments
from tests.kwal import INCARNATION, TS, Stamped, bytes_of, manifest_of, sealed, stamped


def opened(manifest: Manifest) -> dict[str, Any]:
    """The document less its checksum."""
    document: dict[str, Any] = json.loads(encode_manifest(manifest))
    del document["manifest-crc"]
    return document


def closed(document: dict[str, Any]) -> bytes:
    """The file of a document, with a checksum that fits."""
    return sealed_document(json.dumps(document).encode())


@given(st.data())
def test_a_bit_that_is_flipped_is_found(data: st.DataObject) -> None:
    whole = encode_manifest(segments()[1][1])
    at = data.draw(st.integers(0, 8 * len(whole) - 1))
    flipped = bytearray(whole)
    flipped[at // 8] ^= 1 << at % 8
    with pytest.raises((SegmentCorrupt, FormatTooNew)):
        decode_manifest(bytes(flipped), "m.json")


def test_a_manifest_without_its_checksum_is_refused() -> None:
    with pytest.raises(SegmentCorrupt, match=r"m\.json has no checksum at its end"):
        decode_manifest(json.dumps(opened(segments()[0][1])).encode(), "m.json")
    with pytest.raises(SegmentCorrupt, match=r"m\.json is not as it was written: its checksum does not fit"):
        decode_manifest(encode_manifest(segments()[0][1]).replace(b"agent", b"agenT") + b" ", "m.json")


def test_what_is_written_is_read() -> None:
    for _, manifest in segments():
        assert decode_manifest(encode_manifest(manifest), "m") == manifest
    later = opened(manifest) | {"written-as": 3, "of-a-later-version": 1}
    assert decode_manifest(closed(later), "m").entries == manifest.entries
    older = opened(manifest) | {"written-as": 1}
    assert decode_manifest(json.dumps(older).encode(), "m") == replace(manifest, written_as=1)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("segment", "kdb-wal-1.1.1-1.1.2.bin"),
        ("first-lsn", "1.1.1"),
        ("walked-from", "x"),
        ("entries", 6),
        ("feeds", []),
        ("predecessor", {"name": "x", "last-lsn": "y", "crc": 1}),
        ("crc", "text"),
    ],
)
def test_what_contradicts_itself_is_refused(member: str, value: Any) -> None:
    document = opened(segments()[0][1])
    with pytest.raises(SegmentCorrupt, match=r"^m\.json"):
        decode_manifest(closed(document | {member: value}), "m.json")
    del document[member]
    if member != "predecessor":
        with pytest.raises(SegmentCorrupt):
            decode_manifest(closed(document), "m.json")


@pytest.mark.parametrize(
    ("member", "value"),
    [("first-sequence-id", 7), ("last-sequence-id", 8), ("region-id", 8), ("last-lsn", "1.7.1")],
)
def test_a_range_that_does_not_fit_its_ids_is_refused(member: str, value: Any) -> None:
    document = opened(segments()[0][1])
    document["feeds"][0][member] = value
    with pytest.raises(SegmentCorrupt, match="does not fit its sequence ids"):
        decode_manifest(closed(document), "m.json")


def test_a_newer_manifest_is_left_alone() -> None:
    document = opened(segments()[0][1]) | {
        "readable-from": KWAL_MANIFEST.written_as + 1,
        "entries": "of another type",
    }
    with pytest.raises(FormatTooNew, match=r"m\.json"):
        decode_manifest(json.dumps(document).encode(), "m.json")
    with pytest.raises(SegmentCorrupt):
        decode_manifest(b"\xff", "m.json")


@given(st.integers(1, 1 << 45), st.integers(-((1 << 31) - 1), (1 << 31) - 1))
def test_a_run_is_placed_by_an_id_near_it(first: int, apart: int) -> None:
    run = FeedRun(7, "f", Lsn(TS, 7, first & 0xFFFFFFFF), Lsn(TS, 7, first & 0xFFFFFFFF), 1)
    placed = run.placed("life", first + apart)
    assert (placed.first_sequence_id, placed.last_sequence_id) == (first, first)


@pytest.mark.parametrize("odd", [False, True])
def test_a_survey_tells_whether_a_feed_ends_whole(monkeypatch: pytest.MonkeyPatch, *, odd: bool) -> None:
    monkeypatch.setattr(kwal_blocks, "BLOCK_BYTES", 500)

    def ends_whole(*txs: tuple[str, bool]) -> bool | None:
        # A number over 63 bits is left to protobuf.
        index = 1 << 63 if odd else 0
        changes = [
            Change(b"{}" + b" " * 90, source_tx=tx.encode(), tx_last=last, tx_index=index if tx else 0)
            for tx, last in txs
        ]
        return manifest_of(sealed([stamped(changes, 1, ts=TS)])).feeds[0].ends_whole

    assert ends_whole(("", False)) is True
    assert ends_whole(("A", False), ("A", True)) is True
    assert ends_whole(("A", True), ("A", False)) is False
    assert ends_whole(("A", False), *[("", False)] * 20, ("B", True)) is False
    assert ends_whole(("A", False), *[("", False)] * 20, ("B", True), ("A", True)) is True
    body, sizes, first, last = stamped([Change(b"{}")] * 2, 1, ts=TS)
    half = Stamped(body[: sizes[0]], sizes[:1], first, last._replace(raft_index=1))
    assert manifest_of(sealed([half])).feeds[0].ends_whole is False, "an append goes on"


@pytest.mark.parametrize("odd", [False, True])
def test_a_survey_finds_what_goes_on_and_what_is_left_open(
    monkeypatch: pytest.MonkeyPatch, *, odd: bool
) -> None:
    monkeypatch.setattr(kwal_blocks, "BLOCK_BYTES", 500)
    left, ids = LeftOpen(), {7: 1, 9: 1}

    def told(*txs: tuple[int, str, bool]) -> list[tuple[str, list[bytes], list[bytes]]]:
        appends = []
        for region, tx, last in txs:
            change = Change(b"{}" + b" " * 90, source_tx=tx.encode(), tx_last=last, tx_index=odd << 63)
            ts = TS + sum(ids.values())
            appends.append(stamped([change], ids[region], ts=ts, region=region, feed=f"f{region}"))
            ids[region] += 1
        feeds = manifest_of(sealed(appends), left=left).feeds
        found = []
        for one in feeds:
            assert one.left_open is not None
            assert one.continued is not None
            left_open, continued = map(bytes.fromhex, one.left_open), map(bytes.fromhex, one.continued)
            found.append((one.feed, list(left_open), list(continued)))
        return found

    filler = [(7, "", False)] * 20
    assert told((7, "A", False), *filler, (7, "B", False), (9, "A", True)) == [
        ("f7", [b"A", b"B"], []),
        ("f9", [], []),
    ]
    assert told(*filler, (9, "C", False), (9, "A", False)) == [("f7", [], []), ("f9", [b"A", b"C"], [])]
    assert told(*filler, (7, "B", True), (7, "C", False), (7, "B", False)) == [("f7", [b"B", b"C"], [b"B"])]
    assert told((7, "A", False), *filler, (9, "A", True), (9, "B", False)) == [
        ("f7", [b"A"], [b"A"]),
        ("f9", [b"B"], [b"A"]),
    ]
    assert told((7, "A", True), (9, "C", False)) == [("f7", [], [b"A"]), ("f9", [b"C"], [b"C"])]
    assert told((7, "A", True), (7, "B", True)) == [("f7", [], [b"B"])]


def test_of_two_runs_of_a_history_the_second_goes_on_with_what_the_first_leaves_open() -> None:
    left = LeftOpen()
    appends = [
        stamped([Change(b"{}", source_tx=b"A", tx_last=first > 1)], first, ts=TS + first) for first in (1, 7)
    ]
    first, second = manifest_of(sealed(appends), left=left).feeds
    assert (first.left_open, first.continued) == ((b"A".hex(),), ())
    assert (second.left_open, second.continued) == ((), (b"A".hex(),))
    assert not left.names()


@pytest.mark.parametrize(
    ("names", "many"), [([b"x" * 255], 1), ([b"x" * 256], None), ([b"%d" % at for at in range(257)], None)]
)
def test_too_many_names_are_told_by_none(names: list[bytes], many: int | None) -> None:
    left = LeftOpen()
    changes = [Change(b"{}", source_tx=name) for name in names]
    (part,) = manifest_of(sealed([stamped(changes, 1, ts=TS)]), left=left).feeds
    assert (None if part.left_open is None else len(part.left_open)) == many
    assert (part.ends_whole, part.continued) == (False, ())


def test_of_transactions_that_nobody_ends_the_newest_wait() -> None:
    left, part = LeftOpen(), manifest_of(sealed([stamped([Change(b"{}")], 1, ts=TS)])).feeds[0]
    part = replace(part, ends_whole=False, continued=())
    names = [f"{number:04x}" for number in range(WAITING_MAX + 100)]
    for at in range(0, len(names), 10):
        left.take(replace(part, left_open=tuple(names[at : at + 10])), at)
    assert list(left.of(7, INCARNATION)) == names[100:]
    assert left.of(7, "another") == set()
    assert left.take(replace(part, continued=(names[0], names[100]), left_open=()), 9_999) == (
        [(names[100], 100)],
        [],
    )
    # An older agent's segment may have had any of them.
    taken = left.take(replace(part, continued=None, left_open=None), 10_000)
    assert [name for name, _ in taken.unsure] == names[101:]
    assert not left.names()


@pytest.mark.parametrize(
    ("member", "value"),
    [("left-open", ["xy"]), ("continued", ["0"]), ("continued", [""]), ("left-open", [7])],
)
def test_a_name_that_is_none_is_refused(member: str, value: list[Any]) -> None:
    document = opened(segments()[0][1])
    document["feeds"][0] |= {"ends-whole": False, member: value}
    with pytest.raises(SegmentCorrupt, match=r"^m\.json"):
        decode_manifest(closed(document), "m.json")


def test_a_range_that_ends_whole_leaves_nothing_open() -> None:
    document = opened(segments()[0][1])
    document["feeds"][0]["left-open"] = ["78"]
    with pytest.raises(SegmentCorrupt, match="ends whole and leaves some open"):
        decode_manifest(closed(document), "m.json")


def test_a_survey_finds_feeds_runs_and_source_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kwal_blocks, "BLOCK_BYTES", 500)
    timed = [Change(b"{}", source_time_ms=ms) for ms in (50, 0, 20, 90)]
    appends = [
        stamped(timed, (1 << 32) - 2, ts=TS),
        stamped(timed[:2], 1, ts=TS + 5, region=9, feed="a:b"),
        stamped(timed[1:2], 2, ts=TS + 6),
        stamped(timed[1:2], 7, ts=TS + 7),
        stamped([Change(b"{}")] * 30, 3, ts=TS + 8, region=9, feed="a:b"),
    ]
    runs = survey(Segment(bytes_of(sealed(appends)), where="s").blocks())
    assert [
        (run.feed, run.region_id, run.entries, run.source_time_first_ms, run.source_time_last_ms)
        for run in runs
    ] == [
        ("vmapi::vm", 7, 5, 20, 90),
        ("a:b", 9, 32, 50, 50),
        ("vmapi::vm", 7, 1, 0, 0),
    ]
    assert [run.first_lsn.raft_index for run in runs] == [(1 << 32) - 2, 1, 7]
    assert manifest_of(sealed(appends)).feeds[1].first_sequence_id == 1
