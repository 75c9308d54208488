"""A segment and its manifest put into an archive, in the order that a crash can do no harm to. For backup agents.

The manifest is put first under another name, ``….pending.json``, then the segment, then the manifest under its own name;
then the pending one goes. So whatever is found after a crash can be finished: an encrypted segment can't be read through by
the agent, and of a plain one nobody could tell whether something is missing in front of a feed that it holds for the first
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headrace.archive.files.encryption import check_encrypted, encrypt
from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import put_new, remove
from headrace.errors import ArchiveConflict
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

    ``check`` raises unless the archive is still this process's (:meth:`headrace.archive.rights.owner.Owner.check`), and is
    asked before each file. A segment that is there with the same entries is fine: then its own manifest stays.
    ArchiveConflict; ArchiveFull and ArchiveUnavailable, after which the same call may be made again.
    """
    name = files.manifest.name
    told = _told(folder, name)
    if told is not None and (told.encryption is not None or files.manifest.encryption is not None):
        # The bytes of the file are others each time it is encrypted. What is compared is what they say.
        return _stands(folder, told, files.manifest, check)
    if told is None:
        check()
        put_new(folder, name.pending, [encode_manifest(files.manifest)])
    check()
    put_new(folder, files.manifest.file, files.pieces)
    check()
    if told is not None:
        return _stands(folder, told, files.manifest, check)
    put_new(folder, name.manifest, [encode_manifest(files.manifest)])
    remove(folder, [name.pending])
    return files.manifest


def settle(folder: Folder) -> list[Settled]:
    """Finish what an agent that died was about to put, or take it back: segments without a manifest. By the owner.

    SegmentCorrupt, naming it, if such a segment is not what was to be written; ArchiveConflict; ArchiveUnavailable.
    """
    present = folder.files()
    done = []
    for file in sorted(present):
        if not file.endswith(_PENDING):
            continue
        data = folder.read(file)
        manifest = decode_manifest(data, folder.where(file))
        kept = manifest.file in present
        if manifest.name.manifest in present:
            _same(folder, decode_manifest(folder.read(manifest.name.manifest), folder.where(file)), manifest)
        elif kept:
            where, found = folder.where(manifest.file), folder.read(manifest.file)
            if manifest.encryption is not None:
                check_encrypted(memoryview(found), manifest, where)
            else:
                Segment(found, where=where, name=manifest.name, manifest=manifest)
            put_new(folder, manifest.name.manifest, [data])
        remove(folder, [file])
        done.append(Settled(manifest.name, kept))
    return done


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
