"""A segment and its manifest put into an archive, in the order that a crash can do no harm to. For backup agents.

The manifest is put first under another name, ``….pending.json``, then the segment, then the manifest under its own name;
then the pending one goes. So whatever is found after a crash can be finished: an encrypted segment can't be read through by
the agent, and of a plain one nobody could tell whether something is missing in front of a feed that it holds for the first
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.structs import replace

from headrace.archive.files.encryption import check_encrypted, encrypt
from headrace.archive.files.folder import Folder, segments_in
from headrace.archive.files.writing import put_new, remove
from headrace.errors import ArchiveConflict, SegmentCorrupt
from headrace.wire.kwal import Sealed, SegmentName
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_manifest import Manifest, decode_manifest, encode_manifest

_PENDING: Final = ".pending.json"


class SegmentFiles(NamedTuple):
    """What is put into an archive: the segment's file as pieces, encrypted or not, and its manifest."""

    pieces: list[bytes]
    manifest: Manifest


class Settled(NamedTuple):
    """What became of a segment that was being written: ``kept`` if it is whole in the archive."""

    name: SegmentName
    kept: bool


def prepare(sealed: Sealed, manifest: Manifest, recipients: Sequence[str] = ()) -> SegmentFiles:
    """Return the files of a segment, encrypted to the recipients if there are any.

    Once for each segment: :func:`put_segment` may be tried again with what this returned, but encryption never makes the
    same bytes twice. Usage as :func:`headrace.archive.files.encryption.encrypt`.
    """
    if not recipients:
        return SegmentFiles(sealed.pieces, manifest)
    encrypted = encrypt(sealed.pieces, recipients)
    return SegmentFiles(encrypted.pieces, manifest.with_encryption(encrypted.told))


def put_segment(folder: Folder, files: SegmentFiles, check: Callable[[], None]) -> Manifest:
    """Put the segment and its manifest there, durably, and return the manifest that stands there then.

    ``check`` raises unless the archive is still this process's (:meth:`headrace.archive.rights.owner.Owner.check`). It is
    asked before each file, and once more when all stand: what is acked then, every later owner has seen and goes on behind.
    A segment that is there with the same entries is fine: then its own manifest stays. ArchiveConflict; ArchiveFull and
    ArchiveUnavailable, after which the same call may be made again.
    """
    manifest = files.manifest
    name = manifest.name
    told = _told(folder, name)
    if told is not None and (told.encryption is not None or manifest.encryption is not None):
        # The bytes of the file are others each time it is encrypted. What is compared is what they say.
        return _stands(folder, told, manifest, check)
    announced = [name.pending]
    if told is None:
        check()
        announced, manifest = _announce(folder, manifest)
    check()
    try:
        put_new(folder, manifest.file, files.pieces)
    except ArchiveConflict:
        manifest = _landed(folder, manifest)
    check()
    if told is not None:
        return _stands(folder, told, manifest, check)
    put_new(folder, name.manifest, [encode_manifest(manifest)])
    check()
    remove(folder, announced)
    return manifest


def settle(folder: Folder) -> list[Settled]:
    """Finish what an agent that died was about to put, or take it back: segments without a manifest. By the owner.

    One that overlaps what has a manifest is not finished: it came late, from an agent that had lost the archive. In an
    object store what was only announced stays until then, as its segment may be on the way yet.
    SegmentCorrupt, naming it, if such a segment is not what was to be written; ArchiveConflict; ArchiveUnavailable.
    """
    present = folder.files()
    told = [one.name for one in segments_in(present) if one.told]
    done = []
    for name, announced in groupby(_announced(folder, present), key=lambda one: one.manifest.name):
        found = list(announced)
        is_told = name.manifest in present
        is_late = not is_told and any(one.first <= name.last and name.first <= one.last for one in told)
        there = [one for one in found if one.manifest.file in present]
        if is_told:
            stands = decode_manifest(folder.read(name.manifest), folder.where(name.manifest))
            for one in found:
                _same(folder, stands, one.manifest)
        elif there and not is_late:
            put_new(folder, name.manifest, [_fitting(folder, there).data])
            told.append(name)
        elif not is_late and folder.local is None:
            continue  # its segment may be on the way yet
        remove(folder, [one.file for one in found])
        done.append(Settled(name, bool(there) and not is_late))
    return done


class _Announcement(NamedTuple):
    """A manifest that stands under a name of its own while its segment comes. ``data``: its bytes."""

    manifest: Manifest
    file: str
    data: bytes


def _announced(folder: Folder, files: Iterable[str]) -> list[_Announcement]:
    """Return what is announced, in order of the segments."""
    found = []
    for file in sorted(file for file in files if file.endswith(_PENDING)):
        data = folder.read(file)
        found.append(_Announcement(decode_manifest(data, folder.where(file)), file, data))
    return sorted(found, key=lambda one: (one.manifest.name, one.file))


def _fitting(folder: Folder, announced: Sequence[_Announcement]) -> _Announcement:
    """Return which of them the segment that is there was announced by; SegmentCorrupt if none of them fits."""
    *others, last = announced
    for one in others:
        with suppress(SegmentCorrupt):
            _check(folder, one.manifest)
            return one
    _check(folder, last.manifest)
    return last


def _check(folder: Folder, manifest: Manifest) -> None:
    where, found = folder.where(manifest.file), folder.read(manifest.file)
    if manifest.encryption is not None:
        check_encrypted(memoryview(found), manifest, where)
    else:
        Segment(found, where=where, name=manifest.name, manifest=manifest)


def _announce(folder: Folder, manifest: Manifest) -> tuple[list[str], Manifest]:
    """Put what is about to come. Return its files, and what stands there: an agent that lost the archive may be faster.

    Then its announcement holds if it is of the very same file: only the server's registry may be another. Encrypted files
    are never the same: theirs may still arrive, so each is announced.
    """
    data = [encode_manifest(manifest)]
    try:
        put_new(folder, manifest.name.pending, data)
    except ArchiveConflict:
        found = decode_manifest(folder.read(manifest.name.pending), folder.where(manifest.name.pending))
        if (found.size, found.crc) != (manifest.size, manifest.crc):
            raise
        if manifest.encryption is None:
            if replace(found, registry=manifest.registry) != manifest:
                raise
            return [manifest.name.pending], found
        second = f"{manifest.name.pending.removesuffix(_PENDING)}.{manifest.encryption.crc:08x}{_PENDING}"
        put_new(folder, second, data)
        return [manifest.name.pending, second], manifest
    return [manifest.name.pending], manifest


def _landed(folder: Folder, manifest: Manifest) -> Manifest:
    """Return the manifest of an encrypted file that arrived from an agent that had lost the archive, of the same entries."""
    conflict = ArchiveConflict(f"{folder.where(manifest.file)} is there already, with other bytes")
    announced = [
        one
        for one in _announced(folder, folder.files())
        if one.manifest.file == manifest.file
        and one.manifest.encryption is not None
        and (one.manifest.size, one.manifest.crc) == (manifest.size, manifest.crc)
    ]
    if not announced:
        raise conflict
    try:
        return _fitting(folder, announced).manifest
    except SegmentCorrupt:
        raise conflict from None


def _told(folder: Folder, name: SegmentName) -> Manifest | None:
    if not folder.exists(name.manifest):
        return None
    return decode_manifest(folder.read(name.manifest), folder.where(name.manifest))


def _stands(folder: Folder, told: Manifest, ours: Manifest, check: Callable[[], None]) -> Manifest:
    """Return the manifest that is there, of the same entries; an earlier try may have failed at its very last step."""
    found = _same(folder, told, ours)
    check()
    remove(folder, [ours.name.pending])
    return found


def _same(folder: Folder, told: Manifest, ours: Manifest) -> Manifest:
    """Return the manifest that is there if it is of the same entries, byte for byte, and of a file that is there."""
    if (told.size, told.crc) != (ours.size, ours.crc):
        raise ArchiveConflict(f"{folder.where(told.file)} is there already, with other entries")
    if not folder.exists(told.file):
        raise ArchiveConflict(f"{folder.where(told.name.manifest)} is there, and its segment is not")
    return told
