"""Restoring a backup: ``headrace wal restore`` of entries of some 256 bytes to each key's newest value.

The bare limit is Spark alone on two cores: the same rows, in uncompressed Parquet, folded to each key's newest and written
as Parquet. It checks nothing, and reads once what a restore reads three times: to verify all, to fold, to count another way.
``kv-1`` runs on local[1], ``kv-2`` and ``tables`` on local[2], each as a process of its own with the product's settings.
``mb/s`` is the segments' bytes by the clock, without the start of Java; ``whole-s`` the process's time, with it; ``peak-mb``
the most memory that the process and all below it held at once, what they share counted once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.support.harness import ROOT, Bench, Figures, arguments, publish
from bench.support.process_tree import watched
from bench.support.segments import write_segments
from headrace.archive.moments.catalogue import Archive
from headrace.pipeline.session import SessionSettings, open_session, stop_session
from headrace.pipeline.wal import FORMAT
from headrace.pipeline.wal.source import register

VALUE_BYTES = 150
"""With key, LSN and the other fields an entry of some 256 bytes."""
CORES = {"parquet": 2, "kv-1": 1, "kv-2": 2, "tables": 2}
"""How many each arm runs on."""
COMMAND = str(Path(sys.executable).with_name("headrace"))
FIGURES = ["mb/s", "mb/s/core", "seconds", "whole-s", "cpu-s", "peak-mb"]


def words(arm: str, folder: Path, out: Path, entries_max: int) -> list[str]:
    """Return the command of an arm; it prints a JSON document with ``seconds`` and the number of ``rows``."""
    master = f"local[{CORES[arm]}]"
    if arm == "parquet":
        return [sys.executable, "-m", "bench.support.folding", str(folder / "parquet"), str(out), master]
    last = max(one.name.last for one in Archive.read(str(folder / "wal")).segments)
    kind = "tables" if arm == "tables" else "kv"
    given = {
        "wal-dir": folder / "wal",
        "to-lsn": last,
        "out": out,
        "as": kind,
        "master": master,
        "max-entries": entries_max,
    }
    options = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    return [COMMAND, "wal", "restore", *options, "--json"]


def measured(arm: str, folder: Path, size: int, rows: int, entries_max: int) -> Figures:
    """Run one arm, which must make so many ``rows``."""
    out = folder / "out"
    begun = time.perf_counter()
    with (folder / "stderr").open("w+b") as errors:
        process = subprocess.Popen(
            words(arm, folder, out, entries_max), cwd=ROOT, stdout=subprocess.PIPE, stderr=errors
        )
        with watched(process.pid) as used:
            answer, _ = process.communicate()
        whole_s = time.perf_counter() - begun
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{arm} failed: {errors.read().decode(errors='replace')}")
    shutil.rmtree(out)
    told = json.loads(answer)
    found = told["rows"] if arm == "parquet" else sum(map(_rows_of, told["feeds"]))
    assert found == rows, f"{arm} made {found} rows, not {rows}"
    rate = size / 1e6 / told["seconds"]
    return {
        "mb/s": rate,
        "mb/s/core": rate / CORES[arm],
        "seconds": told["seconds"],
        "whole-s": whole_s,
        "cpu-s": used.cpu_s,
        "peak-mb": used.memory / 1e6,
    }


def _rows_of(feed: dict[str, Any]) -> int:
    return int(feed["rows"] or sum(table["rows"] for table in feed["tables"]))


def _write_parquet(segments: Path, parquet: Path) -> int:
    """Write the segments' rows as uncompressed Parquet; returns how many keys they have."""
    spark = open_session(SessionSettings(log_file=parquet.with_suffix(".log"), name="bench"))
    try:
        register(spark)
        spark.read.format(FORMAT).load(str(segments)).write.option("compression", "none").parquet(
            str(parquet)
        )
        return spark.read.parquet(str(parquet)).select("key").distinct().count()
    finally:
        stop_session(spark)


def _options() -> argparse.Namespace:
    parser = arguments(__doc__, seconds=0, rounds=3)
    for name, default, said in (
        ("entries", 10_000_000, "entries in all"),
        ("keys", 1_000_000, "keys that they are drawn from"),
        ("segment-mb", 128, "size of a segment"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{said} (default: %(default)s)")
    parser.add_argument(
        "--max-entries",
        type=int,
        default=1_000_000,
        help="that tables are folded from at once (default: %(default)s)",
    )
    parser.add_argument("--tables", action="store_true", help="restore --as tables, too")
    return parser.parse_args()


def main() -> None:
    """Write segments, and the same as Parquet; restore them by turns, and print what was found."""
    given = _options()
    arms = [arm for arm in CORES if arm != "tables" or given.tables]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        folder = Path(temporary)
        (folder / "wal").mkdir()
        write_segments(folder / "wal", given.entries, given.segment_mb << 20, VALUE_BYTES, given.keys)
        size = sum(one.stat().st_size for one in (folder / "wal").glob("*.bin"))
        rows = _write_parquet(folder / "wal", folder / "parquet")
        conditions = {
            "entries": given.entries,
            "keys": rows,
            "bytes-an-entry": round(size / given.entries),
            "segment-mb": given.segment_mb,
            "max-entries": given.max_entries,
        }
        bench = Bench("restore", arms, conditions)
        bench.run(
            partial(measured, folder=folder, size=size, rows=rows, entries_max=given.max_entries),
            given.rounds,
        )
    publish([bench], FIGURES, given.json)
    speedup = [one["kv-1"]["seconds"] / one["kv-2"]["seconds"] for one in bench.rounds]
    print(f"two cores are {statistics.median(speedup):.2f} times as fast as one", file=sys.stderr)


if __name__ == "__main__":
    main()
