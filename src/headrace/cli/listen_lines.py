"""The lines of ``headrace listen``: an entry as the API gives it; of a snapshot a begin line, its rows, an end line."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.listener import SnapshotBegin, SnapshotEnd
from headrace.listener.parts import SnapshotPart

LINE_BEGINS: Final = (b'{"sequence-id":', b'{"snapshot":')
"""How each line of output begins: tells a torn one from what is not ours."""


def snapshot_lines(part: SnapshotPart) -> bytes:
    """Return the lines of a part of a snapshot; ``changes`` pass byte for byte."""
    if isinstance(part, SnapshotBegin):
        return _line(
            {
                "snapshot": "begin",
                "snapshot-id": part.snapshot_id,
                "sequence-id": part.sequence_id,
                "incarnation": part.incarnation,
            }
        )
    if isinstance(part, SnapshotEnd):
        end = {"snapshot": "end", "snapshot-id": part.snapshot_id, "sequence-id": part.place.sequence_id}
        return _line({**end, "rows": part.rows})
    # Each row's own text, with one more member before its others.
    return b"".join(b'{"snapshot":"row",' + row.line()[1:] for row in part.rows)


def _line(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document) + b"\n"
