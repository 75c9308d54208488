"""What the server no longer retains, from an archive: planned and read as if it were still there, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SequenceNotAvailable
from headrace.pipeline.source.archive import Archive
from headrace.pipeline.source.ends import Limits
from headrace.pipeline.source.offset import Offset, Place
from headrace.pipeline.source.planner import FeedPlanner, Planner, Range
from headrace.pipeline.source.reading import read_batches
from headrace.pipeline.wal import archive as wal_archive
from tests.kwal import INCARNATION, Stamped, manifest_of, numbered, sealed, write
from tests.unit.pipeline.feeds import StoredFeed


def stored() -> StoredFeed:
    """Ten appends of four entries; the third and fourth are one transaction."""
    feed = StoredFeed()
    for number in range(10):
        tx = "big" if number in {2, 3} else ""
        feed.add(4, tx=tx, last=number != 2)
    return feed


def archived(feed: StoredFeed, folder: Path, appends: int) -> str:
    """Write each append into a segment of its own, with its manifest; the first ``appends`` of them."""
    for frame in feed.frames_stored[:appends]:
        header = frame.header
        body = Stamped(bytes(frame.body), list(frame.lengths), header.lsn(0), header.lsn(header.count - 1))
        segment = sealed([body])
        manifest = manifest_of(segment, incarnations={7: feed.incarnation}, near=header.first_sequence_id)
        write(folder, segment, manifest)
    return str(folder)


def ends(feed: StoredFeed, url: str, limit: int) -> list[int]:
    """Where batches end, from the entry after the third on."""
    planner = Planner({"f::1": FeedPlanner(feed, "f::1", archive=Archive(url, keep=True))})
    at = Offset({"f::1": Place(incarnation=feed.incarnation, sequence_id=3, lsn=feed.lsn(3))})
    found = []
    while (end := planner.next_end(at, Limits(limit, None))) is not at:
        found.append(end.feeds["f::1"].sequence_id)
        at = end
    return found


def test_batches_end_where_they_would_have_ended(tmp_path: Path) -> None:
    feed = stored()
    expected = [8, 16, 24, 32, 40]
    assert ends(feed, "", 9) == expected
    url = archived(feed, tmp_path, 6)
    feed.drop_before(21)
    assert ends(feed, url, 9) == expected


def test_a_partition_is_read_from_both_and_only_what_is_asked_for(tmp_path: Path) -> None:
    feed = stored()
    url, last = archived(feed, tmp_path, 6), feed.lsn(30)
    part = Range("f::1", feed.incarnation, 6, 30, feed.lsn(5), last)
    feed.drop_before(21)
    batches = list(read_batches(feed, part, ["key", "lsn", "feed"], Archive(url)))
    assert [key for batch in batches for key in batch["key"].to_pylist()] == [b"%d" % n for n in range(6, 31)]
    assert batches[-1]["lsn"].to_pylist()[-1] == last
    assert {name for batch in batches for name in batch["feed"].to_pylist()} == {"f::1"}


def test_what_neither_has_is_named(tmp_path: Path) -> None:
    feed = stored()
    part = Range("f::1", feed.incarnation, 6, 30)
    url = archived(feed, tmp_path, 3)
    feed.drop_before(21)
    with pytest.raises(SequenceNotAvailable, match=r"about to read f::1 from 6 to 30.*retained is 21"):
        list(read_batches(feed, part, ["key"]))
    with pytest.raises(SequenceNotAvailable, match="lacks the entries 13 to 20 of f::1"):
        list(read_batches(feed, part, ["key"], Archive(url)))
    another = part._replace(incarnation="second-life")
    reborn = feed.reborn()
    with pytest.raises(SequenceNotAvailable, match="incarnation second-life"):
        list(read_batches(reborn, another, ["key"], Archive(url)))


def test_an_archive_that_gives_less_than_it_said_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = stored()
    url = archived(feed, tmp_path, 6)
    parts = wal_archive.segments_of(url, "f::1", feed.incarnation, 1, 20)
    monkeypatch.setattr(wal_archive, "segments_of", lambda *_: parts[:-1])
    read = Archive(url).batches("f::1", feed.incarnation, 1, 20, ["sequence_id"])
    assert [next(read).num_rows for _ in range(4)] == [4] * 4
    with pytest.raises(SequenceNotAvailable, match="does not have the entries 17 to 20 of f::1"):
        next(read)


def test_the_segment_that_is_kept_gives_each_feed_its_own(tmp_path: Path) -> None:
    segment = sealed([numbered(1, 4, region=1, feed="a"), numbered(11, 4, region=2, feed="b")])
    write(tmp_path, segment, manifest_of(segment))
    archive = Archive(str(tmp_path), keep=True)

    def read(feed: str, first: int, last: int) -> list[tuple[str, int]]:
        batches = list(archive.batches(feed, INCARNATION, first, last, ["feed", "sequence_id"]))
        return [(row["feed"], row["sequence_id"]) for batch in batches for row in batch.to_pylist()]

    assert read("a", 2, 3) == [("a", 2), ("a", 3)]
    assert read("b", 11, 12) == [("b", 11), ("b", 12)]
    assert read("a", 4, 4) == [("a", 4)]
