"""A kept data folder with a shared feed and a feed with settings is opened, read exactly, and written on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace.errors import ExpectedOffsetRequired, Fenced, OffsetMismatch
from headrace.log.files.store import FileStore
from headrace.log.tail import FeedSettings
from tests.bench import Bench, expecting
from tests.golden.make import FORMATS, SEGMENT_BYTES, describe_data_folder
from tests.golden.test_formats import covers

KEPT = sorted(FORMATS.glob("*/shared"))


@pytest.fixture(params=KEPT, ids=lambda path: path.parent.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "data"))


def test_it_reads_exactly(folder: Path, request: pytest.FixtureRequest) -> None:
    kept: Path = request.node.callspec.params["folder"]
    described = json.loads(json.dumps(describe_data_folder(folder)))
    assert covers(described, json.loads(kept.with_suffix(".json").read_text(encoding="utf-8")))


def test_it_is_written_on(folder: Path) -> None:
    for opened in ("after the upgrade", "opened again"):
        bench = Bench(FileStore(folder, segment_bytes=SEGMENT_BYTES))
        bench.clock.ms += 1_000
        tail = bench.tail("hall")
        assert (tail.shared, tail.owner, tail.epoch) == (True, "", 0), opened
        assert tail.agents == {"till-1": 2, "till-2": 1, "till-3": 1}
        assert bench.register("hall", "till-1", "two", shared=True).epoch_of("till-1") == 2
        with pytest.raises(Fenced):
            bench.send(expecting("hall", tail.next_sequence_id, "x", producer="till-1", epoch=1))
        again = expecting("hall", 19, '{"seat":19}' + " " * 200, producer="till-2")
        assert bench.send(again).duplicate, "of a producer that is not the last one"
        with pytest.raises(OffsetMismatch):
            bench.send(expecting("hall", 20, "x", producer="till-2"))
        bench.send(expecting("hall", tail.next_sequence_id, "more", producer="till-3"))
        assert bench.tail("ledger").settings == FeedSettings("id", "delta", "required")
        with pytest.raises(ExpectedOffsetRequired):
            bench.append("ledger", "x")
        bench.store.close()
