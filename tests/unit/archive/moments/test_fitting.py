"""Bases of another log, or of another history than the segments: none is used, whatever its LSN is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.errors import BaseCorrupt
from headrace.wire.base_manifest import BaseGap, base_folder
from headrace.wire.kwal_manifest import RegisteredFeed
from tests.archive_model import FEEDS, Append, History, Known, write_archive, write_base
from tests.kwal import INCARNATION, manifest_of, write

FOREIGN = "11111111-1111-4111-8111-111111111111"
LINE = History([Append(7, 10 * at) for at in range(6)])
LSNS = [one.lsn for one in LINE.entries]


def why_not(folder: Path) -> list[str]:
    """Return why each misfit is one."""
    chain = Archive.read(str(folder)).chain
    return [chain.why_not(one) for one in chain.misfits]


def registered(region_id: int, incarnation: str, began: int) -> RegisteredFeed:
    """Return what a server says of a feed whose history began at ``began``."""
    return RegisteredFeed(
        feed=FEEDS[region_id],
        region_id=region_id,
        tenant_id="acme",
        mode="owned",
        owner="",
        epoch=1,
        next_sequence_id=7,
        incarnation=incarnation,
        first_sequence_id=began,
    )


@pytest.mark.parametrize("names", [FEEDS, {7: "other::feed"}])
@pytest.mark.parametrize("cuts", [[4], [1, 2, 3, 4, 5]])
def test_a_base_of_another_history_is_not_used(
    tmp_path: Path, names: dict[int, str], cuts: list[int]
) -> None:
    write_archive(tmp_path, LINE.segments(cuts))
    write_base(tmp_path, LINE.entries[:3], incarnation=FOREIGN, names=names)
    assert "has no entry 3" in why_not(tmp_path)[0]
    archive = Archive.read(str(tmp_path))
    found = plan(archive, Asked(to_lsn=LSNS[4]))
    assert found.base is None
    assert any("is not used" in one for one in found.warnings)
    with pytest.raises(BaseCorrupt, match="another log"):
        plan(archive, Asked(to_lsn=LSNS[4]), base_folder(LSNS[2]))


def moved(entries: Sequence[Known], ticks: int) -> list[Known]:
    """Return entries of other moments."""
    return [one._replace(lsn=one.lsn._replace(global_ts=one.lsn.global_ts + ticks)) for one in entries]


def test_a_base_whose_entries_stand_between_the_segments_is_not_used(tmp_path: Path) -> None:
    write_archive(tmp_path, LINE.segments([1, 2, 3, 4, 5]))
    write_base(tmp_path, moved(LINE.entries[:3], 1))
    assert "the segments have nothing at" in why_not(tmp_path)[0]


def test_a_base_that_lacks_a_feed_of_the_segments_is_not_used(tmp_path: Path) -> None:
    history = History([Append(8, 0), *(Append(7, 10 * at) for at in range(1, 5))])
    write_archive(tmp_path, history.segments([1, 3]))
    write_base(tmp_path, history.entries[1:3])
    assert why_not(tmp_path) == [
        f"the segments hold entries 1 to 1 of {FEEDS[8]} (incarnation {INCARNATION}), which the base lacks"
    ]


def test_a_base_that_ends_too_early_is_not_used(tmp_path: Path) -> None:
    history = History([Append(7, 0), Append(7, 10), Append(8, 20), Append(8, 30)])
    write_archive(tmp_path, history.segments([1, 2]))
    write_base(tmp_path, [history.entries[0], history.entries[2]])
    assert "entries 2 to 2 of" in why_not(tmp_path)[0]


def test_a_base_made_over_an_accepted_gap_fits_when_the_segment_is_back(tmp_path: Path) -> None:
    history = History([Append(7, 0), Append(8, 10), Append(7, 20), Append(7, 30)])
    segments, entries = history.segments([1, 2, 3]), history.entries
    gap = BaseGap(after_lsn=str(entries[0].lsn), before_lsn=str(entries[2].lsn), reasons=("ops: a disk",))
    write_archive(tmp_path, segments)
    write_base(tmp_path, [entries[0], entries[2]], gaps=(gap,))
    assert why_not(tmp_path) == []


def test_a_base_that_begins_anew_behind_a_loss_lacks_feeds_that_were_gone(tmp_path: Path) -> None:
    history = History([Append(8, 0), Append(7, 10), Append(7, 20), Append(7, 30)])
    write_archive(tmp_path, history.segments([1, 2, 3]), lost=[1])
    write_base(tmp_path, history.entries[1:3])
    assert why_not(tmp_path) == []


@pytest.mark.parametrize("incarnation", [INCARNATION, FOREIGN])
def test_a_base_needs_none_of_a_history_that_ended(tmp_path: Path, incarnation: str) -> None:
    segments = LINE.segments([2, 3, 4])
    for before, segment in zip([None, *segments], segments, strict=False):
        # The first segment is of a history that the next one takes the place of.
        names = {7: INCARNATION if before is not None else "ended"}
        write(tmp_path, segment, manifest_of(segment, before=before, incarnations=names))
    write_base(tmp_path, LINE.entries[:3], incarnation=incarnation)
    assert bool(why_not(tmp_path)) == (incarnation == FOREIGN)


@pytest.mark.parametrize(("began", "fits"), [(0, True), (1, False), (2, True)])
def test_a_history_that_goes_on_behind_a_base_that_never_had_it(
    tmp_path: Path, began: int, fits: bool
) -> None:
    history = History([Append(8, 0), Append(7, 10), Append(7, 20), Append(8, 30)])
    lost, segment = history.segments([2])
    write(
        tmp_path,
        segment,
        msgspec.structs.replace(
            manifest_of(segment, before=lost), registry=(registered(8, INCARNATION, began),)
        ),
    )
    write_base(tmp_path, history.entries[1:2])
    assert why_not(tmp_path) == ([] if fits else [f"the segments go on behind it with entry 2 of {FEEDS[8]}"])


@pytest.mark.parametrize(("began", "fits"), [(1, True), (2, False), (4, True)])
def test_a_rebuilt_servers_history_goes_on_behind_a_base_from_before(
    tmp_path: Path, began: int, fits: bool
) -> None:
    """The segments below the base may have been pruned."""
    lost, segment = LINE.segments([3])
    told = manifest_of(segment, before=lost, incarnations={7: FOREIGN})
    write(tmp_path, segment, msgspec.structs.replace(told, registry=(registered(7, FOREIGN, began),)))
    write_base(tmp_path, LINE.entries[:3])
    assert why_not(tmp_path) == ([] if fits else [f"the segments go on behind it with entry 4 of {FEEDS[7]}"])
