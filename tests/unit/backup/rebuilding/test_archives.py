"""Archives that are encrypted, that have gaps, or that a damaged segment start ends."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyrage
import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.archive.files.settling import prepare, put_segment
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.archive.rights.holds import NOT_HELD
from headrace.backup.rebuilding.rebuild import rebuild
from headrace.errors import IdentityNeeded, JournalCorrupt, LsnNotAvailable, SequenceNotAvailable
from headrace.log.files.examine import examine
from headrace.log.files.plan import Mode
from headrace.log.files.repair import Repair
from headrace.log.history import frames_of_range
from headrace.log.log import Log
from headrace.log.requests import Append
from headrace.log.schemas.entries import SchemaName
from headrace.server.streams.walking import find_start
from headrace.wire.entry import digest
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_manifest import Manifest
from tests.bench import AGENT, Bench, half
from tests.fault.volumes import small_volume
from tests.rebuilding import (
    Backup,
    archive,
    check_whole,
    feed_of,
    means,
    opened,
    rebuilt,
    rebuilt_in_place,
    stream,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "server") as journal:
        yield journal


def test_encrypted_archive_needs_its_identity(bench: Bench, tmp_path: Path) -> None:
    bench.register("f")
    for number in range(4):
        bench.append("f", f"{number}", "x")
    Backup(tmp_path / "plain").take(bench, sizes=(4,))
    key = pyrage.x25519.Identity.generate()
    (tmp_path / "key").write_text(f"# a comment\n{key}\n")
    found, put = archive(tmp_path / "plain"), Folder(str(tmp_path / "archive"))
    for one in found.segments:
        data, manifest = bytes(found.folder.read_segment(one.file)), found.manifests[one.file]
        sealed = Sealed(one.name, manifest.entries, len(data), manifest.crc, [data])
        put_segment(put, prepare(sealed, manifest, [str(key.to_public())]), lambda: None)
    target = found.segments[-1].name.last
    blind = Archive.read(str(tmp_path / "archive"))
    with pytest.raises(IdentityNeeded):
        rebuild(plan(blind, Asked(to_lsn=target)), blind, tmp_path / "new", means=means())
    assert not (tmp_path / "new").exists()
    sighted = Archive.read(str(tmp_path / "archive"), str(tmp_path / "key"))
    rebuild(plan(sighted, Asked(to_lsn=target)), sighted, tmp_path / "new", means=means())
    check_whole(tmp_path / "new")
    with opened(tmp_path / "new") as again:
        assert again.walked() == bench.walked()


def test_journal_begins_behind_a_lost_segment(bench: Bench, tmp_path: Path) -> None:
    """The feed that lost entries begins behind them; nobody reads over the hole."""
    bench.register("f")
    bench.register("g")
    backup = Backup(tmp_path / "archive")
    for number in range(3):
        bench.append("f", f"f{number}", "x")
        bench.append("g", f"g{number}")
        backup.take(bench)
    lost = sorted((tmp_path / "archive").glob("*.bin"))[1]
    lost.unlink()
    lost.with_name(f"{lost.name.removesuffix('.bin')}.manifest.json").unlink()
    made = rebuilt(tmp_path / "archive", tmp_path / "new")
    with opened(tmp_path / "new") as again:
        assert [one[:3] for one in stream(again)] == [one[:3] for one in stream(bench)[-3:]]
        f, g = again.tail("f"), again.tail("g")
        assert (f.oldest, f.head, g.oldest, g.head) == (5, 6, 3, 3)
        with pytest.raises(SequenceNotAvailable):
            frames_of_range(again.store, f, 1, 6, entries_max=10, bytes_max=1 << 20)
    assert [str(one) for one in feed_of(made, "f").lost_in_gaps] == ["3 to 4"]
    assert {(one.feed, one.last_sequence_id, one.why) for one in made.left_out} == {
        ("f", 2, "before-a-gap"),
        ("g", 1, "before-a-gap"),
    }


def test_gap_that_took_a_feeds_first_entries_is_named_and_nobody_reads_over_it(
    bench: Bench, tmp_path: Path
) -> None:
    """The feed began at 1, and the archive has it from 4 on."""
    bench.register("f")
    bench.register("g")
    folder = tmp_path / "archive"
    backup = Backup(folder)
    early = bench.append("g", "g1").last_lsn
    backup.take(bench)
    bench.append("f", "f1", "f2", "f3")
    (taken,) = backup.take(bench)
    bench.append("f", "f4", "f5")
    bench.append("g", "g2")
    kept = stream(bench)[-3:]
    backup.take(bench)
    (folder / taken.segment).unlink()
    (folder / taken.name.manifest).unlink()
    gap = AcceptedGap(
        after=str(early), before=str(kept[0].lsn), reason="a bad disk", by="somebody@here", at_ms=0
    )
    (folder / gap_file(gap)).write_bytes(encode_gap(gap))
    found = Archive.read(str(folder))
    made = rebuild(plan(found, Asked(to_lsn=kept[-1].lsn)), found, tmp_path / "new", means=means())
    check_whole(tmp_path / "new")
    with opened(tmp_path / "new") as again:
        assert [one[:3] for one in stream(again)] == [one[:3] for one in kept]
        f, g = again.tail("f"), again.tail("g")
        assert (f.first_sequence_id, f.oldest, f.dropped_sequence_id, f.head) == (1, 4, 3, 5)
        assert (g.oldest, g.head) == (2, 2)
        with pytest.raises(SequenceNotAvailable):
            frames_of_range(again.store, f, 1, 5, entries_max=10, bytes_max=1 << 20)
        with pytest.raises(LsnNotAvailable):
            find_start(again.store, early)
    assert [str(one) for one in feed_of(made, "f").lost_in_gaps] == ["1 to 3"]
    assert feed_of(made, "f").oldest_sequence_id == 4
    assert not feed_of(made, "g").lost_in_gaps
    assert "  LOST, in gaps: 1 to 3" in list(made.lines())
    assert [(one.feed, one.last_sequence_id, one.why) for one in made.left_out] == [("g", 1, "before-a-gap")]


def lose(folder: Path, *taken: Manifest) -> None:
    """Segments that are gone, with their manifests."""
    for manifest in taken:
        (folder / manifest.segment).unlink()
        (folder / manifest.name.manifest).unlink()


def test_schemas_from_before_a_gap_are_kept(bench: Bench, tmp_path: Path) -> None:
    """What stands behind the gap can be read only with them. The newer one of two counts, behind the gap as before it."""
    bench.register("f")
    backup = Backup(tmp_path / "archive")
    for version, said in ((1, "old"), (1, "new"), (2, "two")):
        schema(bench, "f", version, said)
    bench.append("f", "a", "b")
    backup.take(bench, sizes=(2,))
    bench.append("f", "c")
    lost = backup.take(bench)
    schema(bench, "f", 3, "three")
    bench.append("f", "d")
    backup.take(bench)
    lose(tmp_path / "archive", *lost)
    made = rebuilt(tmp_path / "archive", tmp_path / "new")
    assert feed_of(made, "f").oldest_sequence_id == 7
    assert made.schemas == 2

    async def schemas() -> list[bytes]:
        log = Log.open(tmp_path / "new")
        await log.start()
        try:
            await asyncio.to_thread(log.schemas.read_up_to, log.store.end())
            names = [SchemaName("main", "t", version) for version in (1, 2, 3)]
            return [log.schemas.schema("f", name).value for name in names]
        finally:
            await log.close()

    assert asyncio.run(schemas()) == [b'{"said":"new"}', b'{"said":"two"}', b'{"said":"three"}']


def schema(bench: Bench, feed: str, version: int, said: str) -> None:
    key = f"\0schema/main/t/{version}".encode()
    halves = [half(f'{{"said":"{said}"}}', key=key, control="schema", table=("main", "t"))]
    bench.send(Append(feed, AGENT, halves, digest(halves)))


@pytest.mark.parametrize("before", [0, 2])
def test_feed_whose_end_a_gap_took_is_named_and_nobody_reads_over_it(
    before: int, bench: Bench, tmp_path: Path
) -> None:
    """Also where it took all of the feed: the server's word in a later manifest says what there was."""
    bench.register("f")
    bench.register("g")
    folder = tmp_path / "archive"
    backup = Backup(folder)
    early = bench.append("g", "g1").last_lsn
    for number in range(before):
        bench.append("f", f"f{number}")
    backup.take(bench)
    bench.append("f", "lost", "lost too")
    lost = backup.take(bench)
    bench.append("g", "g2")
    kept = stream(bench)[-1:]
    backup.take(bench)
    lose(folder, *lost)
    gap = AcceptedGap(
        after=str(stream(bench)[before].lsn), before=str(kept[0].lsn), reason="x", by="a@b", at_ms=0
    )
    (folder / gap_file(gap)).write_bytes(encode_gap(gap))
    found = Archive.read(str(folder))
    made = rebuild(plan(found, Asked(to_lsn=kept[0].lsn)), found, tmp_path / "new", means=means())
    check_whole(tmp_path / "new")
    f = feed_of(made, "f")
    assert ([str(one) for one in f.lost_in_gaps], f.lost) == ([f"{before + 1} to {before + 2}"], None)
    with opened(tmp_path / "new") as again:
        assert [one[:3] for one in stream(again)] == [one[:3] for one in kept]
        tail = again.tail("f")
        assert (tail.oldest, tail.next_sequence_id) == (before + 3, before + 3)
        with pytest.raises(SequenceNotAvailable):
            frames_of_range(again.store, tail, 1, before + 2, entries_max=10, bytes_max=1 << 20)
        with pytest.raises(LsnNotAvailable):
            find_start(again.store, early)
        again.register("f")
        assert again.append("f", "anew").first_sequence_id == before + 3, "no id names two contents"


def test_damaged_start_is_never_made_again_as_that_of_an_empty_journal(bench: Bench, tmp_path: Path) -> None:
    """It has the feeds, which no frame before it does: a repair must not put an empty state in its place."""
    bench.register("f")
    bench.append("f", "x")
    Backup(tmp_path / "archive").take(bench)
    rebuilt(tmp_path / "archive", tmp_path / "new")
    first = min((tmp_path / "new" / "journal").glob("*.seg"))
    data = bytearray(first.read_bytes())
    data[40] ^= 1
    first.write_bytes(data)
    repair = Repair(tmp_path / "new")
    findings = examine(tmp_path / "new")
    try:
        with pytest.raises(JournalCorrupt, match="its start is damaged"):
            repair.plan(findings, Mode.SKIP)
    finally:
        findings.close()
        repair.close()


def test_an_archive_that_cant_be_held_is_rebuilt_from_and_the_outcome_says_so(
    bench: Bench, tmp_path: Path
) -> None:
    with small_volume(tmp_path / "volume") as mounted:
        assert mounted, "run this test where a volume may be mounted"
        backup = Backup(tmp_path / "volume" / "archive")
        bench.register("f")
        bench.append("f", *"abc")
        backup.take(bench)
        assert rebuilt_in_place(backup.folder, tmp_path / "held").warnings == ()
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "volume")], check=True)
        assert rebuilt_in_place(backup.folder, tmp_path / "not-held").warnings == (NOT_HELD,)
