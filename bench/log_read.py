"""Catching up inside the process: a walk along the journal, every frame verified, from the page cache.

The bare limit reads the same bytes by the same calls, checksums them once, and does nothing else.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import google_crc32c

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.journal import write_journal
from headrace.log.files.store import FileStore

ARMS = ("bytes", "frames")
READ_BYTES = 1 << 20


def measure(folder: Path, arm: str) -> Figures:
    """Read the whole journal once; opening it is not counted."""
    store = FileStore(folder)
    read = _read_bytes if arm == "bytes" else _read_frames
    begun = time.perf_counter()
    count = read(store, folder)
    took = time.perf_counter() - begun
    store.close()
    return {"mb/s": count / took / 1e6}


def _read_bytes(_: FileStore, folder: Path) -> int:
    count = 0
    for path in sorted((folder / "journal").glob("*.seg")):
        with path.open("rb", buffering=0) as file:
            while data := file.read(READ_BYTES):
                google_crc32c.value(data)
                count += len(data)
    return count


def _read_frames(store: FileStore, _: Path) -> int:
    position, end, count = store.oldest_position(), store.end(), 0
    while position < end:
        frames = store.walk(position, bytes_max=READ_BYTES)
        position = frames[-1].header.end
        count += sum(frame.header.size for frame in frames)
    return count


def main() -> None:
    """Write a journal for each frame size, read it by turns, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=7)
    parser.add_argument(
        "--megabytes", type=int, default=512, help="size of each journal (default: %(default)s)"
    )
    given = parser.parse_args()
    benches = []
    for per_frame in (1000, 1):
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
            folder = Path(temporary)
            entry_bytes = 360 if per_frame > 1 else 570
            write_journal(folder, given.megabytes * 1_000_000 // entry_bytes, per_frame)
            bench = Bench("log_read", ARMS, {"entries-per-frame": per_frame, "megabytes": given.megabytes})
            bench.run(lambda arm, folder=folder: measure(folder, arm), given.rounds)  # type: ignore[misc]  # mypy knows no default in a lambda
            benches.append(bench)
    publish(benches, ["mb/s"], given.json)


if __name__ == "__main__":
    main()
