"""The folder of whole snapshots: written once, served to many, gone after an hour. One agent owns it.

A snapshot is a folder named by its id, with a file for each encoding and ``about.json``. While it is made its name ends in
``.making``; a durable rename makes it whole. So whatever a crash leaves is either whole or thrown away at the next start.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.errors import SnapshotGone, SnapshotUnavailable
from headrace.publisher.snapshot.draft import ENCODINGS, FORMAT, Draft
from headrace.publisher.snapshot.folder import ABOUT, MAKING, discard, is_ours, snapshot_folders, take_folder
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk, DiskFile
from headrace.runtime.typed_json import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator

FREE_BYTES_MIN: Final = 256 << 20
"""So much of the volume is left free: the source's own files may be on it."""


class Whole(msgspec.Struct, frozen=True, rename="kebab"):
    """A whole snapshot as ``about.json`` tells of it. ``sizes``: bytes by encoding. Times are UTC milliseconds.

    ``format`` is that of the lines. A file of a format that this program does not know is thrown away: it can be made anew.
    """

    format: int
    snapshot_id: str
    change_feed_id: str
    incarnation: str
    sequence_id: int
    taken_at_ms: int
    whole_at_ms: int
    rows: int
    sizes: dict[str, int]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(self.sizes.values())


class Spool:
    """The snapshots of one agent, at most ``bytes_max`` bytes of them, each kept for ``keep_s``. For several threads."""

    def __init__(self, folder: Path, *, bytes_max: int, keep_s: float, clock: Clock, disk: Disk) -> None:
        self.folder = folder
        self._bytes_max = bytes_max
        self._keep_ms = round(keep_s * 1000)
        self._clock = clock
        self._disk = disk
        self._mutex = threading.RLock()
        self._whole: dict[str, Whole] = {}
        self._readers: dict[str, int] = {}
        self._drafts: dict[str, int] = {}
        self._ending = False
        self._owner: DiskFile | None = None

    def open(self) -> None:
        """Own the folder: keep what is whole, throw away what is left of other snapshots, and touch nothing else.

        ConfigInvalid if it is no spool and not empty; DataFolderLocked if another agent has it; OSError.
        """
        self._owner = take_folder(self.folder, self._disk)
        for place in read_spool(self.folder):
            self._whole[place.snapshot_id] = place
        for path in snapshot_folders(self.folder):
            if path.name not in self._whole:
                discard(path)
        self.expire()

    def close(self) -> None:
        """End drafts at their next write, and leave the folder to others."""
        self._ending = True
        if self._owner is not None:
            self._owner.close()

    def begin(self, feed: str) -> Draft:
        """Begin a snapshot of ``feed``; give it to :meth:`keep` or to :meth:`drop`. SnapshotUnavailable; OSError."""
        folder = self.folder / f"{uuid.uuid4()}{MAKING}"
        self._check_room(folder.name, 0)
        self._disk.make_folder(folder)
        with self._mutex:
            self._drafts[folder.name] = 0
        return Draft(folder, feed, self._disk, lambda count: self._claim(folder.name, count))

    def keep(self, draft: Draft) -> Whole:
        """Make the snapshot whole: durably, or not at all. OSError."""
        if draft.place is None or set(draft.sizes) != set(ENCODINGS):
            raise ValueError("this draft is not finished")
        whole = Whole(
            format=FORMAT,
            snapshot_id=draft.snapshot_id,
            change_feed_id=draft.feed,
            incarnation=draft.place.incarnation,
            sequence_id=draft.place.sequence_id,
            taken_at_ms=draft.taken_at_ms,
            whole_at_ms=self._clock.wall_ms(),
            rows=draft.rows,
            sizes=dict(draft.sizes),
        )
        self._disk.write_whole(draft.folder / ABOUT, msgspec.json.encode(whole))
        self._disk.rename(draft.folder, self.folder / draft.snapshot_id)
        with self._mutex:
            self._drafts.pop(draft.folder.name, None)
            self._whole[whole.snapshot_id] = whole
        return whole

    def drop(self, draft: Draft) -> None:
        """Throw a draft away; it may already be whole, then nothing happens."""
        with suppress(OSError):  # gone already, or thrown away at the next start
            discard(draft.folder)
        with self._mutex:
            self._drafts.pop(draft.folder.name, None)

    def all(self) -> list[Whole]:
        """Return the whole snapshots, newest first."""
        with self._mutex:
            return sorted(self._whole.values(), key=_age_key, reverse=True)

    def named(self, snapshot_id: str, feed: str) -> Whole:
        """Return this snapshot of ``feed``; SnapshotGone if it is not there any more."""
        with self._mutex:
            whole = self._whole.get(snapshot_id)
        if whole is None or whole.change_feed_id != feed or self._is_over(whole):
            raise SnapshotGone(f"the snapshot {snapshot_id[:80]} of {feed} is not here")
        return whole

    def reading(self, whole: Whole, encoding: str) -> AbstractContextManager[DiskFile]:
        """Give one file of ``whole``, which stays while it is read; SnapshotGone if it went meanwhile."""
        return self._reading(whole, encoding)

    @contextmanager
    def _reading(self, whole: Whole, encoding: str) -> Iterator[DiskFile]:
        with self._mutex:
            self.named(whole.snapshot_id, whole.change_feed_id)
            self._readers[whole.snapshot_id] = self._readers.get(whole.snapshot_id, 0) + 1
        try:
            path = self.folder / whole.snapshot_id / encoding
            with self._disk.open(path, readonly=True) as file:
                yield file
        finally:
            with self._mutex:
                self._readers[whole.snapshot_id] -= 1

    def expire(self) -> None:
        """Remove what has been kept for long enough and is read by nobody. OSError."""
        with self._mutex:
            for whole in self.all():
                if self._is_over(whole) and not self._readers.get(whole.snapshot_id):
                    self._remove(whole)

    def used_bytes(self) -> int:
        """Return the bytes of all files, those in the making too."""
        with self._mutex:
            return sum(one.size for one in self._whole.values()) + sum(self._drafts.values())

    def _is_over(self, whole: Whole) -> bool:
        return self._clock.wall_ms() >= whole.whole_at_ms + self._keep_ms

    def _claim(self, name: str, count: int) -> None:
        if self._ending:
            raise SnapshotUnavailable("the agent ends")
        self._check_room(name, count)
        with self._mutex:
            self._drafts[name] = self._drafts.get(name, 0) + count

    def _check_room(self, name: str, count: int) -> None:
        with self._mutex:
            while self.used_bytes() + count > self._bytes_max:
                oldest = self._superseded()
                if oldest is None:
                    raise SnapshotUnavailable(
                        f"a snapshot does not fit: {self.used_bytes() + count} bytes are needed, snapshot-bytes-max is "
                        f"{self._bytes_max}",
                        hint="Raise snapshot-bytes-max in the agent's settings, or wait until older ones are gone.",
                    )
                self._remove(oldest)
        if self._disk.free_bytes(self.folder) < FREE_BYTES_MIN + count:
            raise SnapshotUnavailable(
                f"the volume of {self.folder} is nearly full; {name.removesuffix(MAKING)} was not made",
                hint="Free space there, or choose another snapshot-dir.",
            )

    def _superseded(self) -> Whole | None:
        """Return the oldest snapshot that is not its feed's newest and that nobody reads now."""
        newest: set[str] = set()
        found = None
        for whole in self.all():
            if whole.change_feed_id in newest and not self._readers.get(whole.snapshot_id):
                found = whole
            newest.add(whole.change_feed_id)
        return found

    def _remove(self, whole: Whole) -> None:
        self._whole.pop(whole.snapshot_id, None)
        self._readers.pop(whole.snapshot_id, None)
        folder = self.folder / whole.snapshot_id
        self._disk.remove(folder / ABOUT)  # first: what is left of it is then not whole
        discard(folder)


def _age_key(whole: Whole) -> tuple[int, int, str]:
    return whole.taken_at_ms, whole.sequence_id, whole.snapshot_id


def read_spool(folder: Path) -> list[Whole]:
    """Return the whole snapshots in ``folder``, oldest first; also while an agent works there. Empty without a folder."""
    found = []
    for path in folder.glob(f"*/{ABOUT}"):
        whole = _read(path) if is_ours(path.parent.name) else None
        if whole is not None:
            found.append(whole)
    return sorted(found, key=_age_key)


def _read(about: Path) -> Whole | None:
    """Return the snapshot that ``about`` tells of, None if it is not whole."""
    folder = about.parent
    try:
        whole = decode_json(about.read_bytes(), Whole)
        sizes = {encoding: (folder / encoding).stat().st_size for encoding in ENCODINGS}
    except (OSError, msgspec.DecodeError):
        return None
    is_whole = whole.snapshot_id == folder.name and whole.sizes == sizes and whole.format == FORMAT
    return whole if is_whole else None
