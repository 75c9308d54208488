"""Checks of the data folder's volume: room, fsync and how long it takes, the kind of file system."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from headrace.cli.doctor.finding import Asked, Finding, fail, ok, warn
from headrace.cli.retention_settings import parse_segment_size
from headrace.log.files.reserve import Reserve
from headrace.runtime.disk import Disk

SYNCS: Final = 5
"""So often a page is written and synced; the slowest counts."""
SYNC_SLOW_S: Final = 0.1
"""Above this a log with one producer takes less than ten appends a second."""
PAGE_BYTES: Final = 4096

MOUNTS: Final = Path("/proc/self/mountinfo")

VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
"""What is there is gone when the machine restarts."""
NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.s3fs"}
)
"""Locks, shared mappings and fsync mean less there than a journal needs."""
WEAK: Final = frozenset({"vfat", "exfat", "msdos", "ntfs", "fuseblk"})
"""A rename there may be half done after a power cut."""


def check_room(asked: Asked) -> list[Finding]:
    """More is free on the volume than the server keeps in reserve."""
    folder = asked.data_dir
    if folder is None:
        return []
    given = None if asked.disk_reserve is None else parse_segment_size(asked.disk_reserve, "--disk-reserve")
    reserve = Reserve(Disk(), folder, given)
    free, kept = Disk().free_bytes(folder), reserve.bytes or 0
    said = f"{folder}: {free:,} bytes are free, {kept:,} are kept in reserve"
    if free < kept:
        return [fail(said, "Make room, or let retention drop more: appends are refused.", "disk-reserve")]
    if not reserve.has_clear_room():
        return [warn(said, "Make room soon: below the reserve appends are refused.", "disk-reserve")]
    return [ok(said)]


def check_sync(asked: Asked) -> list[Finding]:
    """Bytes can be made durable in the data folder, and fast enough. A file is made for it, and removed."""
    folder = asked.data_dir
    if folder is None:
        return []
    path = folder / f".headrace-doctor-{os.getpid()}"
    slowest = 0.0
    disk = Disk()
    try:
        try:
            with disk.open(path, create=True) as file:
                for number in range(SYNCS):
                    file.write_at(number * PAGE_BYTES, bytes(PAGE_BYTES))
                    began = time.monotonic()
                    file.sync()
                    slowest = max(slowest, time.monotonic() - began)
        finally:
            if disk.exists(path):
                disk.remove(path)
    except OSError as error:
        return [
            fail(
                f"{folder}: nothing can be written and synced: {error.strerror or error}",
                "Mend the disk, its rights or its mount; run the doctor as the server's user.",
                "store-unavailable",
            )
        ]
    said = f"{folder}: the slowest of {SYNCS} fsyncs took {slowest * 1000:.1f} ms"
    if slowest > SYNC_SLOW_S:
        return [warn(said, "Use a faster disk: every group of appends waits for one.", "stalled")]
    return [ok(said)]


def check_file_system(asked: Asked) -> list[Finding]:
    """The data folder is on a file system that keeps what it confirms."""
    folder = asked.data_dir
    kind = None if folder is None else file_system_of(folder)
    if folder is None or kind is None:
        return []
    if kind in VOLATILE:
        return [fail(f"{folder} is in memory ({kind}): a restart loses it", "Put the data folder on a disk.")]
    if kind in NETWORK or kind.startswith("fuse."):
        return [
            warn(
                f"{folder} is on {kind}, whose locks and fsyncs a journal can't rely on",
                "Put the data folder on a local disk, or keep the log in PostgreSQL (--store).",
            )
        ]
    if kind in WEAK:
        return [
            warn(f"{folder} is on {kind}, which has no journal of its own", "Use ext4, XFS, btrfs or ZFS.")
        ]
    if kind == "overlay":
        return [warn(f"{folder} is in a container's own layer and goes with it", "Mount a volume there.")]
    return [ok(f"{folder} is on {kind}")]


def file_system_of(path: Path) -> str | None:
    """Return the kind of the file system that ``path`` is on; None where the system does not say."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    real = path.resolve()
    best, kind = -1, None
    for line in lines:
        head, _, tail = line.partition(" - ")
        point = Path(head.split()[4].replace("\\040", " "))
        # Of two mounts at one place the later one is seen.
        if real.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), tail.split()[0]
    return kind
