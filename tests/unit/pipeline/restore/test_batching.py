"""Segments and a base's rows are cut into batches of a bounded size, in order, none left out."""

from __future__ import annotations

from headrace.archive.moments.histories import Span
from headrace.entries.lsn import ZERO
from headrace.pipeline.restore.batching import row_ranges, segment_batches
from headrace.pipeline.restore.scanning import Part
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_columns import LSN_MAX
from tests.kwal import INCARNATION, manifest_of, numbered, sealed


def parts_of(segments: list[Sealed]) -> list[Part]:
    return [Part(str(one.name), one.size, manifest_of(one, near=1)) for one in segments]


def spans_of(*feeds: str, incarnation: str = INCARNATION) -> dict[tuple[str, str], Span]:
    return {(feed, incarnation): Span(feed, 7, incarnation, 1, 99, ZERO) for feed in feeds}


def test_segments_are_gathered_up_to_a_number_of_entries() -> None:
    segments = [
        sealed([numbered(1, 4)]),
        sealed([numbered(5, 4), numbered(9, 1, region=9, feed="orders")]),
        sealed([numbered(10, 3, region=9, feed="orders")]),
        sealed([numbered(9, 8)]),
    ]
    parts = parts_of(segments)
    both = spans_of("vmapi::vm", "orders")
    target = LSN_MAX
    found = segment_batches(parts, both, ZERO, target, 9)
    assert [[parts.index(part) for part in one.parts] for one in found] == [[0, 1], [2], [3]]
    assert [one.feeds for one in found] == [("orders", "vmapi::vm"), ("orders",), ("vmapi::vm",)]
    assert sum(one.bytes for one in found) == sum(part.size for part in parts)
    (only,) = segment_batches(parts, spans_of("orders"), ZERO, target, 100)
    assert ([parts.index(part) for part in only.parts], only.feeds) == ([1, 2], ("orders",))
    assert segment_batches(parts, spans_of("orders", incarnation="another"), ZERO, target, 100) == []


def test_feeds_of_a_batch_have_entries_between_base_and_target() -> None:
    segment = sealed([numbered(1, 4), numbered(9, 1, region=9, feed="orders")])
    (part,) = parts_of([segment])
    both = spans_of("vmapi::vm", "orders")
    ends = [segment.name.last, segment.name.last._replace(global_ts=segment.name.last.global_ts - 1)]
    assert [segment_batches([part], both, ZERO, end, 9)[0].feeds for end in ends] == [
        ("orders", "vmapi::vm"),
        ("vmapi::vm",),
    ]
    assert segment_batches([part], both, ends[1], ends[0], 9)[0].feeds == ("orders",)


def test_ranges_of_rows_leave_nothing_out() -> None:
    end = (1 << 63) - 1
    assert row_ranges([], 10) == [(0, end)]
    assert row_ranges([(5, 4), (10, 4), (15, 4), (20, 40), (25, 1)], 10) == [
        (0, 14),
        (15, 19),
        (20, 24),
        (25, end),
    ]
