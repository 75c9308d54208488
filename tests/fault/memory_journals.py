"""A small journal in memory and the truth about it: to be damaged at any byte, read back, and repaired."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError, JournalCorrupt, SequenceLost
from headrace.log.files.store import FileStore
from headrace.log.history import frames_of_range
from headrace.testing.memory import MemoryDisk
from headrace.wire.entry import decode_entry
from headrace.wire.frame import FrameHeader, FrameKind
from tests.bench import Bench
from tests.stores import fill

FOLDER = Path("/machine/data")
ALL = 1 << 30


@dataclass(frozen=True)
class Truth:
    """What the journal held before anything happened to it."""

    contents: dict[Path, bytes]
    entries: dict[str, dict[int, bytes]]
    headers: list[FrameHeader]
    names: dict[int, str]
    incarnations: dict[str, str]

    def disk(self, rng: random.Random | None = None) -> MemoryDisk:
        """A new disk with the journal on it."""
        disk = MemoryDisk(rng)
        disk.load(self.contents)
        return disk


def made(segment_bytes: int, appends: int = 24, *, seed: int = 5) -> Truth:
    """Make a journal of two feeds with a takeover in the middle, and stop its server."""
    disk = MemoryDisk()
    store = FileStore(FOLDER, disk=disk, segment_bytes=segment_bytes)
    bench = Bench(store)
    entries = fill(bench, ["a", "b"], appends, seed=seed)
    bench.register("a", "agent-2", takeover=True, instance="i-2")
    for number in range(3):
        value = f"last {number}".encode()
        entries["a"][bench.append("a", value, producer="agent-2").first_sequence_id] = value
    headers: list[FrameHeader] = []
    while (position := headers[-1].end if headers else store.oldest_position()) < store.end():
        headers += [frame.header for frame in store.walk(position, bytes_max=ALL)]
    names = {tail.region_id: tail.name for tail in store.tails()}
    incarnations = {tail.name: tail.incarnation for tail in store.tails()}
    store.close()
    return Truth(disk.contents(), entries, headers, names, incarnations)


def read_all(store: FileStore, feed: str) -> tuple[dict[int, bytes], list[HeadraceError]]:
    """All that a patient reader of a feed gets: after an error it goes on behind the place where it was."""
    tail = store.tail(feed)
    assert tail is not None
    found: dict[int, bytes] = {}
    errors: list[HeadraceError] = []
    at = tail.oldest
    while at <= tail.head:
        try:
            frames = frames_of_range(store, tail, at, tail.head, entries_max=1000, bytes_max=ALL)
        except (JournalCorrupt, SequenceLost) as error:
            errors.append(error)
            at += 1
            continue
        for frame in frames:
            for number, stored in enumerate(frame.entries(), frame.header.first_sequence_id):
                if number >= at:
                    found[number] = decode_entry(stored, number).change.value
        at = frames[-1].header.last_sequence_id + 1
    return found, errors


def walk_all(store: FileStore) -> tuple[list[FrameHeader], HeadraceError | None]:
    """The frames of entries that a stream over all feeds gets, and the error that ends it."""
    found: list[FrameHeader] = []
    position = store.oldest_position()
    while position < store.end():
        try:
            frames = store.walk(position, bytes_max=ALL)
        except (JournalCorrupt, SequenceLost) as error:
            return found, error
        found += [frame.header for frame in frames if frame.header.kind == FrameKind.ENTRIES]
        position = frames[-1].header.end
    return found, None


def frame_at(truth: Truth, path: Path, offset: int) -> FrameHeader | None:
    """The frame that stands at this byte of a file, if one does."""
    if path.suffix != ".seg":
        return None
    data = truth.contents[path]
    start = 32 + int.from_bytes(data[16:20], "little")
    position = offset - start + int(path.stem, 16)
    if offset < start:
        return None
    later = sorted(int(other.stem, 16) for other in truth.contents if other.suffix == ".seg")
    stop = next((first for first in later if first > int(path.stem, 16)), truth.headers[-1].end)
    if position >= stop:
        return None
    return next(header for header in truth.headers if header.position <= position < header.end)
