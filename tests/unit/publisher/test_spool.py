"""The folder of snapshots: what it keeps, for how long, how much of it, and what a crash leaves."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.snapshot_body import LINE_BYTES_MAX
from headrace.errors import ConfigInvalid, DataFolderLocked, SnapshotGone, SnapshotUnavailable
from headrace.publisher.snapshot.draft import Draft
from headrace.publisher.snapshot.face import Span, choose_encoding, read_range
from headrace.publisher.snapshot.spool import Spool, Whole, read_spool
from headrace.publisher.state import StatePlace
from headrace.runtime.disk import Disk
from tests.states import parse_body

KEEP_S = 3600.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spool(tmp_path: Path, clock: Clock) -> Iterator[Spool]:
    spool = spool_of(tmp_path, clock)
    spool.open()
    yield spool
    spool.close()


def spool_of(folder: Path, clock: Clock, bytes_max: int = 1 << 20) -> Spool:
    return Spool(folder / "spool", bytes_max=bytes_max, keep_s=KEEP_S, clock=clock, disk=Disk())


def line(number: int, size: int = 10) -> bytes:
    return f'{{"key":"{number}","changes":{{"x":"{number:0{size}}"}}}}\n'.encode()


def make(spool: Spool, clock: Clock, feed: str = "shop", rows: int = 3, sequence_id: int = 7) -> Whole:
    draft = spool.begin(feed)
    try:
        lines = [line(number) for number in range(rows)]
        draft.write_state(StatePlace("inc", sequence_id), lines, clock.wall_ms())
        draft.encode()
        return spool.keep(draft)
    finally:
        spool.drop(draft)


def test_whole_snapshot_says_what_it_is(spool: Spool, clock: Clock) -> None:
    whole = make(spool, clock)
    with spool.reading(whole, "identity") as file:
        body = parse_body(file.read_at(0, whole.sizes["identity"]))
    assert body.header == {
        "headrace-snapshot": 1,
        "snapshot-id": whole.snapshot_id,
        "change-feed-id": "shop",
        "incarnation": "inc",
        "sequence-id": 7,
        "taken-at": "2023-11-14T22:13:20.000Z",
    }
    assert (len(body.rows), whole.rows) == (3, 3)
    assert spool.named(whole.snapshot_id, "shop") == whole
    with pytest.raises(SnapshotGone):
        spool.named(whole.snapshot_id, "another")


def test_row_that_no_listener_takes_is_named(spool: Spool, clock: Clock) -> None:
    draft = spool.begin("shop")
    with pytest.raises(SnapshotUnavailable, match=r'the most is [0-9]+: {"key":"7"$'):
        draft.write_state(StatePlace("inc", 7), [line(7, LINE_BYTES_MAX)], clock.wall_ms())
    spool.drop(draft)


def test_folder_is_for_its_user_alone(spool: Spool) -> None:
    assert spool.folder.stat().st_mode & 0o077 == 0


def test_snapshot_is_gone_after_its_time_but_not_while_it_is_read(spool: Spool, clock: Clock) -> None:
    whole = make(spool, clock)
    with spool.reading(whole, "gzip"):
        clock.now_ms += round(KEEP_S * 1000) - 1
        assert spool.named(whole.snapshot_id, "shop") == whole
        clock.now_ms += 1
        spool.expire()
        with pytest.raises(SnapshotGone):
            spool.named(whole.snapshot_id, "shop")
        assert (spool.folder / whole.snapshot_id / "gzip").exists()
    spool.expire()
    assert not (spool.folder / whole.snapshot_id).exists()
    assert spool.used_bytes() == 0


def test_next_life_keeps_what_is_whole_and_throws_away_the_rest(
    tmp_path: Path, spool: Spool, clock: Clock
) -> None:
    whole, cut, damaged = (make(spool, clock) for _ in range(3))
    draft = spool.begin("shop")
    draft.write_state(StatePlace("inc", 9), [line(1)], clock.wall_ms())
    (spool.folder / cut.snapshot_id / "zstd").write_bytes(b"x")
    (spool.folder / damaged.snapshot_id / "about.json").write_bytes(b"{}")
    shutil.copytree(draft.folder, spool.folder / draft.snapshot_id)
    renamed = str(uuid.uuid4())
    shutil.copytree(spool.folder / whole.snapshot_id, spool.folder / renamed)
    spool.close()
    again = spool_of(tmp_path, clock)
    again.open()
    assert again.all() == [whole]
    assert sorted(one.name for one in again.folder.iterdir()) == sorted([whole.snapshot_id, "owner.lock"])
    assert read_spool(again.folder) == [whole]
    again.close()


class TestFolderThatIsSomethingElse:
    """``snapshot-dir`` may name any folder by mistake."""

    @staticmethod
    def fill(folder: Path) -> dict[str, str]:
        """Put somebody's files there, and return them."""
        (folder / "invoices" / "2026").mkdir(parents=True)
        (folder / "invoices" / "2026" / "a.txt").write_text("x")
        bucket = folder / str(uuid.uuid4())
        bucket.mkdir()
        (bucket / "identity").write_text("somebody's")
        folder.chmod(0o755)
        return files_of(folder)

    @pytest.mark.parametrize("mark", [None, b"", b"of another program"])
    def test_it_is_refused_and_not_touched(self, tmp_path: Path, clock: Clock, mark: bytes | None) -> None:
        folder = tmp_path / "spool"
        self.fill(folder)
        if mark is not None:
            (folder / "owner.lock").write_bytes(mark)
        before = files_of(folder)
        with pytest.raises(
            ConfigInvalid, match=r"is no agent's spool, and it is not empty: it holds .*invoices"
        ):
            spool_of(tmp_path, clock).open()
        assert files_of(folder) == before
        assert folder.stat().st_mode & 0o777 == 0o755

    def test_names_like_snapshots_alone_do_not_make_a_spool(self, tmp_path: Path, clock: Clock) -> None:
        (tmp_path / "spool" / str(uuid.uuid4())).mkdir(parents=True)
        with pytest.raises(ConfigInvalid):
            spool_of(tmp_path, clock).open()

    def test_what_was_put_into_a_spool_later_stays(self, tmp_path: Path, spool: Spool, clock: Clock) -> None:
        whole = make(spool, clock)
        kept = self.fill(spool.folder)
        bucket = next(name for name in kept if name.endswith("/identity") and kept[name] == "somebody's")
        del kept[bucket]  # by its place and name it is what is left of a snapshot
        (spool.folder / whole.snapshot_id / "note.txt").write_text("mine")
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "identity").write_text("not here")
        (spool.folder / str(uuid.uuid4())).symlink_to(outside)
        spool.close()
        clock.now_ms += round(KEEP_S * 1000)
        again = spool_of(tmp_path, clock)
        again.open()
        again.expire()
        again.close()
        assert (outside / "identity").read_text() == "not here"
        left = files_of(spool.folder)
        assert left[f"{whole.snapshot_id}/note.txt"] == "mine"
        assert f"{whole.snapshot_id}/identity" not in left
        assert left.items() >= {name: text for name, text in kept.items() if "invoices" in name}.items()

    def test_spool_of_an_earlier_version_goes_on(self, tmp_path: Path, spool: Spool, clock: Clock) -> None:
        whole = make(spool, clock)
        spool.close()
        (spool.folder / "owner.lock").write_bytes(b"")
        again = spool_of(tmp_path, clock)
        again.open()
        assert again.all() == [whole]
        again.close()

    def test_what_is_no_folder_is_named(self, tmp_path: Path, clock: Clock) -> None:
        (tmp_path / "spool").write_text("a file")
        with pytest.raises(ConfigInvalid, match="can't be used"):
            spool_of(tmp_path, clock).open()


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text("latin-1")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_two_agents_do_not_share_a_folder(tmp_path: Path, spool: Spool, clock: Clock) -> None:
    with pytest.raises(DataFolderLocked):
        spool_of(tmp_path, clock).open()


class TestBound:
    @pytest.fixture
    def small(self, tmp_path: Path, clock: Clock) -> Iterator[Spool]:
        spool = spool_of(tmp_path / "small", clock, bytes_max=20_000)
        spool.open()
        yield spool
        spool.close()

    def test_what_does_not_fit_leaves_nothing(self, small: Spool, clock: Clock) -> None:
        with pytest.raises(SnapshotUnavailable, match="snapshot-bytes-max is 20000"):
            make(small, clock, rows=1_000)
        assert small.used_bytes() == 0
        assert [one.name for one in small.folder.iterdir()] == ["owner.lock"]

    def test_older_ones_of_a_feed_give_way(self, small: Spool, clock: Clock) -> None:
        kept = make(small, clock, feed="another", rows=80)
        made = []
        for number in range(6):
            clock.now_ms += 1
            made.append(make(small, clock, rows=80, sequence_id=number))
            assert small.used_bytes() <= 20_000
        assert kept in small.all()
        assert made[-1] in small.all()
        assert made[0] not in small.all()

    def test_what_is_read_does_not_give_way(self, small: Spool, clock: Clock) -> None:
        first = make(small, clock, rows=80)
        clock.now_ms += 1
        make(small, clock, rows=80)
        with small.reading(first, "identity"):
            for _ in range(6):
                clock.now_ms += 1
                make(small, clock, rows=80)
        assert first in small.all()
        assert small.used_bytes() <= 20_000


def test_end_of_the_agent_ends_a_draft(spool: Spool, clock: Clock) -> None:
    draft: Draft = spool.begin("shop")
    spool.close()
    with pytest.raises(SnapshotUnavailable, match="the agent ends"):
        draft.write_state(StatePlace("inc", 1), [line(1)], clock.wall_ms())


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ([], "identity"),
        ([""], "identity"),
        (["gzip"], "gzip"),
        (["gzip, zstd"], "zstd"),
        (["gzip", "zstd"], "zstd"),
        (["gzip, deflate, br, zstd"], "zstd"),
        (["zstd;q=0.5, gzip;q=0.8"], "gzip"),
        (["zstd;q=0, gzip;q=0"], "identity"),
        (["*"], "zstd"),
        (["*;q=0.1, identity"], "identity"),
        (["GZIP ; Q=1"], "gzip"),
        (["gzip;q=x"], "identity"),
        (["br"], "identity"),
    ],
    ids=str,
)
def test_encoding_is_chosen_by_weight(accepted: list[str], chosen: str) -> None:
    assert choose_encoding(accepted) == chosen


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("bytes=0-", Span(0, 10)),
        ("bytes=3-4", Span(3, 5)),
        ("bytes=3-99", Span(3, 10)),
        ("bytes=-4", Span(6, 10)),
        ("bytes=-99", Span(0, 10)),
        ("bytes=-0", Span(10, 10)),
        ("bytes=10-", Span(10, 10)),
        ("bytes=4-3", None),
        ("bytes=-", None),
        ("bytes=0-1,2-3", None),
        ("items=0-1", None),
        ("bytes=a-b", None),
        ("bytes=99999999999999999999-", None),
    ],
)
def test_range_means_bytes_of_the_file(text: str, span: Span | None) -> None:
    assert read_range(text, 10) == span
