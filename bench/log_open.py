"""Opening a long journal: how long it takes, and how much memory its index takes, in a process of its own.

Both frame sizes of one journal of 10 million entries: the last segment is replayed, so its kind counts most. In frames of
one entry it is full, which is the most that opening ever replays. The bare limit is a program that imports the same modules
and reads the last segment's bytes; what memory it takes is the process itself. ``index-mb``: the store's own account of what
finds frames, after it has looked up a frame in every segment.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.support.harness import ROOT, Bench, Figures, arguments, publish
from bench.support.journal import FEED, write_journal
from headrace.log.files.store import SEGMENT_FRAMES_MAX

ARMS = ("bytes", "open")
PROGRAM = """
import json, sys, time
from pathlib import Path
import google_crc32c
from headrace.log.files.store import FileStore
store = None
arm, folder = sys.argv[1], Path(sys.argv[2])
begun = time.perf_counter()
if arm == "bytes":
    last = sorted((folder / "journal").glob("*.seg"))[-1]
    with last.open("rb", buffering=0) as file:
        while data := file.read(1 << 20):
            google_crc32c.value(data)
else:
    store = FileStore(folder)
took = time.perf_counter() - begun
if store is not None:
    tail = store.tail(FEED)
    for number in range(tail.oldest, tail.next_sequence_id, 100_000):
        assert store.places(tail.region_id, number, number, frames_max=1)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
index_mb = store.index_bytes() / 1e6 if store is not None else 0
print(json.dumps({"open-ms": took * 1000, "rss-mb": int(status["VmRSS"].split()[0]) / 1024, "index-mb": index_mb}))
""".replace("FEED", repr(FEED))


def measure(folder: Path, arm: str) -> Figures:
    """Open the journal once, in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, arm, str(folder)], cwd=ROOT, capture_output=True, check=True
    )
    return msgspec.json.decode(done.stdout, type=dict[str, float])


def main() -> None:
    """Write the journals, open them by turns, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=5)
    parser.add_argument(
        "--entries", type=int, default=10_000_000, help="in each journal (default: %(default)s)"
    )
    given = parser.parse_args()
    benches = []
    for per_frame in (1000, 1):
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
            folder, entries = Path(temporary), given.entries
            if per_frame == 1:
                entries += -entries % SEGMENT_FRAMES_MAX
            print(f"writing {entries:,} entries in frames of {per_frame} ...", file=sys.stderr, flush=True)
            write_journal(folder, entries, per_frame)
            bench = Bench("log_open", ARMS, {"entries": entries, "entries-per-frame": per_frame})
            bench.run(lambda arm, folder=folder: measure(folder, arm), given.rounds)  # type: ignore[misc]  # mypy knows no default in a lambda
            benches.append(bench)
    publish(benches, ["open-ms", "rss-mb"], given.json)


if __name__ == "__main__":
    main()
