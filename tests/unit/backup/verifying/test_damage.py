"""What verify says of a sound archive, and that no damaged byte of a file escapes it."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import msgspec
import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.backup.verifying import archive_check
from headrace.backup.verifying.base_check import BaseTask, check_base_file
from headrace.backup.verifying.findings import Finding
from headrace.backup.verifying.segment_check import SegmentTask, check_segment
from headrace.errors import FormatTooNew, SegmentCorrupt
from headrace.pipeline.wal.reading import SegmentTask as SegmentToRead
from headrace.pipeline.wal.reading import read_segments
from headrace.wire.base_manifest import MANIFEST, decode_base
from headrace.wire.kwal_columns import EVERYTHING
from tests.kwal import bytes_of, manifest_of, numbered, sealed, write
from tests.scale import scaled
from tests.small_archives import Small, earlier, of, only

SEED = 20_261_122


def test_a_sound_archive_has_nothing_wrong_and_every_entry_was_looked_at(small: Small) -> None:
    told: list[tuple[int, int]] = []
    found = of(small.folder, progress=lambda done, total: told.append((done, total)))
    assert (found.findings, found.notes, found.accepted) == ([], [], [])
    assert found.entries == 36
    assert found.rows == 18
    assert (found.segments, found.bases, found.unread) == (4, 1, 0)
    size = sum(path.stat().st_size for path in small.folder.rglob("*") if path.suffix in {".bin", ".parquet"})
    assert found.bytes == size
    assert told[-1] == (size, size)
    quick = of(small.folder, fast=True)
    assert (quick.findings, quick.entries, quick.rows, quick.bytes) == ([], 0, 0, size)


def test_nothing_is_written(small: Small) -> None:
    def standing() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in small.folder.rglob("*") if path.is_file()}

    before = standing()
    of(small.folder)
    small.file(1).write_bytes(b"KWAL")
    of(small.folder)
    assert standing() == before | {small.file(1): b"KWAL"}


# -- damage ------------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found_in_its_file(small: Small) -> None:
    gap = AcceptedGap(after="1.1.1", before="1.1.9", reason="a test", by="ops@host", at_ms=1)
    (small.folder / gap_file(gap)).write_bytes(encode_gap(gap))
    files = sorted(path for path in small.folder.rglob("*") if path.is_file())
    chance = random.Random(SEED)
    for _ in range(scaled(120)):
        # Each file alike, however small: a flip in a manifest is as bad as one in a segment.
        path = chance.choice(files)
        sound = path.read_bytes()
        byte, bit = chance.randrange(len(sound)), chance.randrange(8)
        torn = bytearray(sound)
        torn[byte] ^= 1 << bit
        path.write_bytes(torn)
        found = of(small.folder)
        path.write_bytes(sound)
        file = str(path.relative_to(small.folder))
        named = [one for one in found.findings if one.file == file]
        assert named, (SEED, file, byte, bit, found.findings)
        assert found.code is not None
        if path.suffix == ".bin":
            assert named[0].byte == byte, (SEED, file, byte, bit, named)
        assert file in named[0].detail or path.name in named[0].detail
    assert of(small.folder).findings == []


def test_a_thousand_flipped_bits_of_segments_and_bases_are_found(small: Small) -> None:
    """By what looks at one file, as restores and ``verify`` do, so that so many can be tried."""
    folder, manifest = Folder(str(small.folder)), decode_base((small.base / MANIFEST).read_bytes(), "a base")
    reached = {(one.feed, one.incarnation): one.sequence_id for one in manifest.feeds}
    tasks: dict[Path, SegmentTask | BaseTask] = {
        small.file(at): SegmentTask(small.file(at).name, small.file(at).stat().st_size, told)
        for at, told in enumerate(small.manifests)
    }
    tasks |= {
        small.base / told.path: BaseTask(small.base.name, manifest.lsn, told, reached)
        for told in manifest.files
    }

    def findings(task: SegmentTask | BaseTask) -> list[Finding]:
        if isinstance(task, BaseTask):
            return check_base_file(folder, task).findings
        return check_segment(folder, task).findings

    assert not any(findings(task) for task in tasks.values())
    chance, paths = random.Random(SEED), sorted(tasks)
    for _ in range(scaled(1_000)):
        path = chance.choice(paths)
        sound = path.read_bytes()
        byte, bit = chance.randrange(len(sound)), chance.randrange(8)
        torn = bytearray(sound)
        torn[byte] ^= 1 << bit
        path.write_bytes(torn)
        found = findings(tasks[path])
        assert found, (SEED, path.name, byte, bit)
        assert found[0].file == str(path.relative_to(small.folder)), (SEED, byte, bit, found)
        if path.suffix == ".bin":
            assert found[0].byte == byte, (SEED, path.name, byte, bit, found)
        path.write_bytes(sound)


def test_a_reader_yields_no_row_of_a_damaged_segment(small: Small) -> None:
    chance = random.Random(SEED)
    sound = small.file(1).read_bytes()
    for _ in range(scaled(30)):
        torn = bytearray(sound)
        torn[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        small.file(1).write_bytes(torn)
        rows = read_segments(
            str(small.folder), [SegmentToRead(small.file(1).name, small.manifests[1])], ["lsn"], EVERYTHING
        )
        with pytest.raises((SegmentCorrupt, FormatTooNew)) as refused:
            next(rows)
        assert small.file(1).name in refused.value.detail


def test_every_truncation_of_a_segment_is_found(tmp_path: Path) -> None:
    segment = sealed([numbered(1, 2)])
    data, told = bytes_of(segment), manifest_of(segment)
    path, folder = write(tmp_path, segment, told), Folder(str(tmp_path))
    for size in range(len(data)):
        path.write_bytes(data[:size])
        for manifest in (told, None):
            found = check_segment(folder, SegmentTask(path.name, size, manifest)).findings
            assert [(one.code, one.file) for one in found] == [("segment-corrupt", path.name)], size
    assert only(of(tmp_path)).file == path.name


def test_an_entry_that_fails_its_own_checksum_is_named_though_the_segment_fits_its(small: Small) -> None:
    at = 1
    torn = bytearray(small.file(at).read_bytes())
    place = torn.index(b'{"n":1}', 300) + 5
    torn[place] = ord("2")
    crc = zlib.crc32(torn[:-4])
    torn[-4:] = crc.to_bytes(4, "big")
    small.file(at).write_bytes(torn)
    small.rewrite(at, crc=crc)
    found = of(small.folder).findings
    one = next(one for one in found if one.file == small.file(at).name)
    assert "does not fit its checksum" in one.detail
    assert one.byte is not None
    assert one.byte < place < one.byte + 120
    # The next segment was written behind another file.
    assert [one.code for one in found if one.file == small.file(2).name] == ["segment-gap"]
    assert of(small.folder, fast=True).findings == [one for one in found if one.code == "segment-gap"]


@pytest.mark.parametrize(
    ("region", "member", "said"),
    [
        (8, "source_time_first_ms", "source times"),
        (8, "source_time_last_ms", "source times"),
        (8, "feed", "the manifest says another"),
        (7, "first_lsn", "first entry"),
        (8, "last_lsn", "in no range of the manifest"),
    ],
)
def test_a_manifest_that_says_something_else_is_found(
    small: Small, region: int, member: str, said: str
) -> None:
    told = small.manifests[1]
    part = next(one for one in told.feeds if one.region_id == region)
    value = {
        "source_time_first_ms": 5,
        "source_time_last_ms": None,
        "feed": "another",
        "first_lsn": earlier(part.first_lsn),
        "last_lsn": earlier(part.last_lsn),
    }[member]
    parts = [msgspec.structs.replace(one, **{member: value}) if one is part else one for one in told.feeds]
    small.rewrite(1, feeds=tuple(parts))
    found = [one for one in of(small.folder).findings if one.file == small.file(1).name]
    assert said in found[0].detail


@pytest.mark.parametrize(
    ("at", "changed", "said"),
    [
        (0, {"left_open": (), "ends_whole": True}, "do not end whole; the manifest says otherwise"),
        (0, {"left_open": ()}, "leave open the transactions 41 (hex); the manifest says no transaction"),
        (0, {"left_open": None}, "the manifest says more transactions than it names"),
        (1, {"ends_whole": False}, "end whole; the manifest says otherwise"),
        (1, {"continued": ("41",)}, "have none of the transactions 41 (hex)"),
        (2, {"continued": ()}, "go on with the transactions 41 (hex); the manifest says nothing of that"),
        (3, {"continued": ("42",)}, "have none of the transactions 42 (hex)"),
    ],
)
def test_a_manifest_that_says_something_else_of_transactions_is_found(
    tmp_path: Path, at: int, changed: dict[str, object], said: str
) -> None:
    # The first and the third segment have a half each.
    small = Small(tmp_path / "wal", [("A", False), ("B", True), ("", False), ("A", True)])
    assert of(small.folder).findings == []
    feeds = [
        msgspec.structs.replace(one, **changed) if one.region_id == 7 else one
        for one in small.manifests[at].feeds
    ]
    small.rewrite(at, feeds=tuple(feeds))
    one = only(of(small.folder))
    assert (one.code, one.file) == ("segment-corrupt", small.file(at).name)
    assert said in one.detail
    assert of(small.folder, fast=True).findings == []


def test_manifests_of_older_agents_say_nothing_of_transactions(tmp_path: Path) -> None:
    small = Small(tmp_path / "wal", [("A", False), ("B", True), ("", False), ("A", True)])
    for at, told in enumerate(small.manifests[:3]):
        feeds = [msgspec.structs.replace(one, left_open=None, continued=None) for one in told.feeds]
        small.rewrite(at, feeds=tuple(feeds))
    assert of(small.folder).findings == []


def test_several_processes_find_the_same(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    small.file(2).write_bytes(small.file(2).read_bytes()[:-7])
    alone = of(small.folder)
    monkeypatch.setattr(archive_check, "ALONE_BYTES_MAX", 0)
    several = of(small.folder, workers=2)
    assert several._replace(seconds=0) == alone._replace(seconds=0)
    assert {one.file for one in several.findings} == {small.file(2).name}
