"""What stands in an archive: each file told from its name, small ones read and judged. The large ones are for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from headrace.archive.files.bases import StoredBase, files_of, read_base
from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import AcceptedGap, decode_gap, is_gap_file
from headrace.archive.files.overlaps import part
from headrace.archive.files.segments import Stored
from headrace.archive.files.writing import TEMPORARY
from headrace.archive.rights.holds import PREFIX as HOLD
from headrace.archive.rights.holds import PRUNE
from headrace.backup.verifying.findings import Finding, finding
from headrace.entries.lsn import ZERO
from headrace.errors import (
    ArchiveUnavailable,
    BaseCorrupt,
    FormatTooNew,
    HeadraceError,
    InvalidRequest,
    SegmentCorrupt,
    SegmentGap,
    SegmentsOverlap,
)
from headrace.wire.base_manifest import MANIFEST, parse_base_folder
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import Manifest, check_seal, decode_manifest

_READERS: Final = 16
"""Small files read at once."""
_TRIES: Final = 5
_SEGMENT: Final = "kdb-wal-"
_BASE: Final = "kdb-base-"
_MANIFEST: Final = ".manifest.json"
_PENDING: Final = ".pending.json"
_OWN: Final = ("owner.", "owner-", f"{PRUNE}.", f"{PRUNE}-", HOLD, TEMPORARY)
"""How names of files begin that say who is at work; they hold nothing of the backup."""

T = TypeVar("T")


@dataclass
class Layout:
    """An archive as it stands. ``manifests`` and ``base_files`` are by the segment's file and by the base's folder.

    ``segments`` and ``bases`` are in LSN order; a base is here if its manifest can be read. ``orphans``: manifests without
    their segment, by their own file.
    """

    segments: list[Stored] = field(default_factory=list)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    bases: list[StoredBase] = field(default_factory=list)
    base_files: dict[str, dict[str, int]] = field(default_factory=dict)
    accepted: list[AcceptedGap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    orphans: dict[str, Manifest] = field(default_factory=dict)
    overlaps: bool = False


def read_layout(folder: Folder) -> Layout:
    """Return what stands in the archive now, and what is wrong with small files and names. ArchiveUnavailable.

    Others may write and prune meanwhile: where a file is gone that was there, it is looked at anew.
    """
    found = _look(folder)
    for _ in range(_TRIES):
        unread = {one.file for one in found.findings if one.code == ArchiveUnavailable.code}
        if unread <= set(folder.files()):
            break
        found = _look(folder)
    if not found.segments and not found.bases and not found.findings:
        raise ArchiveUnavailable(f"{folder.shown} holds no KWAL segment and no base snapshot")
    return found


def _look(folder: Folder) -> Layout:
    files = folder.files()
    found = Layout()
    _read_segments(folder, files, found)
    _read_gaps(folder, files, found)
    for name in _folders(folder):
        _read_base(folder, name, found)
    found.bases.sort(key=lambda one: one.lsn)
    _judge_orphans(found)
    return found


# -- segments and their manifests --------------------------------------------------------------------------------------


def _read_segments(folder: Folder, files: Mapping[str, int], found: Layout) -> None:
    manifests: list[str] = []
    for file in sorted(files):
        if file.startswith(_SEGMENT) and file.endswith((".bin", ".bin.age")):
            try:
                name = SegmentName.parse(file)
                found.segments.append(Stored(name, file, files[file], name.manifest in files))
            except InvalidRequest as error:
                found.findings.append(Finding(SegmentCorrupt.code, file, error.detail, None))
        elif file.startswith(_SEGMENT) and file.endswith(_MANIFEST):
            manifests.append(file)
        elif not is_gap_file(file):
            found.notes += _notes_of(file)
    found.segments.sort()
    told = {one.name.manifest: one for one in found.segments}
    for file, manifest in _each(folder, manifests, decode_manifest, found):
        one = told.pop(file, None)
        if one is None:
            found.orphans[file] = manifest
        elif manifest.name != one.name:
            found.findings.append(
                Finding(
                    SegmentCorrupt.code, file, f"{folder.where(file)} is the manifest of {manifest.segment}"
                )
            )
        else:
            found.manifests[one.file] = manifest
    _pass_over_spare(found)
    for before, after in zip(found.segments, found.segments[1:], strict=False):
        if after.name.first <= before.name.last:
            found.overlaps = True
            found.findings.append(
                Finding(
                    SegmentsOverlap.code, after.file, f"{before.file} holds the same stretch of the journal"
                )
            )


def _pass_over_spare(found: Layout) -> None:
    """Take away what readers pass over: segments of an agent that had lost the archive to another one."""
    try:
        parted = part(found.segments, lambda _: found.manifests)
    except SegmentsOverlap:
        return
    found.segments = parted.own
    for one in parted.spare:
        found.manifests.pop(one.file, None)
        found.notes.append(
            f"{one.file} is passed over: an agent that had lost the archive put it beside others of the same entries; a "
            "prune takes it away once they go"
        )


def _notes_of(file: str) -> Iterator[str]:
    if file.startswith(_SEGMENT) and file.endswith(_PENDING):
        yield f"{file}: an encrypted segment is being written, or its agent died; the agent's next start settles it"
    elif not file.startswith(_OWN):
        yield f"{file} is no file of an archive: it was not looked at"


def _judge_orphans(found: Layout) -> None:
    """A prune that was cut off leaves some: below all segments, with a base behind them. Any other tells of a loss."""
    newest = found.bases[-1].lsn if found.bases else ZERO
    for file, manifest in found.orphans.items():
        last = manifest.name.last
        if found.segments and last < found.segments[0].name.first and last <= newest:
            found.notes.append(f"{file} is what a prune left that was cut off; the next one removes it")
        else:
            detail = f"{manifest.file} is gone: only its manifest is there"
            found.findings.append(Finding(SegmentGap.code, file, detail))


# -- accepted gaps -----------------------------------------------------------------------------------------------------


def _read_gaps(folder: Folder, files: Mapping[str, int], found: Layout) -> None:
    names = [file for file in sorted(files) if is_gap_file(file)]
    found.accepted = [gap for _, gap in _each(folder, names, decode_gap, found)]


# -- bases -------------------------------------------------------------------------------------------------------------


def _folders(folder: Folder) -> list[str]:
    with folder.reaching():
        listed = folder.store.ls(folder.path(""), detail=True)
    names = (str(one["name"]).rstrip("/").rpartition("/")[2] for one in listed if one["type"] == "directory")
    return sorted(names)


def _read_base(folder: Folder, path: str, found: Layout) -> None:
    if not path.startswith(_BASE):
        found.notes.append(f"{path}/ is no folder of an archive: it was not looked at")
        return
    file = f"{path}/{MANIFEST}"
    try:
        parse_base_folder(path)
        files = files_of(folder, path)
        if MANIFEST not in files:
            found.notes.append(f"{path}/ has no manifest: a base in the making, or what a job left that died")
            return
        base = read_base(folder, path)
    except FormatTooNew as error:
        found.findings.append(_too_new(folder, file, error, BaseCorrupt.code))
        return
    except InvalidRequest as error:
        found.findings.append(Finding(BaseCorrupt.code, path, error.detail))
        return
    except (BaseCorrupt, ArchiveUnavailable) as error:
        # A prune takes a base's manifest first: without it, it is none.
        if MANIFEST in files_of(folder, path):
            found.findings.append(finding(error, file))
        return
    found.bases.append(base)
    found.base_files[path] = files
    named = {MANIFEST, *(one.path for one in base.manifest.files)}
    if strays := [one for one in files if one not in named]:
        found.notes.append(
            f"{path}/ has {len(strays)} files that its manifest does not name; prune removes them"
        )


# -- small files -------------------------------------------------------------------------------------------------------


def _each(
    folder: Folder, names: Iterable[str], decode: Callable[[bytes, str], T], found: Layout
) -> Iterator[tuple[str, T]]:
    """Yield each file decoded; what can't be is a finding. Many are read at once: a store takes its time for each."""

    def one(name: str) -> T | Finding:
        try:
            return decode(folder.read(name), folder.where(name))
        except FormatTooNew as error:
            return _too_new(folder, name, error, SegmentCorrupt.code)
        except (SegmentCorrupt, ArchiveUnavailable) as error:
            return finding(error, name)

    names = list(names)
    with ThreadPoolExecutor(_READERS) as readers:
        for name, read in zip(names, readers.map(one, names), strict=True):
            if isinstance(read, Finding):
                found.findings.append(read)
            else:
                yield name, read


def _too_new(folder: Folder, file: str, error: HeadraceError, corrupt: str) -> Finding:
    """Tell a file of a newer version from one whose version number is damaged."""
    problem = check_seal(folder.read(file))
    return Finding(corrupt, file, f"{folder.where(file)} {problem}") if problem else finding(error, file)
