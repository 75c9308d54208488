"""The look at a whole archive: what stands there, what is missing between it, and the large files, in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from headrace.archive.files.folder import Folder
from headrace.backup.verifying.base_check import BaseTask, check_base_file
from headrace.backup.verifying.continuity import Continuity, judge
from headrace.backup.verifying.findings import Finding, Verification
from headrace.backup.verifying.layout import Layout, read_layout
from headrace.backup.verifying.segment_check import Checked, KnownRow, SegmentTask, check_segment
from headrace.backup.verifying.transactions import waiting_before
from headrace.errors import ArchiveUnavailable, BaseCorrupt, HeadraceError
from headrace.wire.base_manifest import MANIFEST
from headrace.wire.kwal import SegmentName

ALONE_BYTES_MAX: Final = 512 << 20
"""Up to so many bytes one process is as quick as several, which take half a second to start."""

Task = SegmentTask | BaseTask
Progress = Callable[[int, int], None]
"""Told how many of how many bytes were looked at."""


def verify(
    archive_url: str,
    *,
    identity: str = "",
    fast: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Look at every byte of an archive, and return all that is wrong. Nothing is written; agents and prunes may go on.

    ``identity``: file of the age identities that open encrypted segments; without it their ciphertext is checked. ``fast``:
    files' checksums and manifests only, no entries and no rows. ``workers``: processes at most (default: processors), each
    of which holds one segment. ArchiveUnavailable if the folder can't be read or has nothing of an archive; IdentityNeeded
    and Usage about keys. All else is a finding.
    """
    began = time.monotonic()
    folder = Folder(archive_url, identity)
    layout = read_layout(folder)
    continuity = judge(layout)
    bases = _base_tasks(layout, fast=fast)
    total = sum(one.size for one in (*bases, *layout.segments))
    checked: list[Checked] = []

    def run(tasks: Sequence[Task]) -> None:
        for one in _run(archive_url, identity, tasks, _processes(tasks, total, workers)):
            checked.append(one)
            if progress is not None:
                progress(sum(each.bytes for each in checked), total)

    run(bases)
    run(_segment_tasks(layout, continuity, [row for one in checked for row in one.some], fast=fast))
    findings, notes = _settled(folder, [found for one in checked for found in one.findings])
    if not fast:
        findings += _miscounted(layout, checked)
    return Verification(
        archive=folder.shown,
        findings=sorted([*layout.findings, *continuity.findings, *findings], key=_order),
        accepted=layout.accepted,
        notes=[*layout.notes, *continuity.notes, *notes],
        segments=len(layout.segments),
        bases=len(layout.bases),
        entries=sum(one.entries for one in checked),
        rows=sum(sum(one.rows.values()) for one in checked if one.rows),
        bytes=sum(one.bytes for one in checked),
        unread=sum(one.unread for one in checked),
        fast=fast,
        seconds=time.monotonic() - began,
    )


def _order(found: Finding) -> tuple[str, int, str]:
    return found.file, found.byte or 0, found.detail


def _base_tasks(layout: Layout, *, fast: bool) -> list[Task]:
    since = str(layout.segments[0].name.first) if layout.segments else ""
    tasks: list[Task] = []
    for base in layout.bases:
        reached = {(one.feed, one.incarnation): one.sequence_id for one in base.manifest.feeds}
        tasks += [
            BaseTask(base.path, str(base.lsn), one, reached, fast, since) for one in base.manifest.files
        ]
    return tasks


def _segment_tasks(
    layout: Layout, continuity: Continuity, rows: Sequence[KnownRow], *, fast: bool
) -> list[Task]:
    ordered = sorted(rows)
    lsns = [one.lsn for one in ordered]
    # Where segments overlap, nobody can tell which one is before another.
    waiting = {} if layout.overlaps else waiting_before(layout.segments, layout.manifests)
    return [
        SegmentTask(
            one.file,
            one.size,
            layout.manifests.get(one.file),
            tuple(continuity.known.get(one.file, ())),
            fast,
            tuple(ordered[bisect_left(lsns, one.name.first) : bisect_right(lsns, one.name.last)]),
            waiting.get(one.file, {}),
        )
        for one in layout.segments
    ]


def _settled(folder: Folder, findings: Sequence[Finding]) -> tuple[list[Finding], list[str]]:
    """Tell files that a prune took away meanwhile from those that are gone: (findings, notes)."""
    if not any(one.code == ArchiveUnavailable.code for one in findings):
        return list(findings), []
    files = folder.files()
    segments = sorted(
        file for file in files if file.startswith("kdb-wal-") and file.endswith((".bin", ".bin.age"))
    )
    kept, notes = [], []
    for one in findings:
        path = one.file.rpartition("/")[0]
        if one.code != ArchiveUnavailable.code:
            pruned = False
        elif path:
            pruned = not folder.exists(f"{path.split('/')[0]}/{MANIFEST}")
        else:
            pruned = one.file not in files and bool(segments) and _is_before(one.file, segments[0])
        if pruned:
            notes.append(f"{one.file} was taken away meanwhile, as a prune does: it was not looked at")
        else:
            kept.append(one)
    return kept, notes


def _is_before(file: str, other: str) -> bool:
    return SegmentName.parse(file).last < SegmentName.parse(other).first


def _miscounted(layout: Layout, checked: Sequence[Checked]) -> Iterator[Finding]:
    """Compare how many rows bases have of each feed with what their manifests say, where all files could be read."""
    rows = {one.file: one.rows for one in checked}
    for base in layout.bases:
        counts: Counter[tuple[str, str]] = Counter()
        files = [rows.get(f"{base.path}/{one.path}") for one in base.manifest.files]
        if any(one is None for one in files):
            continue
        for one in files:
            counts.update(one or {})
        for feed in base.manifest.feeds:
            if (found := counts[feed.feed, feed.incarnation]) != feed.entries:
                detail = (
                    f"its files have {found} rows of {feed.feed} ({feed.incarnation}); it says {feed.entries}"
                )
                yield Finding(BaseCorrupt.code, f"{base.path}/{MANIFEST}", detail)


# -- processes ---------------------------------------------------------------------------------------------------------


def _processes(tasks: Sequence[Task], total: int, workers: int | None) -> int:
    if total <= ALONE_BYTES_MAX:
        return 1
    return max(1, min(workers or os.cpu_count() or 1, len(tasks)))


def _run(url: str, identity: str, tasks: Sequence[Task], processes: int) -> Iterator[Checked]:
    """Yield what was found in each file, in any order. This process is one of those that look."""
    folder, waiting = Folder(url, identity), deque(tasks)
    if processes == 1:
        yield from (_check(folder, identity, task) for task in tasks)
        return
    # Not forked: a driver of an object store has threads, which a fork would leave behind.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes - 1, context, initializer=_begin, initargs=(url, identity))
    given: set[Future[Checked]] = set()
    try:
        while waiting or given:
            # One more than there are, so that none waits for this one; but at the end this one would wait for it.
            several = processes if len(waiting) > 2 * processes else processes - 1
            while waiting and len(given) < several:
                given.add(pool.submit(_check_here, waiting.popleft()))
            if waiting:
                yield _check(folder, identity, waiting.popleft())
            done, given = wait(given, 0 if waiting else None, FIRST_COMPLETED)
            for one in done:
                yield one.result()
    except BrokenProcessPool:
        raise HeadraceError(
            "a process that was reading the archive ended: most likely there was too little memory",
            hint="Each process holds one segment, and an encrypted one twice: give fewer --workers.",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _check(folder: Folder, identity: str, task: Task) -> Checked:
    if isinstance(task, SegmentTask):
        return check_segment(folder, task, identity)
    return check_base_file(folder, task)


_here: list[tuple[Folder, str]] = []
"""In a worker process: its folder, and the identity."""


def _begin(url: str, identity: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which then ends this one
    _here.append((Folder(url, identity), identity))


def _check_here(task: Task) -> Checked:
    return _check(*_here[0], task)
