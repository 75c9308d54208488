"""Data folders in states that a running server can't be brought into by requests: written by the server's own rooms."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from headrace.log.files.store import FileStore
from headrace.log.log import Log, LogSettings
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.runtime.clock import SystemClock
from headrace.server.decoding import decode_entries
from headrace.server.encoding import PostTerms
from headrace.server.service import Service
from headrace.wire.documents import RegisterPublisher
from headrace.wire.frame import HEADER_SIZE, MAGIC
from tests import forks

SMALL_SEGMENTS = LogSettings(segment_bytes=2_000)


class AheadClock(SystemClock):
    """The clocks of this machine, the wall clock some time ahead."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


async def write_feed(
    data_dir: Path,
    feed: str,
    appends: int,
    *,
    settings: LogSettings | None = None,
    clock: SystemClock | None = None,
) -> None:
    """Append ``{"n": 1}``, ``{"n": 2}`` … to ``feed`` as ``agent-1``, one append each, and close the folder again."""
    log = Log.open(data_dir, settings=settings, clock=clock)
    try:
        await log.start()
        service = Service(log)
        await service.register_publisher(RegisterPublisher(agent_id="agent-1", change_feed_id=feed))
        for number in range(1, appends + 1):
            entries = decode_entries(b'{"agent-id":"agent-1","changes":{"n":%d}}' % number)
            await service.append(feed, entries, PostTerms())
        await service.close()
    finally:
        await log.close()


def drop_all_but_newest(data_dir: Path) -> None:
    """Drop every whole segment but the open one, as retention does."""
    store = FileStore(data_dir, segment_bytes=SMALL_SEGMENTS.segment_bytes)
    try:
        store.drop_before(store.end())
    finally:
        store.close()


def damage_entry(data_dir: Path, text: bytes) -> None:
    """Flip a bit inside the stored bytes ``text``, which stand once in the journal."""
    path, data = _segment_with(data_dir, text)
    data[data.index(text)] ^= 1
    path.write_bytes(data)


def skip_damage(data_dir: Path) -> None:
    """Let a repair skip what is damaged."""
    command = [*forks.HEADRACE, "log", "repair", "--skip", "--yes"]
    done = forks.run(
        [*command, "--data-dir", str(data_dir)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def damage_listener(data_dir: Path, listener_id: str) -> None:
    """Change a listener's row behind the server's back."""
    with closing(sqlite3.connect(data_dir / METADATA_NAME)) as database, database:
        changed = database.execute(
            "UPDATE listener SET hold = 1 - hold WHERE listener_id = ?", (listener_id,)
        )
        assert changed.rowcount == 1


def damage_both_headers(data_dir: Path, text: bytes) -> None:
    """Flip a bit in both headers of the frame that holds ``text``: then nobody can tell where it ends."""
    path, data = _segment_with(data_dir, text)
    at = data.index(text)
    data[data.rindex(MAGIC, 0, at) + HEADER_SIZE // 2] ^= 1
    data[data.index(MAGIC, at) + HEADER_SIZE // 2] ^= 1
    path.write_bytes(data)


def _segment_with(data_dir: Path, text: bytes) -> tuple[Path, bytearray]:
    for path in sorted((data_dir / "journal").iterdir()):
        data = path.read_bytes()
        if data.count(text) == 1:
            return path, bytearray(data)
    raise AssertionError(f"{text!r} does not stand once in the journal")
