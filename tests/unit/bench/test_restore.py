"""What the bench of restores is made of: an archive with keys that come again, its commands, and a look at memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.restore import CORES, words
from bench.support.process_tree import watched
from bench.support.segments import write_segments
from headrace.archive.moments.catalogue import Archive
from headrace.backup.verifying.archive_check import verify
from headrace.wire.kwal_columns import Segment
from tests.waiting import wait_until


def test_an_archive_of_few_keys(tmp_path: Path) -> None:
    folder = tmp_path / "wal"
    folder.mkdir()
    write_segments(folder, 4_000, 300_000, 150, keys=50)
    found = verify(str(folder), workers=1)
    assert (found.entries, found.findings) == (4_000, [])
    archive = Archive.read(str(folder))
    assert len(archive.segments) > 1
    one = archive.segments[-1]
    batches = list(Segment((folder / one.file).read_bytes(), where=one.file).batches(("key", "value")))
    keys = {key for batch in batches for key in batch.column("key").to_pylist()}
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert len(keys) == 50
    assert len(set(values)) == len(values)
    assert {len(value) for value in values} == {150}
    assert all(json.loads(value)["text"] for value in values)

    for arm, cores in CORES.items():
        asked = words(arm, tmp_path, tmp_path / "out", 1_000_000)
        assert Path(asked[0]).exists()
        assert f"local[{cores}]" in asked
        assert arm == "parquet" or str(one.name.last) in asked


def test_memory_of_a_process_and_its_children() -> None:
    held = 64 << 20
    child = f"held = b'x' * {held}; input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with (
        subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE) as process,
        watched(process.pid) as used,
    ):
        wait_until(lambda: used.memory > held)
        process.communicate(b"\n")
    assert held < used.memory < 4 * held
    assert used.cpu_s > 0
