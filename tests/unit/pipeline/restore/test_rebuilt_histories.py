"""Which histories of a feed a restore keeps: all that make up its state, each of them from its beginning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.entries.lsn import ZERO
from headrace.errors import RestoreInexact, SegmentGap, Usage
from headrace.pipeline.restore.surveying import Control, Held, Survey
from headrace.pipeline.restore.work import Work, check_survey, work_of
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_manifest import RegisteredFeed
from tests.kwal import INCARNATION, manifest_of, numbered, sealed, write

VM = "vmapi::vm"
REGISTERED = RegisteredFeed(
    feed=VM,
    region_id=7,
    tenant_id="acme",
    mode="owned",
    owner="agent-1",
    epoch=1,
    next_sequence_id=1,
    incarnation="rebuilt",
)


def work_at(folder: Path, segment: Sealed, only: Sequence[str] = ()) -> Work:
    """The work of a restore up to the end of a segment."""
    archive = Archive.read(str(folder))
    found = plan(archive, Asked(to_lsn=segment.name.last))
    spark: Any = None  # not used
    return work_of(spark, archive, found, url=str(folder), identity="", only=only)


def write_rebuilt(folder: Path, began: int) -> tuple[Sealed, Sealed]:
    """Entries 1 to 5 of one history, and 6 to 8 of another, which began at ``began`` (0: nobody says)."""
    first, second = sealed([numbered(1, 5)]), sealed([numbered(6, 3)])
    write(folder, first, manifest_of(first))
    told = manifest_of(second, before=first, incarnations={7: "rebuilt"})
    registry = (msgspec.structs.replace(REGISTERED, first_sequence_id=began),) if began else ()
    write(folder, second, msgspec.structs.replace(told, registry=registry))
    return first, second


def lose(folder: Path, segments: Sequence[Sealed]) -> None:
    """Write three segments, the last with a registry that says that its feed began at 1; the second one is lost."""
    for before, one in zip([None, *segments], segments, strict=False):
        write(folder, one, manifest_of(one, before=before))
    registry = (msgspec.structs.replace(REGISTERED, incarnation=INCARNATION, first_sequence_id=1),)
    told = manifest_of(segments[2], before=segments[1])
    write(folder, segments[2], msgspec.structs.replace(told, registry=registry))
    (folder / str(segments[1].name)).unlink()
    (folder / segments[1].name.manifest).unlink()


def accept(folder: Path) -> None:
    (gap,) = Archive.read(str(folder)).chain.gaps()
    accepted = AcceptedGap(after=str(gap.after), before=str(gap.before), reason="lost", by="a@b", at_ms=1)
    (folder / gap_file(accepted)).write_bytes(encode_gap(accepted))


def held(incarnation: str, first: int, last: int, entries: int | None = None) -> Held:
    count = last - first + 1 if entries is None else entries
    return Held(VM, incarnation, count, count, first, last, 0)


def test_a_rebuilt_history_goes_on_from_the_one_before(tmp_path: Path) -> None:
    first, second = write_rebuilt(tmp_path, 1)
    assert set(work_at(tmp_path, first).spans) == {(VM, INCARNATION)}
    work = work_at(tmp_path, second)
    (kept,) = work.feeds
    assert [(one.incarnation, one.first, one.last) for one in kept.spans] == [
        (INCARNATION, 1, 5),
        ("rebuilt", 6, 8),
    ]
    assert (kept.incarnation, kept.first, kept.last, kept.older) == ("rebuilt", 1, 8, ())
    survey = Survey(
        [held(INCARNATION, 1, 5), held("rebuilt", 6, 8)],
        [
            Control(VM, name, place, "ddl", (), b"")
            for name, place in (("rebuilt", 7), (INCARNATION, 2), ("x", 3))
        ],
    )
    check_survey(work, survey, None)
    assert kept.entries(survey) == 8
    assert [one.sequence_id for one in kept.controls(survey)] == [2, 7]
    for wrong in (held(INCARNATION, 2, 5), held(INCARNATION, 1, 5, 4)):
        with pytest.raises(RestoreInexact, match="of 5 entries, 1 to 5, the segments hold 4"):
            check_survey(work, Survey([wrong, held("rebuilt", 6, 8)], []), None)
    with pytest.raises(RestoreInexact, match="ends at the entry 4"):
        check_survey(work, Survey([held(INCARNATION, 1, 4), held("rebuilt", 6, 8)], []), None)


def test_a_history_that_began_anew_stands_alone(tmp_path: Path) -> None:
    _, second = write_rebuilt(tmp_path, 6)
    (kept,) = work_at(tmp_path, second).feeds
    assert [one.incarnation for one in kept.spans] == ["rebuilt"]
    assert (kept.first, kept.older) == (6, (INCARNATION,))


def test_a_feed_that_does_not_join_is_refused(tmp_path: Path) -> None:
    _, second = write_rebuilt(tmp_path, 0)
    with pytest.raises(RestoreInexact, match="no manifest says whether it goes on"):
        work_at(tmp_path, second)
    with pytest.raises(Usage, match="has no feed other"):
        work_at(tmp_path, second, ("other",))


def test_a_feed_without_its_beginning_is_refused(tmp_path: Path) -> None:
    only = sealed([numbered(4, 2)])
    told = manifest_of(only)
    registry = (msgspec.structs.replace(REGISTERED, incarnation=INCARNATION, first_sequence_id=1),)
    write(tmp_path, only, msgspec.structs.replace(told, registry=registry))
    with pytest.raises(RestoreInexact, match="its entries before 4 are not in the archive"):
        work_at(tmp_path, only)


def test_an_accepted_gap_may_have_taken_a_feeds_beginning(tmp_path: Path) -> None:
    segments = [
        sealed([numbered(1, 1, region=5, feed="orders")]),
        sealed([numbered(1, 3)]),
        sealed([numbered(4, 2)]),
    ]
    lose(tmp_path, segments)
    with pytest.raises(SegmentGap):
        work_at(tmp_path, segments[2])
    accept(tmp_path)
    orders, vm = work_at(tmp_path, segments[2]).feeds
    assert (orders.lost, vm.lost, vm.first, vm.last) == (False, True, 4, 5)


def test_entries_may_be_missing_only_where_an_accepted_gap_is(tmp_path: Path) -> None:
    segments = [sealed([numbered(1, 3)]), sealed([numbered(4, 2)]), sealed([numbered(6, 2)])]
    lose(tmp_path, segments)
    accept(tmp_path)
    work = work_at(tmp_path, segments[2])
    check_survey(work, Survey([held(INCARNATION, 1, 7, 5)], []), None)
    for entries in (4, 7):  # the gap took two, and no more
        with pytest.raises(RestoreInexact, match="of 5 entries, 1 to 7"):
            check_survey(work, Survey([held(INCARNATION, 1, 7, entries)], []), None)
    (hole,) = work.plan.gaps
    other = work._replace(plan=dataclasses.replace(work.plan, gaps=(hole._replace(after=ZERO),)))
    with pytest.raises(
        RestoreInexact, match="entries 4 to 5 are in no segment, and no accepted gap took them"
    ):
        check_survey(other, Survey([held(INCARNATION, 1, 7, 5)], []), None)
