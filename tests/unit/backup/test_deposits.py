"""An archive as its agent finds it: with gaps that were accepted, with manifests that are gone or damaged."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.backup.deposits import Deposits, Given, surveyed
from headrace.backup.following import Lost
from headrace.backup.gathering import Gatherer
from headrace.backup.verifying.archive_check import verify
from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import BackupGap, SegmentCorrupt
from headrace.wire.batch import ReceivedBatch
from headrace.wire.kwal_manifest import decode_manifest
from tests.identities import age_identity
from tests.kwal import INCARNATION, TS, Stamped, numbered, stamped

ORDERS, ITEMS = 7, 8


def orders(first: int) -> Stamped:
    """One entry of the first feed."""
    return numbered(first, 1, region=ORDERS, feed="shop::orders")


def items(first: int) -> Stamped:
    """One entry of the second feed."""
    return numbered(first, 1, region=ITEMS, feed="shop::items")


def deposit(
    deposits: Deposits, *appends: Stamped, walked_from: Lsn | None = None, lost: Lost | None = None
) -> None:
    """Archive a segment of these, as the agent does."""
    gatherer = Gatherer(1 << 20)
    for body, sizes, first, last in appends:
        batch = ReceivedBatch(first, last, 0, 0, {}, memoryview(body), array("I", sizes))
        assert not list(gatherer.add(batch))
    finished = gatherer.seal()
    runs = surveyed(finished, deposits.histories)
    given = Given(dict.fromkeys((ORDERS, ITEMS), INCARNATION), {}, walked_from, lost)
    deposits.put(deposits.files_of(finished, runs, given), lost)


def put(archive: Path, *appends: Stamped, recipients: tuple[str, ...] = ()) -> None:
    """Archive a segment in a life of its own."""
    with Deposits.open(str(archive), recipients) as deposits:
        deposit(deposits, *appends)


def manifests(archive: Path) -> list[Path]:
    """The manifests in LSN order."""
    return sorted(archive.glob("*.manifest.json"))


def flip(path: Path) -> None:
    """Flip a bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def accept_gap(archive: Path) -> None:
    """Entries 2 of both feeds were lost, and that was accepted; the second feed is quiet until the next life."""
    put(archive, orders(1), items(1))
    behind = orders(3)
    with Deposits.open(str(archive), accept_gap="the backup slept") as deposits:
        assert deposits.end is not None
        lost = Lost(deposits.end, behind.first)
        deposit(deposits, behind, walked_from=Lsn.from_int(int(behind.first) - 1), lost=lost)


def test_a_feed_that_was_quiet_since_an_accepted_gap_speaks_in_a_later_life(tmp_path: Path) -> None:
    accept_gap(tmp_path)
    put(tmp_path, orders(4))
    put(tmp_path, items(5))
    with pytest.raises(BackupGap, match="shop::items"):
        put(tmp_path, items(7))
    put(tmp_path, items(6))


def test_a_feed_that_lost_nothing_to_the_gap_must_go_on(tmp_path: Path) -> None:
    accept_gap(tmp_path)
    with pytest.raises(BackupGap, match="shop::orders"):
        put(tmp_path, orders(5))


def test_a_feed_that_is_quiet_may_skip_nothing_where_there_is_no_gap(tmp_path: Path) -> None:
    put(tmp_path, orders(1), items(1))
    put(tmp_path, orders(2))
    with pytest.raises(BackupGap, match="shop::items"):
        put(tmp_path, items(3))


@pytest.mark.parametrize("keeps_manifest", [True, False])
def test_a_feed_goes_on_behind_a_segment_that_the_archive_lost(tmp_path: Path, keeps_manifest: bool) -> None:
    put(tmp_path, orders(1), items(1))
    put(tmp_path, items(2))
    put(tmp_path, orders(2))
    lost = sorted(tmp_path.glob("*.bin"))[1]
    lost.unlink()
    if not keeps_manifest:
        lost.with_name(f"{lost.stem}.manifest.json").unlink()
    put(tmp_path, items(3))


@pytest.mark.parametrize("encrypted", [False, True])
def test_an_old_manifest_that_is_damaged_does_not_stop_the_backup(tmp_path: Path, encrypted: bool) -> None:
    archive = tmp_path / "archive"
    recipients = (age_identity(tmp_path / "key"),) if encrypted else ()
    for number in (1, 2, 3):
        put(archive, orders(number), items(number), recipients=recipients)
    old, _, newest = manifests(archive)
    flip(old)
    damaged = old.read_bytes()
    put(archive, orders(4), recipients=recipients)
    with pytest.raises(BackupGap):
        put(archive, orders(6), recipients=recipients)
    assert old.read_bytes() == damaged, "it is left to who mends the archive"

    flip(manifests(archive)[-1])
    with pytest.raises(SegmentCorrupt) as found:
        put(archive, orders(5), recipients=recipients)
    assert manifests(archive)[-1].name in found.value.detail
    assert "not encrypted" in found.value.advice
    flip(manifests(archive)[-1])
    newest.unlink()
    with pytest.raises(SegmentCorrupt, match=old.name):
        put(archive, orders(5), recipients=recipients)


def half(number: int, tx: str, *, last: bool = False) -> Stamped:
    """An entry of a transaction of the first feed."""
    change = Change(b"{}", key=b"k", source_tx=tx.encode(), tx_last=last)
    return stamped([change], number, ts=TS + number, region=ORDERS, feed="shop::orders")


def told_of_transactions(archive: Path) -> list[tuple[tuple[str, ...] | None, tuple[str, ...] | None]]:
    """What each manifest says of the first feed: what it leaves open, and what goes on."""
    parts = [decode_manifest(path.read_bytes(), path.name).feeds[0] for path in manifests(archive)]
    return [(part.left_open, part.continued) for part in parts]


@pytest.mark.parametrize("encrypted", [False, True])
def test_an_agent_of_a_later_life_knows_the_transactions_that_are_open(
    tmp_path: Path, encrypted: bool
) -> None:
    archive, tx = tmp_path / "archive", b"A".hex()
    recipients = (age_identity(tmp_path / "key"),) if encrypted else ()
    put(archive, half(1, "A"), recipients=recipients)
    put(archive, half(2, "B", last=True), recipients=recipients)
    put(archive, half(3, "A"), recipients=recipients)
    put(archive, half(4, "A", last=True), recipients=recipients)
    put(archive, half(5, "A", last=True), recipients=recipients)
    assert told_of_transactions(archive) == [
        ((tx,), ()),
        ((), ()),
        ((tx,), (tx,)),
        ((), (tx,)),
        ((), ()),
    ]


def test_a_segment_that_is_told_anew_says_what_goes_on_in_it(tmp_path: Path) -> None:
    put(tmp_path, half(1, "A"))
    put(tmp_path, half(2, "A"), half(3, "B"))
    manifests(tmp_path)[-1].unlink()
    put(tmp_path, half(4, "B", last=True))
    a, b = b"A".hex(), b"B".hex()
    assert told_of_transactions(tmp_path) == [((a,), ()), ((a, b), (a,)), ((), (b,))]


def test_behind_a_damaged_manifest_nobody_says_what_goes_on(tmp_path: Path) -> None:
    put(tmp_path, half(1, "A"))
    put(tmp_path, half(2, "B", last=True))
    flip(manifests(tmp_path)[0])
    with Deposits.open(str(tmp_path)) as deposits:
        deposit(deposits, half(3, "A"))
        deposit(deposits, half(4, "C"))
    flip(manifests(tmp_path)[0])
    assert told_of_transactions(tmp_path) == [
        ((b"A".hex(),), ()),
        ((), ()),
        (None, None),
        ((b"C".hex(),), ()),
    ]
    assert verify(str(tmp_path)).findings == []


def test_the_cure_of_a_damaged_manifest_that_is_named(tmp_path: Path) -> None:
    put(tmp_path, orders(1))
    put(tmp_path, orders(2))
    newest = manifests(tmp_path)[-1]
    told = newest.read_bytes()
    flip(newest)
    with pytest.raises(SegmentCorrupt):
        put(tmp_path, orders(3))
    newest.unlink()
    put(tmp_path, orders(3))
    assert newest.read_bytes() == told


def test_an_old_record_accepts_no_new_loss(tmp_path: Path) -> None:
    """It was written before anybody knew that the log went on right behind it."""
    put(tmp_path, orders(1))
    put(tmp_path, orders(2))
    first, second = (
        Lsn.parse(path.name.split("-")[3].partition(".manifest")[0]) for path in manifests(tmp_path)
    )
    far = orders(9).first
    for after in (first, second):
        gap = AcceptedGap(after=str(after), before=str(far), reason="a disk died", by="ops@host", at_ms=1)
        (tmp_path / gap_file(gap)).write_bytes(encode_gap(gap))
        with Deposits.open(str(tmp_path)) as deposits:
            assert deposits.end == second
            assert deposits.accepts(Lost(second, orders(5).first)) == (after == second)
