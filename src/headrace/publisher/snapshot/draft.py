"""One snapshot while it is written: the lines as they come, then each encoding of the whole, made once.

The source's transaction is open only while :meth:`Draft.write_state` runs. So lines go to the file as they are, and are
compressed when the source has long been let go.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import google_crc32c
import msgspec
import zstandard

from headrace.client.snapshot_body import LINE_BYTES_MAX
from headrace.errors import SnapshotUnavailable
from headrace.publisher.state import StatePlace
from headrace.runtime.disk import Disk
from headrace.wire.documents import rfc3339

FORMAT: Final = 1
"""Version of the snapshot's lines (docs/formats/snapshot.md)."""

ENCODINGS: Final = ("identity", "gzip", "zstd")
"""What a snapshot is kept as, each in a file of its own."""

WRITE_BYTES: Final = 1 << 20
"""Lines are gathered up to here before they are written."""

GZIP_LEVEL: Final = 5
"""Gzip is for clients that have nothing better: a third more time than level 1, a tenth less to send."""

_CONTROL: Final = b'{"control"'
_CHANGES: Final = b',"changes":'
_NAMED_BYTES: Final = 200


class Draft:
    """A snapshot in the making, in a folder of its own. ``claim`` is asked before bytes are written, and may raise."""

    def __init__(self, folder: Path, feed: str, disk: Disk, claim: Callable[[int], None]) -> None:
        self.folder = folder
        self.snapshot_id = folder.name.partition(".")[0]
        self.feed = feed
        self.place: StatePlace | None = None
        self.taken_at_ms = 0
        self.rows = 0
        self.sizes: dict[str, int] = {}
        self._disk = disk
        self._claim = claim

    def write_state(self, place: StatePlace, lines: Iterable[bytes], taken_at_ms: int) -> None:
        """Write the header, ``lines`` and the end.

        Raises OSError, SnapshotUnavailable for a line that no listener takes, and what ``lines`` and ``claim`` raise.
        """
        self.place, self.taken_at_ms = place, taken_at_ms
        header = {
            "headrace-snapshot": FORMAT,
            "snapshot-id": self.snapshot_id,
            "change-feed-id": self.feed,
            "incarnation": place.incarnation,
            "sequence-id": place.sequence_id,
            "taken-at": rfc3339(taken_at_ms),
        }
        checksum = 0
        buffer = bytearray(msgspec.json.encode(header) + b"\n")
        with self._disk.open(self._file("identity"), create=True) as file:
            offset = 0
            for line in lines:
                _check_line(line)
                buffer += line
                self.rows += not line.startswith(_CONTROL)
                if len(buffer) >= WRITE_BYTES:
                    self._claim(len(buffer))
                    checksum = google_crc32c.extend(checksum, bytes(buffer))
                    file.write_at(offset, buffer)
                    offset += len(buffer)
                    buffer.clear()
            checksum = google_crc32c.extend(checksum, bytes(buffer))
            end = {"end": {"rows": self.rows, "crc32c": f"{checksum:08x}"}}
            buffer += msgspec.json.encode(end) + b"\n"
            self._claim(len(buffer))
            file.write_at(offset, buffer)
            file.sync()
            self.sizes["identity"] = offset + len(buffer)

    def encode(self) -> None:
        """Make the other encodings of what :meth:`write_state` wrote."""
        gzip = zlib.compressobj(GZIP_LEVEL, wbits=31)
        self._encode("gzip", gzip.compress, gzip.flush)
        zstd = zstandard.ZstdCompressor().compressobj()
        self._encode("zstd", zstd.compress, zstd.flush)

    def _encode(self, encoding: str, compress: Callable[[bytes], bytes], flush: Callable[[], bytes]) -> None:
        offset = 0
        with self._disk.open(self._file(encoding), create=True) as file:
            for part in self._parts(compress, flush):
                self._claim(len(part))
                file.write_at(offset, part)
                offset += len(part)
            file.sync()
        self.sizes[encoding] = offset

    def _parts(self, compress: Callable[[bytes], bytes], flush: Callable[[], bytes]) -> Iterator[bytes]:
        with self._disk.open(self._file("identity"), readonly=True) as file:
            offset = 0
            while data := file.read_at(offset, WRITE_BYTES):
                offset += len(data)
                yield compress(data)
        yield flush()

    def _file(self, encoding: str) -> Path:
        return self.folder / encoding


def _check_line(line: bytes) -> None:
    """Refuse a row that every listener would refuse, while it can still be named."""
    if len(line) > LINE_BYTES_MAX + 1:
        raise SnapshotUnavailable(
            f"a row takes {len(line)} bytes; the most is {LINE_BYTES_MAX}: "
            f"{line[:_NAMED_BYTES].partition(_CHANGES)[0].decode(errors='replace')}",
            hint="Make the row smaller, or leave its table or column out.",
        )
