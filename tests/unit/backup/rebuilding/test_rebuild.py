"""A journal rebuilt from its archive has the same entries, and goes on where they end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.archive.moments.planning import KeptFeed
from headrace.backup.rebuilding.rebuild import rebuild
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import (
    FeedOwned,
    Fenced,
    HeadraceError,
    NotRegistered,
    OffsetMismatch,
    RestoreInexact,
    SegmentGap,
    TargetInsideAppend,
)
from headrace.log.control import NO_DIGEST
from headrace.log.history import lsn_at
from headrace.log.replay import Replay
from headrace.log.requests import Append, Configure
from headrace.log.tail import FeedTail, JournalState
from headrace.wire.entry import digest
from headrace.wire.frame import Area, FrameHeader, FrameKind, decode_area
from tests.bench import AGENT, Bench, expecting, half
from tests.rebuilding import Backup, archive, feed_of, means, opened, plan_of, rebuilt, stream


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "server") as journal:
        yield journal


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    return Backup(tmp_path / "archive")


def fill(bench: Bench, feed: str, *appends: int, mark: str = "") -> list[Lsn]:
    """Append so many entries each time; returns the LSN of each append's last entry."""
    return [
        bench.append(feed, *(f"{feed}{mark}-{number}-{at}" for at in range(size))).last_lsn
        for number, size in enumerate(appends)
    ]


def plain(bench: Bench) -> list[tuple[bytes, Lsn, int]]:
    return [one[:3] for one in stream(bench)]


def test_same_entries_lsns_and_sequence_ids(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    """Over appends that go over the ends of segments, and several files of the journal."""
    bench.register("one")
    bench.register("two", tenant="acme")
    for _ in range(12):
        fill(bench, "one", 3, 1)
        fill(bench, "two", 2)
    wanted = plain(bench)
    backup.take(bench, sizes=(1, 4, 20, 7))
    made = rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        assert plain(again) == wanted
        assert len(again.store.segments()) > 3
        assert again.walked() == bench.walked()
        for feed in ("one", "two"):
            before, tail = bench.tail(feed), again.tail(feed)
            assert (tail.next_sequence_id, tail.newest_lsn, tail.oldest) == (
                before.next_sequence_id,
                before.newest_lsn,
                1,
            )
            assert (tail.region_id, tail.tenant, tail.owner) == (
                before.region_id,
                before.tenant,
                before.owner,
            )
            assert tail.incarnation != before.incarnation
            assert tail.epoch > before.epoch
            assert again.values(feed) == bench.values(feed)
        assert again.store.dropped_lsn() == ZERO
    assert (made.entries, made.frames) == (12 * 6, 12 * 3)
    assert made.server_regions == ("local",)
    assert not made.left_out


def test_journal_goes_on_above_everything_that_was_given(
    bench: Bench, backup: Backup, tmp_path: Path
) -> None:
    bench.register("f")
    fill(bench, "f", 2)
    backup.take(bench)
    lost = fill(bench, "f", 1, 1)[-1]
    rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        with pytest.raises(NotRegistered):
            again.append("f", "x")
        epoch = again.register("f").epoch
        assert epoch > bench.tail("f").epoch
        appended = again.append("f", "x", epoch=epoch)
        assert appended.first_sequence_id == 3
        assert appended.first_lsn > lost
        with pytest.raises(FeedOwned):
            again.register("f", "agent-2")
        assert again.register("new").region_id == 2


def test_clock_that_leads_goes_on_behind_what_was_lost(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    """The machine that rebuilds has a clock an hour behind the server's: nothing lost may lie above what comes."""
    bench.clock.ms += 3_000_000
    bench.register("f")
    fill(bench, "f", 1)
    backup.take(bench)
    lost = fill(bench, "f", *[1] * 50)[-1]
    made = rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        again.register("f")
        assert again.append("f", "x").first_lsn > lost
    assert any("leads" in warning for warning in made.warnings)


def test_lost_and_discarded_entries_are_named(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.register("f")
    ends = fill(bench, "f", 2, 2, 2)
    fill(bench, "f", 4)
    (manifest,) = backup.take(bench, sizes=(6,))[:1]
    assert manifest.registry[0].next_sequence_id == 11, "the server had more than was archived"
    for path in backup.folder.glob(f"*{bench.tail('f').newest_lsn}*"):
        path.unlink()
    made = rebuilt(backup.folder, tmp_path / "new", ends[1])
    one = feed_of(made, "f")
    assert (one.next_sequence_id, str(one.discarded), str(one.lost)) == (5, "5 to 6", "7 to 10")
    assert made.lost_after_lsn == str(ends[2])
    text = "\n".join(made.lines())
    assert "discarded, behind the target: 5 to 6" in text
    assert "LOST: 7 to 10" in text
    with opened(tmp_path / "new") as again:
        assert sorted(again.values("f")) == [1, 2, 3, 4]


def test_every_append_end_is_a_target_and_no_other_entry(
    bench: Bench, backup: Backup, tmp_path: Path
) -> None:
    bench.register("a")
    bench.register("b")
    ends = {lsn for feed in ("a", "b") for lsn in fill(bench, feed, 3, 1)}
    backup.take(bench, sizes=(2, 3))
    for number, one in enumerate(stream(bench)):
        folder = tmp_path / f"new-{number}"
        if one.lsn in ends:
            rebuilt(backup.folder, folder, one.lsn)
            with opened(folder) as again:
                assert again.walked() == [place for place in bench.walked() if place[0] <= one.lsn]
        else:
            with pytest.raises(TargetInsideAppend):
                rebuilt(backup.folder, folder, one.lsn)
            assert not folder.exists()


def test_feed_that_begins_at_63(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.register("f")
    bench.append("f", "x", "y", sequence_ids=(63, 64))
    bench.append("f", "z")
    backup.take(bench, sizes=(2,))
    rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        tail = again.tail("f")
        assert (tail.first_sequence_id, tail.oldest, tail.dropped_sequence_id, tail.head) == (63, 63, 0, 65)
        assert again.values("f") == bench.values("f")


def test_raft_index_that_wraps_inside_an_append(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.register("f")
    first = (1 << 32) - 3
    bench.append("f", "x", "y", sequence_ids=(first, first + 1))
    bench.append("f", *"abcd")
    fill(bench, "f", 2)
    backup.take(bench, sizes=(3, 2))
    rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        assert again.values("f") == bench.values("f")
        assert again.walked() == bench.walked()
        assert again.tail("f").next_sequence_id == first + 8


def test_shared_feed_fences_processes_of_before(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    """The archive does not know their epochs; each producer's next one is above all of them."""
    bench.register("s", "p1", shared=True)
    old = bench.register("s", "p1", "second life", shared=True).epoch_of("p1")
    bench.append("s", "x", producer="p1")
    bench.register("s", "p2", shared=True)
    bench.append("s", "x", producer="p2")
    backup.take(bench)
    made = rebuilt(backup.folder, tmp_path / "new")
    assert (feed_of(made, "s").mode, feed_of(made, "s").owner) == ("shared", "")
    with opened(tmp_path / "new") as again:
        epoch = again.register("s", "p1", "third life", shared=True).epoch_of("p1")
        assert epoch > old
        with pytest.raises(Fenced):
            again.append("s", "zombie", producer="p1", epoch=old)
        assert again.append("s", "y", producer="p1", epoch=epoch).first_sequence_id == 3


def test_retry_of_an_archived_append_is_never_called_new_nor_repeated(
    bench: Bench, backup: Backup, tmp_path: Path
) -> None:
    """Nobody knows any more who sent it: so it is refused, and side effects are possible."""
    bench.register("f")
    bench.send(expecting("f", 1, "x", "y"))
    backup.take(bench)
    rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        again.register("f")
        with pytest.raises(OffsetMismatch) as same:
            again.send(expecting("f", 1, "x", "y"))
        assert (same.value.members["side-effects"], same.value.members["actual-next"]) == ("possible", 3)
        with pytest.raises(OffsetMismatch) as other:
            again.send(expecting("f", 1, "p", "q"))
        assert other.value.members["side-effects"] == "none"
        assert again.tail("f").last_frame("agent-1") is None
        again.send(expecting("f", 3, "z"))
        assert again.send(expecting("f", 3, "z")).duplicate
    with opened(tmp_path / "new") as once_more:
        assert set(once_more.tail("f").producers) == {"agent-1"}


def test_feeds_without_entries_and_settings_are_kept(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.register("f")
    bench.register("empty", tenant="acme")
    bench.one(Configure("empty", expected_offset="required", key_field="id", changes="delta"))
    fill(bench, "f", 1)
    backup.take(bench)
    rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        tail = again.tail("empty")
        assert tail.settings == bench.tail("empty").settings
        assert (tail.tenant, tail.next_sequence_id, tail.oldest) == ("acme", 1, 1)


def test_plan_that_says_otherwise_is_not_followed(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.register("f")
    (last,) = fill(bench, "f", 2)
    backup.take(bench)
    found = archive(backup.folder)
    kept = KeptFeed("f", 1, bench.tail("f").incarnation, 1, 3, last, True)
    with pytest.raises(RestoreInexact, match="ends at 2"):
        rebuild(replace(plan_of(found), feeds=(kept,)), found, tmp_path / "new", means=means())
    assert not (tmp_path / "new").exists()


def test_segment_without_manifest_and_append_without_end(
    bench: Bench, backup: Backup, tmp_path: Path
) -> None:
    bench.register("f")
    fill(bench, "f", 1, 4)
    backup.take(bench, sizes=(3,))
    second = sorted(backup.folder.glob("*.bin"))[1]
    manifest = next(backup.folder.glob(f"{second.name.removesuffix('.bin')}.manifest.json"))
    kept = manifest.read_bytes()
    manifest.unlink()
    with pytest.raises(SegmentGap, match="has no manifest"):
        rebuilt(backup.folder, tmp_path / "new")
    second.unlink()
    assert kept
    with pytest.raises(HeadraceError) as torn:
        rebuilt(backup.folder, tmp_path / "new")
    assert isinstance(torn.value, TargetInsideAppend)


def test_place_of_every_entry_is_known(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    """A bookmark's LSN is compared with the entry's: both journals say the same."""
    bench.register("f")
    fill(bench, "f", 3, 2)
    backup.take(bench)
    rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        for number in range(1, 6):
            assert lsn_at(again.store, again.tail("f"), number) == lsn_at(
                bench.store, bench.tail("f"), number
            )


def test_frame_without_a_producer_is_nobodys_last_one() -> None:
    tail = FeedTail("f", 1, "default", "", "agent-1", "", 5)
    replay = Replay(JournalState(feeds={"f": tail}))
    header = FrameHeader(FrameKind.ENTRIES, 512, 1, 7, 0, NO_DIGEST, 1, 2, 0, 10, 0)
    replay.apply_entries(header, b"")
    moved = replay.state.feeds["f"]
    assert (moved.next_sequence_id, moved.newest_lsn, moved.producers) == (3, str(header.lsn(1)), {})


def test_transactions_and_entries_with_rare_layouts(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    """Where source transactions end stands in the frame, also of entries that are not walked by arrays."""
    bench.register("f")
    many = tuple(f"column-{number}" for number in range(300))
    halves = [
        half("a", tx_last=True, source_tx=b"1"),
        half("b", changed=many),
        half("c", tx_last=True, source_tx=b"2", tx_index=1 << 63),
    ]
    bench.send(Append("f", AGENT, halves, digest(halves), transaction_ends=(0, 2)))
    bench.append("f", "d")
    backup.take(bench, sizes=(2,))
    rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        assert plain(again) == plain(bench)
        position = again.store.oldest_position()
        (first, *_) = again.store.walk(position, bytes_max=1)
        assert decode_area(first.area) == {Area.TRANSACTION_ENDS: bytes((0, 0, 0, 0, 2, 0, 0, 0))}
