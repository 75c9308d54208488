"""Bookmarks in a file of text, for machines without a database. ``docs/formats/bookmarks.md`` describes it.

The file is replaced as a whole, synced before it gets its name, and checksummed. One process at a time may hold it: a lock
file beside it says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import msgspec

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import BookmarkCorrupt, DataFolderLocked, SourceUnavailable
from headrace.listener.parking import ParkedEntry, ParkedMax, check_parked, encode_parked
from headrace.listener.storing import lasting
from headrace.runtime.disk import Disk
from headrace.runtime.typed_json import decode_json
from headrace.wire.versions import BOOKMARK_FILE, check_readable

FILTERED_READABLE_FROM: Final = 2
"""Once there is a filter: a program that does not know such lines would go on without it."""

_Place = tuple[str, str]


class Kept(NamedTuple):
    """All that a file holds, by listener id and feed. ``parked``: by sequence id."""

    bookmarks: dict[_Place, Bookmark]
    parked: dict[_Place, dict[int, ParkedEntry]]
    filters: dict[_Place, str]


class _Head(msgspec.Struct, rename="kebab"):
    headrace_bookmarks: bool
    written_as: int
    readable_from: int


class _Stored(msgspec.Struct, rename="kebab", omit_defaults=True):
    """One line: a bookmark, with ``parked`` an entry that is parked, with ``filter`` what the listener asks for."""

    listener_id: str
    feed: str
    incarnation: str = ""
    sequence_id: int = 0
    lsn: str | None = None
    snapshot_id: str | None = None
    parked: ParkedEntry | None = None
    filter: str | None = None


class _End(msgspec.Struct):
    lines: int
    crc32c: str


class FileBookmarks:
    """Bookmarks in the file ``path``, made at the first store; each store replaces it durably."""

    def __init__(self, path: Path | str, *, disk: Disk | None = None) -> None:
        """Read the file.

        FormatTooNew, BookmarkCorrupt and SourceUnavailable before anything is changed; DataFolderLocked if another process
        holds it.
        """
        self._path = Path(path)
        self._disk = disk if disk is not None else Disk()
        try:
            self._lock = self._disk.open(self._path.with_name(self._path.name + ".lock"), create=True)
            if not self._lock.lock():
                self._lock.close()
                raise DataFolderLocked(
                    f"{path}: another process holds these bookmarks",
                    hint="Stop the other listener, or give this one its own --bookmark file.",
                )
            data = self._read()
        except OSError as error:
            raise SourceUnavailable(
                f"{path}: can't be used: {error.strerror or error}", hint="Check path and rights."
            ) from None
        try:
            self._kept = _decode(str(path), data)
        except BaseException:
            self._lock.close()
            raise

    def load(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark that was stored last; None if there is none."""
        return self._kept.bookmarks.get((listener_id, feed))

    def claim(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark: the lock keeps everybody else out anyway."""
        return self.load(listener_id, feed)

    def store(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        """Keep ``bookmark``; durable when this returns. SourceUnavailable: the one before it still stands."""
        place = (listener_id, feed)
        parked = self._kept.parked
        if bookmark.snapshot_id is not None:
            kept = {
                number: entry for number, entry in self._of(place).items() if number > bookmark.sequence_id
            }
            parked = {**parked, place: kept}
        bookmarks = {**self._kept.bookmarks, place: bookmark}
        self._write(self._kept._replace(bookmarks=bookmarks, parked=parked))

    def filter_of(self, listener_id: str, feed: str) -> str | None:
        """Return the filter that the bookmark is made with; None if there is none."""
        return self._kept.filters.get((listener_id, feed))

    def set_filter(self, listener_id: str, feed: str, stored: str | None) -> None:
        """Keep the filter; durable when this returns. SourceUnavailable: the one before it still stands."""
        filters = {place: text for place, text in self._kept.filters.items() if place != (listener_id, feed)}
        if stored is not None:
            filters[listener_id, feed] = stored
        self._write(self._kept._replace(filters=filters))

    def park(
        self,
        listener_id: str,
        feed: str,
        entry: ParkedEntry,
        bookmark: Bookmark | None,
        parked_max: ParkedMax,
    ) -> None:
        """Keep ``entry`` and ``bookmark`` in one replacement. ParkedTooMany, SourceUnavailable."""
        place = (listener_id, feed)
        of_place = {**self._of(place), entry.sequence_id: entry}
        size = sum(len(encode_parked(one)) for one in of_place.values())
        check_parked(len(of_place), size, parked_max, entry)
        bookmarks = self._kept.bookmarks if bookmark is None else {**self._kept.bookmarks, place: bookmark}
        self._write(self._kept._replace(bookmarks=bookmarks, parked={**self._kept.parked, place: of_place}))

    def parked(self, listener_id: str, feed: str) -> list[ParkedEntry]:
        """Return what is parked, in the order of sequence ids."""
        return [entry for _, entry in sorted(self._of((listener_id, feed)).items())]

    def unpark(self, listener_id: str, feed: str, sequence_id: int) -> bool:
        """Forget what is parked under ``sequence_id``; False if nothing is. SourceUnavailable."""
        place = (listener_id, feed)
        if sequence_id not in self._of(place):
            return False
        kept = {number: entry for number, entry in self._of(place).items() if number != sequence_id}
        self._write(self._kept._replace(parked={**self._kept.parked, place: kept}))
        return True

    def close(self) -> None:
        """Let go of the lock; does nothing the second time."""
        self._lock.close()

    def _of(self, place: _Place) -> dict[int, ParkedEntry]:
        return self._kept.parked.get(place, {})

    def _read(self) -> bytes | None:
        if not self._disk.exists(self._path):
            return None
        with self._disk.open(self._path, readonly=True) as file:
            return file.read_at(0, file.size())

    def _write(self, kept: Kept) -> None:
        try:
            self._disk.write_whole(self._path, encode_bookmarks(kept))
        except OSError as error:
            failed = SourceUnavailable(
                f"{self._path}: the bookmark can't be stored: {error.strerror or error}",
                hint="Make room on its disk and start again: what came since the last bookmark comes again.",
            )
            raise lasting(failed) from None
        self._kept = kept


def encode_bookmarks(kept: Kept) -> bytes:
    """Return the file's bytes: a head line, a line for each thing that is kept, an end line with the checksum."""
    readable_from = FILTERED_READABLE_FROM if kept.filters else BOOKMARK_FILE.readable_from
    lines = [msgspec.json.encode(_Head(True, BOOKMARK_FILE.written_as, readable_from))]
    for (listener_id, feed), text in sorted(kept.filters.items()):
        lines.append(msgspec.json.encode(_Stored(listener_id, feed, filter=text)))
    for (listener_id, feed), place in sorted(kept.bookmarks.items()):
        lsn = None if place.lsn is None else str(place.lsn)
        stored = _Stored(listener_id, feed, place.incarnation, place.sequence_id, lsn, place.snapshot_id)
        lines.append(msgspec.json.encode(stored))
    for (listener_id, feed), entries in sorted(kept.parked.items()):
        for _, entry in sorted(entries.items()):
            lines.append(msgspec.json.encode(_Stored(listener_id, feed, parked=entry)))
    data = b"".join(line + b"\n" for line in lines)
    return data + msgspec.json.encode(_End(len(lines), f"{int(google_crc32c.value(data)):08x}")) + b"\n"


def _decode(path: str, data: bytes | None) -> Kept:
    kept = Kept({}, {}, {})
    if data is None:
        return kept
    lines = data.split(b"\n")
    try:
        head = decode_json(lines[0], _Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SourceUnavailable(f"{path}: not a bookmark file", hint="Choose another file.") from None
    check_readable(path, head.readable_from, BOOKMARK_FILE)
    try:
        end = decode_json(lines[-2], _End)
        checked = data[: len(data) - len(lines[-2]) - 1]
        if (
            lines[-1]
            or end.lines != len(lines) - 2
            or end.crc32c != f"{int(google_crc32c.value(checked)):08x}"
        ):
            raise BookmarkCorrupt(f"{path}: its checksum does not fit")
        for line in lines[1:-2]:
            stored = decode_json(line, _Stored)
            place = (stored.listener_id, stored.feed)
            if stored.parked is not None:
                kept.parked.setdefault(place, {})[stored.parked.sequence_id] = stored.parked
            elif stored.filter is not None:
                kept.filters[place] = stored.filter
            else:
                lsn = None if stored.lsn is None else Lsn.parse(stored.lsn)
                kept.bookmarks[place] = Bookmark(
                    stored.incarnation, stored.sequence_id, lsn, stored.snapshot_id
                )
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
        raise BookmarkCorrupt(f"{path}: it can't be read: {error}") from None
    return kept
