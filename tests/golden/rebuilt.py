"""Makes the kept data folder of a server that was rebuilt twice: what it lost, and both histories of a feed, are in it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headrace.archive.moments.catalogue import Archive
from headrace.backup.rebuilding.rebuild import Means, rebuild
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.runtime.disk import Disk
from headrace.testing.clock import ManualClock
from tests.rebuilding import Backup, archive, opened, plan_of

SEGMENT_BYTES = 4096


def make_rebuilt_folder(folder: Path) -> None:
    """A journal of an archive that goes on over a rebuild: an owned feed and a shared one, in two segments or more."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with opened(scratch / "server") as bench:
            bench.register("vm")
            bench.register("hall", "till-1", shared=True)
            backup = Backup(scratch / "archive")
            for number in range(6):
                bench.append("vm", f'{{"n":{number}}}', "x" * 200)
            bench.append("hall", '{"seat":1}', producer="till-1")
            backup.take(bench)
            bench.append("vm", '{"lost":1}')
        _rebuild(archive(backup.folder), scratch / "first")
        with opened(scratch / "first") as bench:
            bench.clock.ms += 3_600_000
            bench.register("vm", instance="again")
            bench.append("vm", '{"after":"the first rebuild"}', "y" * 200)
            backup.take(bench)
            bench.append("vm", '{"lost":2}')
        _rebuild(archive(backup.folder), folder)
    for path in folder.glob(f"{METADATA_NAME}*"):
        path.unlink()
    (folder / "lock").unlink()


def _rebuild(found: Archive, data_dir: Path) -> None:
    means = Means(clock=ManualClock(), disk=Disk(), segment_bytes=SEGMENT_BYTES)
    rebuild(plan_of(found), found, data_dir, means=means)
