"""Archives that are encrypted, that have gaps, or that a damaged segment start ends."""

from __future__ import annotations

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
from headrace.backup.rebuilding.rebuild import rebuild
from headrace.errors import IdentityNeeded, JournalCorrupt, LsnNotAvailable, SequenceNotAvailable
from headrace.log.files.examine import examine
from headrace.log.files.plan import Mode
from headrace.log.files.repair import Repair
from headrace.log.history import frames_of_range
from headrace.server.streams.walking import find_start
from headrace.wire.kwal import Sealed
from tests.bench import Bench
from tests.rebuilding import Backup, archive, check_whole, feed_of, means, opened, rebuilt, stream


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
