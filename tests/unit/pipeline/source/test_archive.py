"""What the server no longer retains, from an archive: planned and read as if it were still there, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.archive.files.encryption import encrypt
from headrace.archive.files.folder import Folder
from headrace.entries.entry import Change
from headrace.errors import IdentityNeeded, SequenceLost, SequenceNotAvailable
from headrace.pipeline.source.archive import Archive
from headrace.pipeline.source.ends import Limits
from headrace.pipeline.source.offset import Offset, Place
from headrace.pipeline.source.options import Options
from headrace.pipeline.source.planner import FeedPlanner, Planner, Range
from headrace.pipeline.source.pushdown import Bounds
from headrace.pipeline.source.reading import read_batches
from headrace.pipeline.source.starts import Moment
from headrace.pipeline.wal import archive as wal_archive
from headrace.wire.kwal_manifest import encode_manifest
from tests.identities import age_identity
from tests.kwal import INCARNATION, Stamped, manifest_of, numbered, sealed, write
from tests.unit.pipeline.feeds import TS, StoredFeed


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
    monkeypatch.setattr(wal_archive, "segments_of", lambda *_, **__: parts[:-1])
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


def repaired(folder: Path, appends: int = 10) -> tuple[StoredFeed, str, list[int]]:
    """A feed whose entries 9 to 16 and 17 to 20 a repair skipped, the archive from before, the ends of batches then."""
    feed = stored()
    url = archived(feed, folder, appends)
    before = ends(feed, "", 9)
    feed.lose(9, 16)
    feed.lose(17, 20)
    return feed, url, before


def test_what_a_repair_skipped_is_planned_and_read_from_the_archive(tmp_path: Path) -> None:
    feed, url, before = repaired(tmp_path)
    assert ends(feed, url, 9) == before
    for first in (6, 12, 18):
        part = Range("f::1", feed.incarnation, first, 30, feed.lsn(first - 1), feed.lsn(30))
        keys = [
            key
            for batch in read_batches(feed, part, ["key"], Archive(url))
            for key in batch["key"].to_pylist()
        ]
        assert keys == [b"%d" % number for number in range(first, 31)]


def test_what_a_repair_skipped_is_named_where_no_archive_has_it_for_certain(tmp_path: Path) -> None:
    feed, url, _ = repaired(tmp_path / "short", appends=5)
    part = Range("f::1", feed.incarnation, 6, 30)
    way_on = "egin behind them: start 17, with another checkpoint folder"
    with pytest.raises(
        SequenceLost, match=rf"entries 9 to 16 of f::1 .* Go on with option archive, or b{way_on}"
    ):
        list(read_batches(feed, part, ["key"]))
    with pytest.raises(SequenceLost, match=rf"does not have the entry 21 \(.*\) behind them: .* B{way_on}"):
        list(read_batches(feed, part, ["key"], Archive(url)))
    with pytest.raises(SequenceLost):
        ends(feed, url, 9)

    other = StoredFeed()  # the same sequence ids, appended at other times
    for _ in range(10):
        other.append(*[Change(value=b"{}", key=b"other")] * 4, global_ts=TS + other.next_id - 1)
    whole = sealed(
        [
            Stamped(bytes(one.body), list(one.lengths), one.header.lsn(0), one.header.lsn(3))
            for one in other.frames_stored
        ]
    )
    write(tmp_path / "other", whole, manifest_of(whole, incarnations={7: other.incarnation}))
    with pytest.raises(SequenceLost, match="does not have the entry 21"):
        list(read_batches(feed, part, ["key"], Archive(str(tmp_path / "other"))))


def test_what_the_archive_lacks_of_a_skipped_range_is_named(tmp_path: Path) -> None:
    feed, url, _ = repaired(tmp_path)
    for file in tmp_path.glob("*.0000000012.*"):
        file.unlink()
    part = Range("f::1", feed.incarnation, 6, 30)
    with pytest.raises(SequenceLost, match=r"And the archive .* lacks the entries 9 to 12 of f::1"):
        list(read_batches(feed, part, ["key"], Archive(url)))


def test_the_end_of_a_feed_that_was_skipped_can_be_told_by_nothing(tmp_path: Path) -> None:
    feed = stored()
    url = archived(feed, tmp_path, 10)
    feed.lose(37, 40)
    part = Range("f::1", feed.incarnation, 30, 40)
    with pytest.raises(SequenceLost, match="does not have an entry behind them"):
        list(read_batches(feed, part, ["key"], Archive(url)))


@pytest.mark.parametrize("start", ["oldest", 1])
def test_with_an_archive_a_feed_begins_where_it_ever_did(tmp_path: Path, start: Moment) -> None:
    feed = StoredFeed(first_id=63)
    for _ in range(4):
        feed.add(2)
    url = archived(feed, tmp_path, 2)
    feed.drop_before(67)
    with_archive = FeedPlanner(feed, "f::1", archive=Archive(url))
    assert with_archive.begin(start).sequence_id == 62
    part = with_archive.whole(start, "head", Bounds())
    assert (part.first, part.last) == (63, 70)
    rows = [
        row for batch in read_batches(feed, part, ["sequence_id"], Archive(url)) for row in batch.to_pylist()
    ]
    assert [row["sequence_id"] for row in rows] == list(range(63, 71))


def test_without_an_archive_the_oldest_is_what_the_server_has(tmp_path: Path) -> None:
    feed = StoredFeed(first_id=63)
    for _ in range(4):
        feed.add(2)
    feed.drop_before(67)
    planner = FeedPlanner(feed, "f::1")
    assert planner.begin("oldest").sequence_id == 66
    with pytest.raises(SequenceNotAvailable, match="Entries 63 to 66 are missing"):
        planner.begin(1)


def test_an_encrypted_archive_is_read_with_its_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = stored()
    recipient = age_identity(tmp_path / "key")
    folder = Folder(archived(feed, tmp_path / "plain", 6))
    manifests = folder.manifests(folder.segments())
    (tmp_path / "wal").mkdir()
    for file, manifest in manifests.items():
        encrypted = encrypt([folder.read(file)], [recipient])
        told = manifest.with_encryption(encrypted.told)
        (tmp_path / "wal" / told.file).write_bytes(b"".join(encrypted.pieces))
        (tmp_path / "wal" / told.name.manifest).write_bytes(encode_manifest(told))
    feed.drop_before(21)
    part = Range("f::1", feed.incarnation, 6, 30)
    given = {"feeds": "f::1", "archive": str(tmp_path / "wal")}
    monkeypatch.setenv("HEADRACE_IDENTITY", str(tmp_path / "key"))
    by_environment = Options(given, streaming=False).archive()
    monkeypatch.delenv("HEADRACE_IDENTITY")
    for archive in (
        by_environment,
        Options(given | {"identity": str(tmp_path / "key")}, streaming=False).archive(keep=True),
    ):
        batches = list(read_batches(feed, part, ["key"], archive))
        assert [key for batch in batches for key in batch["key"].to_pylist()] == [
            b"%d" % n for n in range(6, 31)
        ]
    with pytest.raises(IdentityNeeded):
        list(read_batches(feed, part, ["key"], Options(given, streaming=False).archive()))
