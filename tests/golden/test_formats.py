"""Every generation of every stored format is opened, read exactly, and written on (``tests/golden/make.py`` made them)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace.errors import Quarantined
from headrace.log.files.store import FileStore
from headrace.log.log import Log
from headrace.log.requests import Append
from headrace.wire.entry import digest, encode_half
from headrace.wire.mark import decode_marks
from tests.bench import Bench, append, expecting, register
from tests.golden.make import CHANGED_IN, CHANGES, MAKERS, SEGMENT_BYTES, describe_data_folder, kept


def test_every_format_is_kept_since_its_first_generation() -> None:
    for name in MAKERS:
        generations = [path.parent.name for path in kept(name)]
        assert generations[0] == "1"
        assert generations[-1] == str(CHANGED_IN.get(name, 1))


@pytest.fixture(params=kept("data"), ids=lambda path: path.parent.name)
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a generation's data folder."""
    return Path(shutil.copytree(request.param, tmp_path / "data"))


def expected(request: pytest.FixtureRequest) -> dict[str, object]:
    folder = request.node.callspec.params["data"]
    found: dict[str, object] = json.loads(folder.with_suffix(".json").read_text(encoding="utf-8"))
    return found


def covers(now: object, then: object) -> bool:
    """Is all that was there then still read the same? Later versions may know more members."""
    if isinstance(now, dict) and isinstance(then, dict):
        return all(name in now and covers(now[name], value) for name, value in then.items())
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(covers, now, then))
    return now == then


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix == ".seg" or path.name == "mark"
    }


def test_data_folder_reads_exactly(data: Path, request: pytest.FixtureRequest) -> None:
    before = files(data)
    assert len(before) >= 4, "two sealed segments, an open one, the mark"
    described = json.loads(json.dumps(describe_data_folder(data)))
    assert covers(described, expected(request))
    after = files(data)
    was, now = (decode_marks(kept.pop("mark"), "mark") for kept in (before, after))
    assert after == before, "opening and reading change no segment"
    assert was is not None
    assert now is not None
    assert now[1:] == was[1:], "the mark is stored again, and names the same end"


def test_data_folder_is_written_on(data: Path, request: pytest.FixtureRequest) -> None:
    wanted = expected(request)
    store = FileStore(data, segment_bytes=SEGMENT_BYTES)
    bench = Bench(store)
    bench.clock.ms += 1000
    tail = bench.tail("vmapi::vm")
    last = tail.head
    repeated = bench.send(expecting("vmapi::vm", last, '{"the":"last"}', source=b"newest"))
    assert repeated.duplicate, "the newest append, sent once more after the upgrade"
    halves = [encode_half(change) for change in CHANGES]
    older = Append("vmapi::vm", "agent-1", halves, digest(halves), expected_offsets=range(63, 69))
    assert bench.send(older).duplicate, "an older one, read back from its sealed segment"
    assert bench.register("vmapi::vm", instance="i-1").epoch == 1
    with pytest.raises(Quarantined):
        bench.append("acme.orders", "x", producer="agent-3")
    bench.release("acme.orders", "agent-3")
    for number in range(30):
        bench.append("vmapi::vm", f"new-{number}", "x" * 200)
    walked = bench.walked()
    assert [lsn for lsn, _ in walked] == sorted({lsn for lsn, _ in walked})
    store.close()
    described = describe_data_folder(data)
    entries, wanted_entries = described["entries"], wanted["entries"]
    assert isinstance(wanted_entries, dict)
    for feed, old in wanted_entries.items():
        assert covers(json.loads(json.dumps(entries[feed]))[: len(old)], old)
    assert [entry["sequence-id"] for entry in entries["vmapi::vm"]] == list(range(63, last + 61))


async def test_server_takes_the_folder_over(data: Path) -> None:
    log = Log.open(data)
    await log.start()
    assert [tail.name for tail in log.feeds()] == ["vmapi::vm", "acme.orders"]
    assert log.metadata.listeners("vmapi::vm")[0].listener_id == "listener-1"
    assert len(log.metadata.alarms()) == 1
    made = await log.register(register("new"))
    assert made.region_id == 3
    assert (await log.append(append("new", "a"))).first_sequence_id == 1
    await log.close()
