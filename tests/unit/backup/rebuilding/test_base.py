"""A journal rebuilt on a base snapshot: it begins behind the base, and keeps the schemas that the base carries."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import RestorePlan, plan
from headrace.archive.moments.target import Asked
from headrace.backup.rebuilding.outcome import Rebuilt
from headrace.backup.rebuilding.rebuild import rebuild
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt, SequenceNotAvailable
from headrace.log.history import frames_of_range
from headrace.log.log import Log
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from headrace.log.requests import Append
from headrace.log.schemas.entries import SchemaName
from headrace.wire.base_manifest import MANIFEST, BaseFeed, BaseFile, BaseManifest, base_folder, encode_base
from headrace.wire.entry import digest
from headrace.wire.kwal_columns import Segment, Wanted
from headrace.wire.kwal_manifest import Manifest
from tests.bench import AGENT, Bench, half
from tests.rebuilding import (
    OTHER,
    Backup,
    archive,
    change_history,
    check_whole,
    feed_of,
    means,
    opened,
    rebuilt_in_place,
    registry,
    stream,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "server") as journal:
        yield journal


def schema(bench: Bench, feed: str, version: int) -> None:
    key = f"\0schema/main/t/{version}".encode()
    halves = [half(f'{{"version":{version}}}', key=key, control="schema", table=("main", "t"))]
    bench.send(Append(feed, AGENT, halves, digest(halves)))


def put_base(folder: Path, lsn: Lsn, bench: Bench) -> Path:
    """A base at ``lsn`` that holds all that the segments have up to there, in one file."""
    found = archive(folder)
    batches = []
    for one in found.segments:
        segment = Segment(
            found.folder.read_segment(one.file), where=one.file, manifest=found.manifests[one.file]
        )
        batches += list(segment.batches(wanted=Wanted(last=lsn)))
    rows = pa.Table.from_batches(batches)
    path = folder / base_folder(lsn)
    path.mkdir()
    pq.write_table(rows, path / "part.parquet")
    data = (path / "part.parquet").read_bytes()
    feeds = []
    for tail in bench.store.tails():
        given = [one for one in stream(bench) if one.lsn.region_id == tail.region_id and one.lsn <= lsn]
        if given:
            feeds.append(
                BaseFeed(
                    feed=tail.name,
                    region_id=tail.region_id,
                    incarnation=tail.incarnation,
                    first_sequence_id=given[0].sequence_id,
                    sequence_id=given[-1].sequence_id,
                    lsn=str(given[-1].lsn),
                    entries=len(given),
                )
            )
    manifest = BaseManifest(
        lsn=str(lsn),
        committed_at_ms=lsn.committed_at_ms,
        created_at_ms=0,
        buckets=1,
        feeds=tuple(feeds),
        files=(
            BaseFile(path="part.parquet", size=len(data), crc=zlib.crc32(data), rows=rows.num_rows, bucket=0),
        ),
        registry=registry(bench),
    )
    (path / MANIFEST).write_bytes(encode_base(manifest))
    return path


class Prepared:
    """Two feeds, a base in the middle, and one feed that has nothing behind it; its first segment is gone."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.folder = folder
        backup = Backup(folder)
        bench.register("kept")
        bench.register("quiet")
        schema(bench, "kept", 1)
        bench.append("kept", "a", "b")
        bench.append("quiet", "q", "r")
        backup.take(bench)
        first = sorted(folder.glob("kdb-wal-*"))
        bench.append("kept", "c")
        self.at = bench.append("kept", "d").last_lsn
        schema(bench, "kept", 2)
        bench.append("kept", "e", "f")
        backup.take(bench)
        self.base = put_base(folder, self.at, bench)
        for path in first:
            path.unlink()

    def plan(self) -> tuple[RestorePlan, Archive]:
        found = Archive.read(str(self.folder))
        return plan(found, Asked(to_lsn=found.segments[-1].name.last)), found

    def rebuild(self, data_dir: Path) -> Rebuilt:
        made = rebuild(*self.plan(), data_dir, means=means())
        check_whole(data_dir)
        return made


def test_journal_begins_behind_the_base(bench: Bench, tmp_path: Path) -> None:
    prepared = Prepared(bench, tmp_path / "archive")
    made = prepared.rebuild(tmp_path / "new")
    with opened(tmp_path / "new") as again:
        assert [one[:3] for one in stream(again)] == [
            one[:3] for one in stream(bench) if one.lsn > prepared.at
        ]
        kept, quiet = again.tail("kept"), again.tail("quiet")
        assert (kept.oldest, kept.dropped_sequence_id, kept.next_sequence_id) == (6, 5, 9)
        assert (quiet.oldest, quiet.dropped_sequence_id, quiet.next_sequence_id) == (3, 2, 3)
        assert again.store.dropped_lsn() == prepared.at
        with pytest.raises(SequenceNotAvailable):
            frames_of_range(again.store, kept, 5, 8, entries_max=10, bytes_max=1 << 20)
        again.register("quiet")
        assert again.append("quiet", "s").first_sequence_id == 3
    assert {(one.feed, one.last_sequence_id, one.why) for one in made.left_out} == {
        ("kept", 5, "below-the-base"),
        ("quiet", 2, "below-the-base"),
    }
    assert feed_of(made, "quiet").oldest_sequence_id == 3
    assert made.schemas == 1


def test_schemas_of_the_base_and_of_the_journal_are_there(bench: Bench, tmp_path: Path) -> None:
    Prepared(bench, tmp_path / "archive").rebuild(tmp_path / "new")
    with closing(SqliteMetadata(tmp_path / "new" / METADATA_NAME)) as metadata:
        row = metadata.schemas.schema("kept", "main", "t", 1)
        assert row is not None
        assert (row.value, row.sequence_id) == (b'{"version":1}', 1)
        assert metadata.schemas.schema("kept", "main", "t", 2) is None, "the server finds it in the journal"

    async def schemas() -> list[bytes]:
        log = Log.open(tmp_path / "new")
        await log.start()
        try:
            await asyncio.to_thread(log.schemas.read_up_to, log.store.end())
            return [log.schemas.schema("kept", SchemaName("main", "t", version)).value for version in (1, 2)]
        finally:
            await log.close()

    assert asyncio.run(schemas()) == [b'{"version":1}', b'{"version":2}']


def test_schemas_are_kept_where_a_gap_and_another_history_follow_the_base(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a repair that skipped what was not archived yet: the feed goes on from what the base has, by its own word."""
    folder = tmp_path / "archive"
    backup = Backup(folder)
    bench.register("kept")
    schema(bench, "kept", 1)
    at = bench.append("kept", "a", "b").last_lsn
    (first,) = backup.take(bench)
    put_base(folder, at, bench)
    bench.append("kept", "skipped")
    (lost,) = backup.take(bench)
    change_history(monkeypatch, bench.tail("kept").region_id, began=1)
    goes_on = bench.append("kept", "c").last_lsn
    backup.take(bench)
    for manifest in (first, lost):
        (folder / manifest.segment).unlink()
        (folder / manifest.name.manifest).unlink()
    gap = AcceptedGap(after=str(at), before=str(goes_on), reason="a bad disk", by="a@b", at_ms=0)
    (folder / gap_file(gap)).write_bytes(encode_gap(gap))
    found = Archive.read(str(folder))
    planned = plan(found, Asked(to_lsn=goes_on))
    assert planned.base is not None
    made = rebuild(planned, found, tmp_path / "new", means=means())
    check_whole(tmp_path / "new")
    assert made.schemas == 1
    one = feed_of(made, "kept")
    assert (one.was, one.oldest_sequence_id, one.next_sequence_id) == (OTHER, 5, 6)
    assert [str(ids) for ids in one.lost_in_gaps] == ["4 to 4"]
    with closing(SqliteMetadata(tmp_path / "new" / METADATA_NAME)) as metadata:
        row = metadata.schemas.schema("kept", "main", "t", 1)
        assert row is not None
        assert row.value == b'{"version":1}'


def test_damaged_base_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    prepared = Prepared(bench, tmp_path / "archive")
    file = prepared.base / "part.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    planned = prepared.plan()
    file.write_bytes(data)
    with pytest.raises(BaseCorrupt, match=r"part\.parquet"):
        rebuild(*planned, tmp_path / "new", means=means())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "server"]


def test_target_at_the_base_itself(bench: Bench, tmp_path: Path) -> None:
    """A journal without entries, that goes on where the base ends."""
    prepared = Prepared(bench, tmp_path / "archive")
    found = Archive.read(str(prepared.folder))
    planned = plan(found, Asked(to_lsn=prepared.at))
    assert not planned.segments
    made = rebuild(planned, found, tmp_path / "new", means=means())
    check_whole(tmp_path / "new")
    with opened(tmp_path / "new") as again:
        assert not stream(again)
        assert [(tail.name, tail.next_sequence_id) for tail in again.store.tails()] == [
            ("kept", 6),
            ("quiet", 3),
        ]
        again.register("kept")
        assert again.append("kept", "x").first_sequence_id == 6
    assert str(feed_of(made, "kept").discarded) == "6 to 8"


class Long:
    """Six entries in three segments, a base at the second entry and one at the fifth."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.folder, self.bench = folder, bench
        backup = Backup(folder)
        bench.register("f")
        self.segments = []
        for number in range(3):
            bench.append("f", f"{number}a")
            bench.append("f", f"{number}b")
            self.segments += backup.take(bench)
        self.lsns = [one.lsn for one in stream(bench)]
        self.bases = [put_base(folder, self.lsns[at], bench) for at in (1, 4)]

    def rebuilt(self, data_dir: Path, *words: str, target: Lsn | None = None) -> list[Lsn]:
        """The entries of a journal that is rebuilt from it."""
        rebuilt_in_place(self.folder, data_dir, target, *words)
        with opened(data_dir) as again:
            return [one.lsn for one in stream(again)]

    def lose(self, segment: Manifest) -> None:
        """Take a segment away."""
        (self.folder / segment.segment).unlink()
        (self.folder / segment.name.manifest).unlink()


def test_a_journal_has_all_entries_however_new_the_newest_base_is(bench: Bench, tmp_path: Path) -> None:
    long = Long(bench, tmp_path / "archive")
    assert long.rebuilt(tmp_path / "whole") == long.lsns
    assert long.rebuilt(tmp_path / "earlier", target=long.lsns[4]) == long.lsns[:5]
    assert long.rebuilt(tmp_path / "named", "--snapshot", str(long.bases[1])) == long.lsns[5:]
    long.lose(long.segments[0])
    assert long.rebuilt(tmp_path / "pruned") == long.lsns[2:], "from the older base on"


def test_a_journal_begins_behind_an_accepted_gap_as_late_as_the_base_that_needs_none(
    bench: Bench, tmp_path: Path
) -> None:
    long = Long(bench, tmp_path / "archive")
    long.lose(long.segments[1])
    gap = AcceptedGap(
        after=str(long.lsns[1]), before=str(long.lsns[4]), reason="a bad disk", by="a@b", at_ms=0
    )
    (long.folder / gap_file(gap)).write_bytes(encode_gap(gap))
    assert long.rebuilt(tmp_path / "new") == long.lsns[5:]
    made = rebuilt_in_place(long.folder, tmp_path / "again")
    assert not feed_of(made, "f").lost_in_gaps
