"""Manifests: what is written is read, and what contradicts itself or the segment is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import FormatTooNew, SegmentCorrupt
from headrace.wire import kwal_blocks
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_feeds import FeedRun, survey
from headrace.wire.kwal_manifest import decode_manifest, encode_manifest
from tests.golden.kwal import segments
from tests.kwal import TS, bytes_of, manifest_of, sealed, stamped


def test_what_is_written_is_read() -> None:
    for _, manifest in segments():
        assert decode_manifest(encode_manifest(manifest), "m") == manifest
    later = json.loads(encode_manifest(manifest)) | {"written-as": 2, "of-a-later-version": 1}
    assert decode_manifest(json.dumps(later).encode(), "m").entries == manifest.entries


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
    document = json.loads(encode_manifest(segments()[0][1]))
    with pytest.raises(SegmentCorrupt, match=r"^m\.json"):
        decode_manifest(json.dumps(document | {member: value}).encode(), "m.json")
    del document[member]
    if member != "predecessor":
        with pytest.raises(SegmentCorrupt):
            decode_manifest(json.dumps(document).encode(), "m.json")


@pytest.mark.parametrize(
    ("member", "value"),
    [("first-sequence-id", 7), ("last-sequence-id", 8), ("region-id", 8), ("last-lsn", "1.7.1")],
)
def test_a_range_that_does_not_fit_its_ids_is_refused(member: str, value: Any) -> None:
    document = json.loads(encode_manifest(segments()[0][1]))
    document["feeds"][0][member] = value
    with pytest.raises(SegmentCorrupt, match="does not fit"):
        decode_manifest(json.dumps(document).encode(), "m.json")


def test_a_newer_manifest_is_left_alone() -> None:
    document = json.loads(encode_manifest(segments()[0][1])) | {
        "readable-from": 2,
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
