"""Pruning an archive: the plan of :mod:`headrace.archive.moments.pruning` carried out, hourly by the agent, or by a command.

A crash at any point leaves an archive that is whole, only larger than it need be. Bases go before segments, so that none is
ever seen without what follows it; of a base the manifest goes first: without it, it is no base. Segments go oldest first, so
that what stays has no gap; of a segment the file goes before the manifest: a manifest alone is passed over, a segment alone
would look like one whose past nobody knows. What a crash left is swept by the next prune.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from headrace.archive.files.bases import Bases, check_contents, files_of, usable_bases
from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import gap_file, read_gaps
from headrace.archive.files.overlaps import spare_beside
from headrace.archive.files.segments import Stored
from headrace.archive.files.writing import remove
from headrace.archive.moments.catalogue import sound_manifests
from headrace.archive.moments.pruning import Base, Contents, PrunePlan, Terms, plan_prune
from headrace.archive.rights.holds import Check, holders, pruning
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt, InvalidRequest
from headrace.wire.base_manifest import MANIFEST, parse_base_folder
from headrace.wire.kwal import SegmentName

LEFTOVER_MS: Final = 86_400_000
"""How old the files of a base must be to be leftovers if no manifest names them: it may be in the making."""
_AT_ONCE: Final = 50
"""Segments removed between two looks at whether the right to prune is still there."""
_MANIFEST: Final = ".manifest.json"

Progress = Callable[[int, int], None]
"""Told how many of how many files are removed."""


class Pruned(NamedTuple):
    """What a prune did, or would do. ``leftovers``: files below the archive that a crash left, and that go, too.

    ``bytes_going``: of segments and bases. ``confirmed``: all that goes is gone. Where it is refused nothing goes.
    """

    plan: PrunePlan
    confirmed: bool
    bytes_going: int
    leftovers: list[str]

    @property
    def refused(self) -> str:
        """Why nothing goes though something is old enough; empty otherwise."""
        return self.plan.refused

    def document(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        plan = self.plan
        return {
            "confirmed": self.confirmed,
            "refused": plan.refused or None,
            "reachable-from-ms": plan.horizon_ms,
            "anchor": plan.anchor.path if plan.anchor is not None else None,
            "keep-from": str(plan.keep_from) if plan.keep_from is not None else None,
            "bytes": self.bytes_going,
            "segments": [
                {"file": one.segment.file, "fate": one.fate.value, "goes": one.fate.goes}
                for one in plan.segments
            ],
            "bases": [
                {
                    "path": one.base.path,
                    "fate": one.fate.value,
                    "goes": one.fate.goes,
                    "problem": one.base.problem or None,
                }
                for one in plan.bases
            ],
            "accepted-gaps": [gap_file(one) for one in plan.accepted],
            "leftovers": self.leftovers,
        }


def prune_once(
    archive_url: str,
    terms: Terms,
    *,
    confirm: bool,
    now_ms: int,
    progress: Progress | None = None,
) -> Pruned:
    """Remove what the terms let go, or only say what that is. An agent may write to the archive meanwhile.

    Where safety forbids that anything goes, ``refused`` says why, and nothing is removed. Repeating it is safe.
    With ``confirm`` all files of the base that reaches the retention are read before anything older goes: a damaged one does
    not count.

    ArchiveOwned if another process prunes the archive, or who holds it can't be told; SegmentsOverlap; SegmentCorrupt for a
    damaged record of a gap; FormatTooNew; ArchiveUnavailable.
    """
    folder = Folder(archive_url)
    if not confirm:
        found = look(folder, terms, now_ms)
        return found.pruned(confirmed=False)
    with pruning(folder) as check:
        found = look(folder, terms, now_ms, read_anchor=True)
        _carry_out(folder, found, check, progress)
        return found.pruned(confirmed=True)


class Found(NamedTuple):
    """The plan, the files of the bases that go by it (by the base's folder), and what crashes left, dead holds among it.

    ``spare``: segments that go by it and are none of the archive's own.
    """

    plan: PrunePlan
    base_files: dict[str, dict[str, int]]
    spare: list[Stored]
    leftovers: list[str]

    def removals(self) -> list[list[str]]:
        """Return the files to remove, in this order: in steps, between which the right to prune is looked at."""
        if self.plan.refused:
            return []
        steps = [
            [f"{path}/{file}" for file in _manifest_first(files)] for path, files in self.base_files.items()
        ]
        going = self.plan.segments_going
        # Those that branch off behind others first: alone they would be of nobody knows what.
        steps += [[name for one in reversed(self.spare) for name in _files_of_segment(one)]]
        steps += [
            [name for one in going[at : at + _AT_ONCE] for name in _files_of_segment(one)]
            for at in range(0, len(going), _AT_ONCE)
        ]
        return [*steps, [*map(gap_file, self.plan.accepted), *self.leftovers]]

    def pruned(self, *, confirmed: bool) -> Pruned:
        """Return what is told of it."""
        size = sum(one.size for one in self.plan.segments_going)
        size += sum(sum(files.values()) for files in self.base_files.values())
        left = [] if self.plan.refused else [*(one.file for one in self.spare), *self.leftovers]
        return Pruned(self.plan, confirmed, size, left)


def look(folder: Folder, terms: Terms, now_ms: int, *, read_anchor: bool = False) -> Found:
    """Read what is there, and plan; nothing is changed. ``read_anchor``: where anything goes, the anchor's files were read.

    Who holds is asked first: who comes later finds that all which goes is gone already.
    """
    holds = holders(folder)
    files = folder.files()
    parted = folder.parted(files)
    segments = parted.own
    bases = usable_bases(folder)
    contents = Contents(
        segments,
        sound_manifests(folder, segments)[0],
        _bases(bases),
        read_gaps(folder, list(files)),
        holds.held,
    )
    plan = plan_prune(contents, terms, now_ms)
    while read_anchor and (plan.segments_going or plan.bases_going):
        if (sound := _without_damaged(folder, contents, plan.anchor)) is contents:
            break
        contents = sound
        plan = plan_prune(contents, terms, now_ms)
    going = {one.path: files_of(folder, one.path) for one in plan.bases_going}
    spare = spare_beside(parted, plan.segments_going)
    return Found(plan, going, spare, [*holds.dead, *_leftovers(folder, contents, plan, bases, files)])


def _bases(bases: Bases) -> list[Base]:
    found = [
        Base(parse_base_folder(one.path), one.path, None, one.problem)
        for one in bases.unsound
        if one.finished
    ]
    found += [Base(one.lsn, one.path, one) for one in bases.sound]
    return sorted(found, key=lambda one: one.lsn)


def _without_damaged(folder: Folder, contents: Contents, anchor: Base | None) -> Contents:
    """Read all files of a base; where one is not what was written, return the contents with a base that can't be used."""
    if anchor is None or anchor.stored is None:
        return contents
    try:
        check_contents(folder, anchor.stored)
    except BaseCorrupt as error:
        damaged = anchor._replace(stored=None, problem=error.detail)
        return contents._replace(bases=[damaged if one == anchor else one for one in contents.bases])
    return contents


# -- what crashes left -------------------------------------------------------------------------------------------------


def _leftovers(
    folder: Folder, found: Contents, plan: PrunePlan, bases: Bases, files: Mapping[str, int]
) -> list[str]:
    limit, segments = plan.keep_from, found.segments
    if limit is None or plan.refused or not segments:
        return []
    left = [file for file in sorted(files) if _is_left_manifest(file, min(limit, segments[0].name.first))]
    if found.holds:
        return left  # one of them may be making a base
    old_ms = min(plan.now_ms, _modified_ms(folder, segments[-1].file)) - LEFTOVER_MS
    named = {one.path: {MANIFEST, *(file.path for file in one.manifest.files)} for one in bases.sound}
    named |= {one.path: set() for one in bases.unsound if not one.finished}
    for path in sorted(named):
        strays = [f"{path}/{file}" for file in files_of(folder, path) if file not in named[path]]
        if strays and all(_modified_ms(folder, file) < old_ms for file in strays):
            left += sorted(strays)
    return left


def _is_left_manifest(file: str, limit: Lsn) -> bool:
    """Tell whether a file is the manifest of a segment that was below ``limit``, so below all that is there."""
    if not (file.startswith("kdb-wal-") and file.endswith(_MANIFEST)):
        return False
    try:
        return SegmentName.parse(f"{file.removesuffix(_MANIFEST)}.bin").last < limit
    except InvalidRequest:
        return False


def _modified_ms(folder: Folder, file: str) -> int:
    with folder.reaching(file):
        return int(folder.store.modified(folder.path(file)).timestamp() * 1000)


# -- removing ----------------------------------------------------------------------------------------------------------


def _carry_out(folder: Folder, found: Found, check: Check, progress: Progress | None) -> None:
    steps = found.removals()
    total, done = sum(map(len, steps)), 0
    for step in steps:
        check()
        for file in step:
            check(lately=True)  # the process may have slept since, and another one may count on what is there
            remove(folder, [file])
        done += len(step)
        if progress is not None:
            progress(done, total)
    if steps:
        strays = [file.partition("/")[0] for file in found.leftovers if "/" in file]
        _remove_empty_folders(folder, [*found.base_files, *strays])


def _manifest_first(files: Mapping[str, int]) -> list[str]:
    return sorted(files, key=lambda file: (file != MANIFEST, file))


def _files_of_segment(segment: Stored) -> list[str]:
    return [segment.file, segment.name.manifest] if segment.told else [segment.file]


def _remove_empty_folders(folder: Folder, paths: Sequence[str]) -> None:
    """Object stores have no folders."""
    if folder.local is None:
        return
    with folder.reaching():
        for path in dict.fromkeys(paths):
            root = folder.local / path
            inner = sorted((one for one in root.rglob("*") if one.is_dir()), reverse=True)
            for one in (*inner, root):
                with suppress(OSError):  # not empty: somebody makes this base anew
                    one.rmdir()
