"""Verifying a backup: ``headrace wal verify`` over KWAL segments whose entries have some 256 bytes.

The bare limit reads the same files and takes their CRC-32, one process a processor. ``verify`` checks every entry, too;
``fast`` does not. ``alone`` is one process. Files are in the page cache: the disk is no part of it, starting processes is.
"""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.segments import write_segments
from headrace.archive.files.folder import Folder
from headrace.backup.verifying.archive_check import verify

ARMS = ("crc32", "verify", "fast", "alone")
VALUE_BYTES = 150
"""With key, LSN and the other fields an entry of some 256 bytes."""


def _crc32(folder: str, file: str) -> int:
    return zlib.crc32(Folder(folder).read_segment(file))


def main() -> None:
    """Write segments, verify them by turns, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=5)
    parser.add_argument(
        "--entries", type=int, default=4_000_000, help="entries in all (default: %(default)s)"
    )
    parser.add_argument(
        "--segment-mb", type=int, default=128, help="size of a segment (default: %(default)s)"
    )
    given = parser.parse_args()
    processes = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        folder = Path(temporary)
        write_segments(folder, given.entries, given.segment_mb << 20, VALUE_BYTES)
        files = [path.name for path in folder.glob("*.bin")]
        size = sum((folder / file).stat().st_size for file in files)

        def measure(arm: str) -> Figures:
            begun = time.perf_counter()
            if arm == "crc32":
                with ProcessPoolExecutor(processes) as pool:
                    list(pool.map(_crc32, [temporary] * len(files), files))
            else:
                found = verify(temporary, fast=arm == "fast", workers=1 if arm == "alone" else None)
                assert not found.findings
                assert found.entries == (0 if arm == "fast" else given.entries)
            return {"MB/s": size / 1e6 / (time.perf_counter() - begun)}

        conditions = {
            "entries": given.entries,
            "bytes-an-entry": round(size / given.entries),
            "segment-mb": given.segment_mb,
            "processes": processes,
        }
        bench = Bench("verify", ARMS, conditions)
        bench.run(measure, given.rounds)
    publish([bench], ["MB/s"], given.json)


if __name__ == "__main__":
    main()
