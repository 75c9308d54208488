"""What is missing between files, which of them are none of an archive, and bases that are of another log."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from headrace.archive.files.bases import StoredBase, read_base
from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.backup.verifying import layout
from headrace.wire.base_manifest import MANIFEST, decode_base, encode_base
from tests.archive_model import Append, History, write_archive
from tests.base_files import write_whole_base
from tests.kwal import manifest_of, sealed, write
from tests.small_archives import Small, earlier, of, only


def test_a_segment_that_is_gone_is_a_gap_until_it_is_accepted(small: Small) -> None:
    small.file(1).unlink()
    named = {(one.code, one.file) for one in of(small.folder).findings}
    assert named == {("segment-gap", small.manifest(1).name), ("segment-gap", small.file(2).name)}
    small.manifest(1).unlink()
    shutil.rmtree(small.base)
    one = only(of(small.folder))
    assert (one.code, one.file) == ("segment-gap", small.file(2).name)
    after, before = small.segments[0].name.last, small.segments[2].name.first
    assert str(after) in one.detail
    gap = AcceptedGap(after=str(after), before=str(before), reason="a disk died", by="ops@host", at_ms=1)
    (small.folder / gap_file(gap)).write_bytes(encode_gap(gap))
    found = of(small.folder)
    assert found.findings == []
    assert found.accepted == [gap]


def test_a_segment_without_a_manifest_is_a_gap_but_for_the_newest(small: Small) -> None:
    small.manifest(3).unlink()
    found = of(small.folder)
    assert found.findings == []
    assert "is the newest segment and has no manifest yet" in found.notes[0]
    small.manifest(0).unlink()
    assert f"{small.file(0).name} has no manifest" in of(small.folder).notes[1]
    small.rewrite(0)
    small.manifest(1).unlink()
    assert "segment-gap" in {one.code for one in of(small.folder).findings if one.file == small.file(1).name}


def test_what_a_prune_left_is_no_damage(small: Small) -> None:
    small.file(0).unlink()
    found = of(small.folder)
    assert found.findings == []
    assert "what a prune left" in found.notes[0]


def test_segments_without_a_beginning_are_not_whole(small: Small) -> None:
    shutil.rmtree(small.base)
    small.file(0).unlink()
    named = {(one.code, one.file) for one in of(small.folder).findings}
    assert named == {("segment-gap", small.manifest(0).name), ("segment-gap", small.file(1).name)}
    small.manifest(0).unlink()
    assert "nothing can be rebuilt" in only(of(small.folder)).detail


def test_segments_that_are_gone_between_bases_are_a_gap(small: Small) -> None:
    write_whole_base(small.folder, small.segments[:1], small.segments[0].name.last)
    for at in (0, 1):
        small.file(at).unlink()
        small.manifest(at).unlink()
    one = only(of(small.folder))
    assert (one.code, one.file) == ("segment-gap", small.file(2).name)
    assert f"above lsn={small.segments[0].name.last}" in one.detail


def test_a_base_of_another_history_is_found(small: Small) -> None:
    manifest = decode_base((small.base / MANIFEST).read_bytes(), "a base")
    file = rewrite_base(
        small, feeds=tuple(msgspec.structs.replace(one, incarnation="another") for one in manifest.feeds)
    )
    found = [(one.code, one.file) for one in of(small.folder).findings if one.file == file]
    assert sorted(set(found)) == [("base-corrupt", file), ("segment-gap", file)]


def test_two_agents_in_one_folder(small: Small) -> None:
    other = sealed(small.history.appends[4:7])
    write(small.folder, other, manifest_of(other))
    found = of(small.folder)
    assert {one.code for one in found.findings} == {"segments-overlap"}
    assert {one.file for one in found.findings} == {str(other.name), str(small.segments[2].name)}
    assert "segments overlap" in found.notes[-1]


def test_an_entry_that_a_history_lacks_is_found_though_segments_join(small: Small) -> None:
    parts = [
        msgspec.structs.replace(
            one,
            first_sequence_id=one.first_sequence_id + (1 << 32),
            last_sequence_id=one.last_sequence_id + (1 << 32),
        )
        for one in small.manifests[2].feeds
    ]
    small.rewrite(2, feeds=tuple(parts))
    shutil.rmtree(small.base)
    found = of(small.folder).findings
    assert {one.code for one in found} == {"segment-gap"}
    assert "has its entry" in found[0].detail


def test_files_that_are_none_of_an_archive_are_told(small: Small) -> None:
    for name in (
        "readme.txt",
        "owner.lock",
        "hold-1-ab.json",
        ".tmp-1-ab",
        f"{small.manifest(0).name[:-14]}.pending.json",
    ):
        (small.folder / name).write_text("{}")
    (small.folder / "kdb-wal-1-2.bin").write_bytes(b"")
    (small.folder / "elsewhere").mkdir()
    found = of(small.folder)
    assert (only(found).code, only(found).file) == ("segment-corrupt", "kdb-wal-1-2.bin")
    assert [note.split()[0].rstrip(":") for note in found.notes] == [
        f"{small.manifest(0).name[:-14]}.pending.json",
        "readme.txt",
        "elsewhere/",
    ]


def test_a_file_of_a_newer_version_is_told_from_a_damaged_one(small: Small) -> None:
    small.rewrite(1, readable_from=9, written_as=9)
    assert "format-too-new" in {
        one.code for one in of(small.folder).findings if one.file == small.manifest(1).name
    }
    data = small.manifest(1).read_bytes().replace(b'"readable-from": 9', b'"readable-from": 8')
    small.manifest(1).write_bytes(data)
    assert "segment-corrupt" in {
        one.code for one in of(small.folder).findings if one.file == small.manifest(1).name
    }


# -- bases -------------------------------------------------------------------------------------------------------------


def rewrite_base(small: Small, **changes: object) -> str:
    path = small.base / MANIFEST
    manifest = decode_base(path.read_bytes(), "a base")
    path.write_bytes(encode_base(msgspec.structs.replace(manifest, **changes)))
    return f"{small.base.name}/{MANIFEST}"


def test_a_base_is_compared_with_its_files(small: Small) -> None:
    manifest = decode_base((small.base / MANIFEST).read_bytes(), "a base")
    first, second = manifest.feeds
    moved = (
        msgspec.structs.replace(first, entries=first.entries - 1),
        msgspec.structs.replace(second, entries=second.entries + 1),
    )
    file = rewrite_base(small, feeds=moved)
    found = of(small.folder).findings
    assert [(one.code, one.file) for one in found] == [("base-corrupt", file)] * 2
    short = (msgspec.structs.replace(first, sequence_id=first.sequence_id - 1), second)
    rewrite_base(small, feeds=short)
    assert "beyond the entry" in str(
        [one.detail for one in of(small.folder).findings if one.file.endswith(".parquet")]
    )
    rewrite_base(small, feeds=manifest.feeds)
    gone = small.base / manifest.files[1].path
    gone.unlink()
    one = only(of(small.folder))
    assert (one.code, one.file) == ("archive-unavailable", f"{small.base.name}/{manifest.files[1].path}")


def test_a_base_is_compared_with_the_segments(small: Small) -> None:
    manifest = decode_base((small.base / MANIFEST).read_bytes(), "a base")
    first, second = manifest.feeds
    file = rewrite_base(small, feeds=(first, msgspec.structs.replace(second, lsn=earlier(second.lsn))))
    one = only(of(small.folder))
    assert (one.code, one.file) == ("base-corrupt", file)
    assert f"has lsn={earlier(second.lsn)}; it has lsn={second.lsn}" in one.detail
    far = msgspec.structs.replace(second, sequence_id=second.sequence_id + 5)
    rewrite_base(small, feeds=(first, far))
    found = of(small.folder).findings
    assert {(one.code, one.file) for one in found} == {("base-corrupt", file), ("segment-gap", file)}
    assert f"has no entry {far.sequence_id}" in found[0].detail


def test_rows_of_a_base_are_compared_with_the_log(tmp_path: Path) -> None:
    def history(*values: bytes) -> History:
        return History([Append(7, 10 * at, values=(value,)) for at, value in enumerate(values)])

    log, other = history(b"1", b"2", b"3", b"4"), history(b"1", b"two", b"3", b"4")
    base_file = "bucket=0/part-0.parquet"
    for name, of_log in (("same", True), ("other", False)):
        folder = tmp_path / name
        source = log if of_log else other
        write_archive(folder, source.segments([2]))
        base = write_whole_base(folder, source.segments([2])[:1], log.entries[1].lsn, buckets=1)
        write_archive(folder / "log", log.segments([2]))
        shutil.copytree(base, folder / "log" / base.name)
        found = of(folder / "log").findings
        if of_log:
            assert found == []
            continue
        one = only(of(folder / "log"))
        assert (one.code, one.file) == ("base-corrupt", f"{base.name}/{base_file}")
        assert f"a row (put) of lsn={log.entries[1].lsn}: the log has another entry there" in one.detail
        assert of(folder / "log", fast=True).findings == []


def test_a_base_beyond_the_last_segment_tells_that_segments_are_gone(small: Small) -> None:
    for at in (1, 2, 3):
        small.file(at).unlink()
        small.manifest(at).unlink()
    one = only(of(small.folder))
    assert (one.code, one.file) == ("segment-gap", small.file(0).name)


def test_a_base_without_a_manifest_is_none(small: Small) -> None:
    (small.base / MANIFEST).unlink()
    found = of(small.folder)
    assert found.findings == []
    assert found.bases == 0
    assert "a base in the making" in found.notes[0]


# -- meanwhile ---------------------------------------------------------------------------------------------------------


def test_what_a_prune_takes_away_meanwhile_is_no_damage(small: Small) -> None:
    def prune(done: int, total: int) -> None:
        for at in (0, 1):
            small.file(at).unlink(missing_ok=True)
            small.manifest(at).unlink(missing_ok=True)
        shutil.rmtree(small.base, ignore_errors=True)

    found = of(small.folder, progress=prune)
    assert found.findings == []
    assert len([note for note in found.notes if "was taken away meanwhile" in note]) == 3


def test_a_base_that_a_prune_takes_away_while_it_is_looked_at_is_no_damage(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(folder: Folder, path: str) -> StoredBase:
        shutil.rmtree(small.base, ignore_errors=True)
        return read_base(folder, path)

    monkeypatch.setattr(layout, "read_base", gone)
    found = of(small.folder)
    assert found.findings == []
    assert found.bases == 0


def test_a_file_that_is_gone_from_the_middle_is_damage(small: Small) -> None:
    def lose(done: int, total: int) -> None:
        small.file(2).unlink(missing_ok=True)

    one = only(of(small.folder, progress=lose))
    assert (one.code, one.file) == ("archive-unavailable", small.file(2).name)
