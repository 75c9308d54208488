"""A snapshot's body (NDJSON), read as it comes and checked to its end. Pure; ``snapshot.py`` brings the bytes.

First a header line, then schemas (``control``) and rows, last an end line with the count of rows and the CRC-32C of all
bytes before it. A body without a right end line is no snapshot: whoever applies rows as they come must be able to drop them.
"""

from __future__ import annotations

from typing import Final

import google_crc32c
import msgspec
from msgspec import UNSET, Raw, UnsetType

from headrace.errors import SnapshotBroken
from headrace.runtime.typed_json import decode_json

LINE_BYTES_MAX: Final = 16 << 20
"""No line is longer. An entry takes 1 MiB; but a row that was parked for its size still stands in the source."""
READABLE_TO: Final = 1
"""The newest version of the format that this program reads."""
_END: Final = b'{"end":'


class SnapshotHeader(msgspec.Struct, rename="kebab"):
    """The first line: which snapshot this is. ``sequence_id``: everything up to it is in it, nothing after."""

    version: int = msgspec.field(name="headrace-snapshot")
    snapshot_id: str
    change_feed_id: str
    incarnation: str
    sequence_id: int
    taken_at: str


class SnapshotRow(msgspec.Struct, rename="kebab"):
    """A row, as a put of it would stand in the feed; or a control line (a table's schema), which is no row."""

    key: str
    changes: Raw
    table: list[str] | UnsetType = UNSET
    control: str | UnsetType = UNSET

    @property
    def is_control(self) -> bool:
        """True for a line that is no row: a table's schema."""
        return isinstance(self.control, str)

    def line(self) -> bytes:
        r"""Return it as one line of JSON with its ``\n``, ``changes`` byte for byte."""
        return msgspec.json.encode(self) + b"\n"


class _End(msgspec.Struct):
    rows: int
    crc32c: str


class _EndLine(msgspec.Struct):
    end: _End


_ROW: Final = msgspec.json.Decoder(SnapshotRow)


class SnapshotBody:
    """Takes bytes, gives rows. ``rows`` counts those given that are no control lines; ``ended``: the end was right."""

    def __init__(self) -> None:
        self.header: SnapshotHeader | None = None
        self.rows = 0
        self.ended = False
        self._rest = bytearray()
        self._crc32c = 0

    def take(self, data: bytes) -> list[SnapshotRow]:
        """Return the rows that ``data`` completes. SnapshotBroken: nothing of this snapshot counts."""
        ended, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._rest += data
            self._check_length(len(self._rest))
            return []
        whole = bytes(self._rest) + ended
        self._rest = bytearray(rest)
        lines = whole.split(b"\n")
        self._check_length(max(map(len, lines)))
        if self.ended:
            raise SnapshotBroken("the snapshot goes on after its end")
        last = lines.pop() if lines[-1].startswith(_END) else None
        checked = len(whole) + 1 if last is None else len(whole) - len(last)
        self._crc32c = int(google_crc32c.extend(self._crc32c, (whole + b"\n")[:checked]))
        try:
            if self.header is None and lines:
                self.header = _read_header(lines.pop(0))
            found = [_ROW.decode(line) for line in lines]
            self.rows += sum(not row.is_control for row in found)
            if last is not None:
                self._end(decode_json(last, _EndLine).end)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SnapshotBroken(f"a line of the snapshot can't be read: {error}") from None
        return found

    def finish(self) -> None:
        """No more bytes come. SnapshotBroken unless all is there."""
        if not self.ended or self._rest:
            raise SnapshotBroken("the snapshot ends without its last line")

    def _check_length(self, size: int) -> None:
        if size > LINE_BYTES_MAX:
            raise SnapshotBroken(f"a line of the snapshot is longer than {LINE_BYTES_MAX} bytes")

    def _end(self, end: _End) -> None:
        checksum = f"{self._crc32c:08x}"
        if self.header is None or end.rows != self.rows or end.crc32c.lower() != checksum:
            raise SnapshotBroken(
                f"the snapshot's end says {end.rows} rows with the checksum {end.crc32c}; {self.rows} with {checksum} came"
            )
        self.ended = True


def _read_header(line: bytes) -> SnapshotHeader:
    header = decode_json(line, SnapshotHeader)
    if header.version > READABLE_TO:
        raise SnapshotBroken(
            f"the snapshot has the format {header.version}, this program reads up to {READABLE_TO}",
            hint="Use a newer Headrace for this listener.",
        )
    return header
