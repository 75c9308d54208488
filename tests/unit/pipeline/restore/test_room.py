"""What a restore takes is told before it is written: what is sure refuses, what is not warns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.archive.moments.histories import Span
from headrace.entries.lsn import ZERO
from headrace.errors import ArchiveFull
from headrace.pipeline.restore.lines import Kept
from headrace.pipeline.restore.room import Room, check_room, room_of
from headrace.pipeline.restore.scanning import Part
from headrace.wire.base_manifest import BaseFeed, BaseFile, BaseManifest
from tests.kwal import INCARNATION, manifest_of, numbered, sealed

VM, ORDERS = "vmapi::vm", "orders"


def kept(*feeds: str) -> list[Kept]:
    return [Kept(feed, (Span(feed, 7, INCARNATION, 1, 99, ZERO),), 1, 99, ZERO, ()) for feed in feeds]


def base(**entries: int) -> BaseManifest:
    """A base of 1,000 bytes in two files."""
    names = {"vm": VM, "orders": ORDERS}
    return BaseManifest(
        lsn=str(ZERO),
        committed_at_ms=0,
        created_at_ms=0,
        buckets=1,
        feeds=tuple(
            BaseFeed(
                feed=names[name],
                region_id=7,
                incarnation=INCARNATION,
                first_sequence_id=1,
                sequence_id=count,
                lsn=str(ZERO),
                entries=count,
            )
            for name, count in entries.items()
        ),
        files=tuple(
            BaseFile(path=path, bucket=0, rows=1, size=size, crc=0) for path, size in (("a", 400), ("b", 600))
        ),
    )


def test_a_restore_of_all_feeds_takes_the_base_once_or_twice() -> None:
    whole = base(vm=30, orders=10)
    both = kept(VM, ORDERS)
    assert room_of(whole, [], both, pieces_of=None) == Room(1000, 1, True, 0)
    assert room_of(whole, [], both, pieces_of=30) == Room(1000, 1, True, 0), "two are read from the base"
    cut = room_of(whole, [], both, pieces_of=29)
    assert cut == Room(1000, 2, True, 0)
    assert (cut.needed, cut.expected) == (1000, 2000)


def test_of_some_feeds_nobody_knows_the_bytes() -> None:
    some = room_of(base(vm=30, orders=10), [], kept(VM), pieces_of=None)
    assert some == Room(750, 1, False, 0)
    assert (some.needed, some.expected) == (0, 750)
    assert room_of(base(), [], kept(VM), pieces_of=5) == Room(0, 1, True, 0)


def test_of_segments_the_wanted_entries_count() -> None:
    one = sealed([numbered(1, 4), numbered(9, 12, region=9, feed=ORDERS)])
    part = Part(str(one.name), one.size, manifest_of(one, near=1))
    assert room_of(None, [part], kept(VM, ORDERS), pieces_of=1) == Room(0, 1, True, one.size)
    assert room_of(None, [part, part], kept(VM), pieces_of=1).segments == 2 * (one.size // 4)
    assert room_of(None, [part], kept("another"), pieces_of=1).expected == 0


def test_what_is_sure_refuses_and_what_is_not_warns(tmp_path: Path) -> None:
    out, free = tmp_path / "new" / "out", shutil.disk_usage(tmp_path).free
    assert check_room(out, Room(0, 1, True, 0)) == []
    assert check_room(out, Room(free // 8, 2, True, free // 8)) == []
    (warning,) = check_room(out, Room(free // 8, 2, True, 2 * free))
    assert f"base and segments have {2 * (free // 8) + 2 * free:,}, the base twice" in warning
    assert len(check_room(out, Room(2 * free, 1, False, 0))) == 1
    with pytest.raises(
        ArchiveFull,
        match=rf"bytes, and the base alone has {2 * free:,}; with the segments it may take {3 * free:,}",
    ):
        check_room(out, Room(2 * free, 1, True, free))
    assert not out.parent.exists()
