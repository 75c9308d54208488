"""A kept data folder that was rebuilt from a backup is opened, knows what was lost, and is written on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import FormatTooNew, LsnNotAvailable
from headrace.log.files.store import FileStore
from headrace.server.streams.walking import find_start
from headrace.wire import segment
from headrace.wire.versions import FormatVersion
from tests.bench import Bench
from tests.golden.make import SEGMENT_BYTES, kept
from tests.rebuilding import stream


@pytest.fixture(params=kept("rebuilt"), ids=lambda path: path.parent.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "data"))


def test_it_knows_what_was_lost_and_is_written_on(folder: Path) -> None:
    for opened in ("after the upgrade", "opened again"):
        bench = Bench(FileStore(folder, segment_bytes=SEGMENT_BYTES))
        bench.clock.ms += 7_200_000
        lost = bench.tail("vm").lost_by_rebuilds
        assert [Lsn.parse(one.after) < Lsn.parse(one.before) for one in lost] == [True, True], opened
        for one in lost:
            behind = Lsn.from_int(int(Lsn.parse(one.after)) + 1)
            with pytest.raises(LsnNotAvailable):
                find_start(bench.store, behind)
        assert [one.sequence_id for one in stream(bench) if one.lsn.region_id == 1][:7] == list(range(1, 8))
        assert bench.tail("hall").epoch > 1_000_000, "shared producers' next epochs are above those of before"
        bench.register("vm", instance=opened)
        for _ in range(20):
            bench.append("vm", "x" * 400)
        bench.store.close()


def test_older_program_refuses_every_segment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SEGMENT", FormatVersion(1, 1))
    assert len(list(folder.glob("journal/*.seg"))) > 1
    for path in folder.glob("journal/*.seg"):
        with pytest.raises(FormatTooNew):
            segment.decode_start(path.read_bytes(), path.name)
